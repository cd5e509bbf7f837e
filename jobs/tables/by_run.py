"""Tables beside the published one with rows of runs, partitioned by day and run.

Removing a run touches no file of another run. A run's rows are written before its day is published; afterwards the
rows of other runs of the day are removed.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from jobs.schema import RUN_ID, DayFacts
from jobs.tables.delta_log import checkpoints_of, saying_format, table_at

RUN = RUN_ID
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # keeps values out of the table's log


def write(table: str, facts: DayFacts, rows: pa.RecordBatchReader) -> DeltaTable | None:
    """Write the rows of this run beside those of the published run. Idempotent. Returns the table, if it was there."""
    opened = remove(table, facts)
    days_and_runs = [facts.declared.partition, RUN]
    write_deltalake(
        opened or table, rows, mode="append", partition_by=days_and_runs, schema_mode="merge",
        configuration=NO_STATISTICS | checkpoints_of(table),
        commit_properties=saying_format() if opened is None else None,
    )  # fmt: skip
    return opened


def remove(table: str, facts: DayFacts) -> DeltaTable | None:
    """Remove the rows of this run. Returns the table, if there is one."""
    return _delete(table, facts.declared.partition, facts.day, "=", facts.run_id)


def keep_only(table: str, facts: DayFacts, opened: DeltaTable | None = None) -> None:
    """Remove the rows of all other runs of this run's day, because it is published now. opened: the table, as it was
    written to last.
    """
    _delete(opened or table, facts.declared.partition, facts.day, "<>", facts.run_id)


def keep_published(table: str, partition: str, published: Collection[tuple[str, str]]) -> None:
    """Remove all rows except those of these days and runs. A crashed publication leaves others until its day is
    published. Do not call it during a publication.
    """
    opened = table_at(table)
    if opened is not None:
        for found in opened.partitions():
            day, run = str(found[partition]), str(found[RUN])
            if (day, run) not in published:
                _delete(table, partition, day, "=", run)


def _delete(table: DeltaTable | str, partition: str, day: str, comparison: str, run_id: str) -> DeltaTable | None:
    opened = table_at(table) if isinstance(table, str) else table
    if opened is not None:
        run = run_id.replace("'", "''")
        where = f"{partition} = '{day}' AND {RUN} {comparison} '{run}'"
        try:
            opened.delete(where)
        except CommitFailedError:  # an object store took it, and its answer was lost
            opened.update_incremental()
            opened.delete(where)
    return opened
