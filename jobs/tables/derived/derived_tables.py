"""Replaces a day in the tables of its windows and summaries, by a single commit each."""

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from jobs.tables.delta.by_run import NO_STATISTICS
from jobs.tables.delta.delta_log import (
    checkpoint_settings,
    commit_on_top,
    lasting,
    saying_format,
    table_at,
)
from jobs.tables.delta.published_files import facts_by_day
from jobs.tables.delta.publishers import alone_with
from jobs.tables.delta.write_errors import storing

DAY = "tidegate.day"  # of a commit
Rows = Callable[[], pa.Table | pa.RecordBatchReader]


def replace_day(target: str, rows: Rows | None, day: str, *, by: list[str]) -> None:
    """Replace the rows of the day in the table, in a single commit.

    Args:
        target: Path of the table.
        rows: Makes the rows of the day, again for each try; None without rows.
        day: The day.
        by: The table's partition columns, the day's column last.

    Raises:
        TidegateError: The disk fails.
    """
    of_day, named = f"\"{by[-1]}\" = '{day}'", {DAY: day}
    with storing(target), alone_with(target), lasting(target):
        table = table_at(target)
        if rows is None:
            if table is not None:
                table.delete(of_day)
        elif table is None:
            write_deltalake(
                target, rows(), mode="append", partition_by=by,
                configuration=NO_STATISTICS | checkpoint_settings(target),
                commit_properties=saying_format(named),
            )  # fmt: skip
        else:
            # under the lock another commit is often this one: a store took it and lost its answer
            commit_on_top(
                table,
                lambda: write_deltalake(
                    target,
                    rows(),
                    mode="overwrite",
                    schema_mode="merge",
                    predicate=of_day,
                    commit_properties=CommitProperties(custom_metadata=named),
                ),
            )


def made_at(target: str, column: str, day: str) -> dt.datetime | None:
    """Return when the table's rows of the day were made, or were found to be none; None if the
    table does not tell.
    """
    table = table_at(target)
    if table is None:
        return None
    files = facts_by_day(table, column, "modification_time")
    times = [at for file_day, at in files if file_day == day]
    if not times:  # no file tells of no rows, but the commit that found none
        times = [commit["timestamp"] for commit in table.history() if commit.get(DAY) == day]
    return dt.datetime.fromtimestamp(max(times) / 1e3, dt.UTC) if times else None
