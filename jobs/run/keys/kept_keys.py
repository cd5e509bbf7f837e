"""Lists the keys that a run keeps to itself: it found no other run, so later runs leave them to it.

    <folder>/runs/<run_id>/keys.arrow    hashes of the keys that it prefetches
    <folder>/runs/<run_id>/by_row.arrow  hashes of the keys that it calls for by row

The run deletes the first list after its prefetch. Without the second list it has not decided yet,
and later runs wait. A list never changes. A run that found others keeps nothing to itself: it
claims its keys as they do (claims.py).
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import LedgerFolder
from jobs.ledger.working_folders import RUNS
from jobs.run.keys.hits import open_folder
from jobs.run.keys.key_texts import Hashes

PREFETCHED, BY_ROW = "keys.arrow", "by_row.arrow"
_TYPES, _HASH = b"tidegate.key_types", "hash"


def keep_keys(
    plan: LedgerPlan, by_row: Hashes, types: str, *, prefetched: pa.Array | None = None
) -> None:
    """Lists the keys that the run keeps to itself, which ends the wait of other runs.

    Args:
        plan: The run's ledger.
        by_row: Hashes of the keys' columns, as in `day_keys`, for keys that are called by row.
        types: Types of these columns, because equal keys of other types have other hashes.
        prefetched: Texts of the prefetched keys.

    Raises:
        LedgerError: A list cannot be written.
    """
    if prefetched is not None and len(prefetched):
        _write(plan, PREFETCHED, key_hashes(prefetched.to_pylist()).view(np.int64), "")
    _write(plan, BY_ROW, by_row, types)


def release_prefetched(plan: LedgerPlan) -> None:
    """Leaves the prefetched keys to other runs: the answers are stored. Raises LedgerError."""
    open_folder(plan).delete(f"{RUNS}/{plan.run_id}/{PREFETCHED}")


def _write(plan: LedgerPlan, name: str, hashes: Hashes, types: str) -> None:
    table = pa.table({_HASH: np.sort(hashes)}).replace_schema_metadata({_TYPES: types})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    # no reader sees a partial file
    open_folder(plan).replace(f"{RUNS}/{plan.run_id}/{name}", sink.getvalue())


def kept_among(
    folder: LedgerFolder, name: str, texts: npt.NDArray[np.uint64], hashes: Hashes, types: str
) -> npt.NDArray[np.bool_]:
    """Returns which of these keys a list has; all of them if the list cannot be compared, because
    its types differ or it is damaged.

    name: `<run_id>/<file>`. texts: hashes of the texts; hashes: of the columns. Raises
    FileNotFoundError when the run has ended, and LedgerError if the file cannot be read.
    """
    data = folder.read_bytes(f"{RUNS}/{name}")
    try:
        table = pa.ipc.open_file(data).read_all()
        listed, kept_types = table[_HASH].to_numpy(), (table.schema.metadata or {}).get(_TYPES)
    except (pa.ArrowException, OSError, KeyError) as error:
        folder.warn(f"{RUNS}/{name}", error)
        return np.ones(len(hashes), np.bool_)
    if not len(listed):
        return np.zeros(len(hashes), np.bool_)
    if name.endswith(PREFETCHED):
        return np.isin(texts.view(np.int64), listed)
    return (
        np.isin(hashes, listed) if kept_types == types.encode() else np.ones(len(hashes), np.bool_)
    )
