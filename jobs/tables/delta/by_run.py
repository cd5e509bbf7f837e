"""Tables beside the published table with rows of runs, partitioned by day and run.

Removing a run touches no file of another run. A run's rows are written before its day is published;
afterwards the rows of other runs of the day are removed.
"""

from collections.abc import Callable, Collection
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.schema import RUN_ID, DayFacts
from jobs.tables.delta.copied_log import commit_on_top
from jobs.tables.delta.delta_log import checkpoint_settings, commit_hooks, log_beside, saying_format

Rows = Callable[[], pa.RecordBatchReader]

RUN = RUN_ID
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # keeps values out of the table's log


def write(table: str, facts: DayFacts, rows: Rows | None, *, again: bool = True) -> Callable[[], object]:
    """Writes the rows of this run, if any, beside those of other runs.

    Args:
        table: Path of the table beside the published table.
        facts: The run and its day.
        rows: Makes the rows, again for each try; None without rows.
        again: Whether the run may have written before, so that its rows are removed first.

    Returns:
        A function that removes the rows of the other runs from the day.
    """
    if rows is None:
        return partial(keep_only, table, facts)
    there = remove(table, facts) if again else log_beside(table)
    days_and_runs = [facts.declared.partition, RUN]
    commit_on_top(
        there,
        lambda: write_deltalake(
            there or table, rows(), mode="append", partition_by=days_and_runs, schema_mode="merge",
            configuration=NO_STATISTICS | checkpoint_settings(table),
            commit_properties=saying_format() if there is None else None,
            post_commithook_properties=commit_hooks(table, there),
        ),
    )  # fmt: skip
    return partial(_delete, there, facts.declared.partition, facts.day, "<>", facts.run_id)


def remove(table: str, facts: DayFacts) -> DeltaTable | None:
    """Removes the rows of this run. Returns the table, if it exists."""
    return _delete(log_beside(table), facts.declared.partition, facts.day, "=", facts.run_id)


def keep_only(table: str, facts: DayFacts) -> None:
    _delete(log_beside(table), facts.declared.partition, facts.day, "<>", facts.run_id)


def keep_published(table: str, partition: str, published: Collection[tuple[str, str]]) -> None:
    """Removes all rows except those of these days and runs. Never call it during a publication."""
    there = log_beside(table)
    if there is not None:
        for found in there.partitions():
            day, run = str(found[partition]), str(found[RUN])
            if (day, run) not in published:
                _delete(there, partition, day, "=", run)


def _delete(table: DeltaTable | None, partition: str, day: str, comparison: str, run_id: str) -> DeltaTable | None:
    if table is not None:
        run = run_id.replace("'", "''")
        where = f"\"{partition}\" = '{day}' AND {RUN} {comparison} '{run}'"
        commit_on_top(table, lambda: table.delete(where))
    return table
