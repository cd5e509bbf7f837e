"""The keys that a run calls by row, listed for later runs, which leave these keys to it.

<folder>/runs/<run_id>/deciding      from the run's begin until it is known which keys it asks by row
<folder>/runs/<run_id>/by_row.arrow  the hashes of these keys; never changed
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger.abandoned import RUNS
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import LedgerFolder
from jobs.run.hits import folder_of
from jobs.run.key_columns import Hashes

DECIDING, LISTED = "deciding", "by_row.arrow"
_TYPES, _HASH = b"tidegate.key_types", "hash"


def begin_deciding(plan: LedgerPlan) -> None:
    """Mark the run before it looks for others: a run that finds it waits for `decided`. Raises LedgerError."""
    folder_of(plan).write(f"{RUNS}/{plan.run_id}/{DECIDING}", b"{}")


def decided(plan: LedgerPlan, hashes: Hashes, types: str) -> None:
    """List the keys that are called by row. hashes: of their columns, as `day_keys` has them. types: of these columns,
    as equal keys of other types have other hashes. Raises LedgerError.
    """
    if len(hashes):
        table = pa.table({_HASH: np.sort(hashes)}).replace_schema_metadata({_TYPES: types})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        folder_of(plan).write(f"{RUNS}/{plan.run_id}/{LISTED}", sink.getvalue())
    folder_of(plan).delete(f"{RUNS}/{plan.run_id}/{DECIDING}")


def listed_among(folder: LedgerFolder, run: str, hashes: Hashes, types: str) -> npt.NDArray[np.bool_]:
    """Which of these keys the run listed; all of them if its keys have other types, which cannot be compared.

    Raises FileNotFoundError when the run has ended, and OSError or ArrowException when its list cannot be read.
    """
    path = f"{folder.path}/{RUNS}/{run}/{LISTED}"
    with folder.filesystem.open_input_file(path) as opened, pa.ipc.open_file(opened) as file:
        table = file.read_all()
    if (table.schema.metadata or {}).get(_TYPES) != types.encode():
        return np.ones(len(hashes), np.bool_)
    return np.isin(hashes, table[_HASH].to_numpy())
