"""Lists the keys that a run keeps to itself: it found no other run, so later runs leave them to it.

    <folder>/runs/<run_id>/keys.arrow    hashes of the keys' texts, for keys that it prefetches
    <folder>/runs/<run_id>/by_row.arrow  for keys that it calls for by row; or ALL, for every key

The run deletes the first list after its prefetch. While there is no second list, the run has not
decided, and later runs wait. A list never changes. A run that found other runs keeps nothing to
itself: it claims its keys as they do (claims/).
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import LedgerFolder
from jobs.ledger.working_folders import RUNS

PREFETCHED, BY_ROW = "keys.arrow", "by_row.arrow"
ALL = b"all"  # in place of a list
TEXTS_AT_ONCE = 1 << 16
_HASH = "hash"


def keep_keys(
    plan: LedgerPlan, by_row: pa.ChunkedArray | None, prefetched: pa.ChunkedArray | None = None
) -> None:
    """List the keys that the run keeps to itself, which ends the wait of other runs.

    Args:
        plan: The run's ledger.
        by_row: Texts of the keys that are called by row; None if only Spark knows them, so that the
            run keeps all keys.
        prefetched: Texts of the prefetched keys.

    Raises:
        LedgerError: A list cannot be written.
    """
    if prefetched is not None and len(prefetched):
        _write(plan, PREFETCHED, _listed(prefetched))
    _write(plan, BY_ROW, ALL if by_row is None else _listed(by_row))


def release_prefetched(plan: LedgerPlan) -> None:
    """Leave the prefetched keys to other runs: the answers are stored. Raises LedgerError."""
    plan.open_folder().delete(f"{RUNS}/{plan.run_id}/{PREFETCHED}")


def _listed(texts: pa.ChunkedArray) -> pa.Buffer:
    table = pa.table({_HASH: np.sort(np.concatenate([np.empty(0, np.uint64), *_hashes(texts)]))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return sink.getvalue()


def _hashes(texts: pa.ChunkedArray) -> Iterator[npt.NDArray[np.uint64]]:
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        yield key_hashes(texts.slice(start, TEXTS_AT_ONCE).to_pylist())


def _write(plan: LedgerPlan, name: str, data: bytes | pa.Buffer) -> None:
    # no reader sees a partial file
    plan.open_folder().replace(f"{RUNS}/{plan.run_id}/{name}", data)


def kept_among(
    folder: LedgerFolder, name: str, hashes: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """Return which of these keys a list has: all of them if it is ALL or damaged, or if 0.1.0
    wrote it, whose hashes cannot be compared.

    Args:
        folder: Of the ledger.
        name: `<run_id>/<file>`.
        hashes: Of the keys' texts.

    Raises:
        FileNotFoundError: The run has ended.
        LedgerError: The file cannot be read.
    """
    data = folder.read_bytes(f"{RUNS}/{name}")
    if data == ALL:
        return np.ones(len(hashes), np.bool_)
    try:
        listed = pa.ipc.open_file(data).read_all()[_HASH]
    except (pa.ArrowException, OSError, KeyError) as error:
        folder.warn(f"{RUNS}/{name}", error)
        return np.ones(len(hashes), np.bool_)
    if pa.types.is_signed_integer(listed.type):
        return np.full(len(hashes), len(listed) > 0)
    return np.isin(hashes, listed.to_numpy())
