"""Replaces a day in the tables of its windows and summaries, by a single commit each."""

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
from deltalake import write_deltalake

from jobs.tables.delta.by_run import NO_STATISTICS
from jobs.tables.delta.delta_log import checkpoint_settings, lasting, saying_format, table_at
from jobs.tables.delta.published_files import facts_by_day
from jobs.tables.delta.publishers import again_if_taken, alone_with, storing

Rows = Callable[[], pa.Table | pa.RecordBatchReader]


def replace_day(target: str, rows: Rows | None, day: str, *, by: list[str]) -> None:
    """Replaces the rows of the day in the table, in a single commit.

    Args:
        target: Path of the table.
        rows: Makes the rows of the day, again for each try; None without rows.
        day: The day.
        by: The table's partition columns, the day's column last.

    Raises:
        TidegateError: The disk fails.
    """
    of_day = f"\"{by[-1]}\" = '{day}'"
    with storing(target), alone_with(target), lasting(target):
        table = table_at(target)
        if rows is None:
            if table is not None:
                table.delete(of_day)
        elif table is None:
            write_deltalake(
                target, rows(), mode="append", partition_by=by,
                configuration=NO_STATISTICS | checkpoint_settings(target),
                commit_properties=saying_format(),
            )  # fmt: skip
        else:
            again_if_taken(
                lambda: write_deltalake(
                    target, rows(), mode="overwrite", schema_mode="merge", predicate=of_day
                )
            )


def made_at(target: str, column: str, day: str) -> dt.datetime | None:
    """Returns when the table's rows of the day were made; None without rows.

    Args:
        target: Path of the table.
        column: The column of the day.
        day: The day.
    """
    table = table_at(target)
    files = [] if table is None else facts_by_day(table, column, "modification_time")
    times = [at for of, at in files if of == day]
    return dt.datetime.fromtimestamp(max(times) / 1e3, dt.UTC) if times else None
