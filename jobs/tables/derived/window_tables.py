"""Publishes the tables of windows, and of rows in no window: a run makes them, and each is
published after its day by a single commit.
"""

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.declare.enrichment import Enrichment
from jobs.declare.published.windows import Window
from jobs.declare.values.table_conflicts import DROPPED
from jobs.errors import TidegateError
from jobs.schema.columns import INPUT_DAY
from jobs.schema.records import DayRecord
from jobs.storage.parquet_files import parquet_source, stream_rows
from jobs.storage.stored_files import is_there
from jobs.storage.urls import beside
from jobs.tables.derived import derived_tables


def table_of(enrichment: Enrichment, window: Window) -> str:
    """Return where the windows are published: beside the table that they are made from."""
    return beside(enrichment.output.path, window.name)


def dropped_table_path(enrichment: Enrichment, window: Window) -> str:
    return f"{table_of(enrichment, window)}{DROPPED}"


def publish_windows(enrichment: Enrichment, window: Window, record: DayRecord) -> int:
    """Publish the windows of a published run to readers; first the rows in no window. Returns the
    number of rows in the table of windows.

    Raises TidegateError if that run made no windows, if its files are gone, or if the disk fails.
    """
    facts = record.facts
    day, partition = facts.day, facts.declared.partition
    again = (
        f"Remap the day, which calls nobody: `tidegate remap {enrichment.name} --from {day} "
        f"--to {day}`."
    )
    made = next((declared for declared in facts.windows if declared.name == window.name), None)
    if made is None and facts.files:
        raise TidegateError(
            f"{enrichment.name}: the published run of {day} made no windows {window.name}. {again}"
        )
    files, dropped = (made.files, made.dropped_files) if made else ((), ())
    if gone := next((file for file in (*files, *dropped) if not is_there(file)), None):
        raise TidegateError(
            f"{enrichment.name}: {gone}, windows of {day}, is gone, perhaps by a vacuum. {again}"
        )
    _replace(dropped_table_path(enrichment, window), dropped, day, by=[partition])
    _replace(table_of(enrichment, window), files, day, by=[partition, INPUT_DAY])
    return made.windows if made else 0


def _replace(target: str, files: Sequence[str], day: str, *, by: list[str]) -> None:
    files = [file for file in files if pq.read_metadata(parquet_source(file)).num_rows]
    if not files:
        derived_tables.replace_day(target, None, day, by=by)
        return
    of_day = {by[-1]: pa.scalar(dt.date.fromisoformat(day))}
    derived_tables.replace_day(target, lambda: stream_rows(files, None, of_day), day, by=by)
