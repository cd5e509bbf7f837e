"""The tables of windows, and of the rows that are in none: made by a run, published after its day, a commit each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import write_deltalake

from jobs.declare.enrichment import Enrichment
from jobs.declare.table_conflicts import DROPPED
from jobs.declare.windows import Window
from jobs.errors import TidegateError
from jobs.schema import INPUT_DAY, DayRecord
from jobs.storage.stored_files import is_there, parquet_dataset, parquet_source
from jobs.storage.urls import beside
from jobs.tables.by_run import NO_STATISTICS
from jobs.tables.delta_log import checkpoints_of, lasting, table_at
from jobs.tables.publishers import again_if_taken, alone_with, storing


def table_of(enrichment: Enrichment, window: Window) -> str:
    """Where the windows are published: beside the table that they are made from."""
    return beside(enrichment.output.path, window.name)


def dropped_table_of(enrichment: Enrichment, window: Window) -> str:
    """Where the rows are that are in no window."""
    return f"{table_of(enrichment, window)}{DROPPED}"


def publish_windows(enrichment: Enrichment, window: Window, record: DayRecord) -> int:
    """Make the windows of a published run those that readers see; first the rows that are in none. Returns the rows of
    the table of windows.

    Raises TidegateError when that run made none, when its files are gone, and when the disk refuses.
    """
    facts = record.facts
    day, partition = facts.day, facts.declared.partition
    again = f"Remap the day, which calls nobody: `tidegate remap {enrichment.name} --from {day} --to {day}`."
    made = next((one for one in facts.windows if one.name == window.name), None)
    if made is None and facts.files:
        raise TidegateError(f"{enrichment.name}: the published run of {day} made no windows {window.name}. {again}")
    files, dropped = (made.files, made.dropped_files) if made else ((), ())
    if gone := next((file for file in (*files, *dropped) if not is_there(file)), None):
        raise TidegateError(f"{enrichment.name}: {gone}, windows of {day}, is gone, as by a vacuum. {again}")
    _replace(dropped_table_of(enrichment, window), dropped, day, by=[partition])
    _replace(table_of(enrichment, window), files, day, by=[partition, INPUT_DAY])
    return made.windows if made else 0


def made_at(enrichment: Enrichment, window: Window, day: str) -> dt.datetime | None:
    """When the windows of the day were published that readers see; None where it has none."""
    table = table_at(table_of(enrichment, window))
    files = [] if table is None else pa.table(table.get_add_actions(flatten=True)).to_pylist()
    times = [file["modification_time"] for file in files if str(file[f"partition.{INPUT_DAY}"]) == day]
    return dt.datetime.fromtimestamp(max(times) / 1e3, dt.UTC) if times else None


def _replace(target: str, files: Sequence[str], day: str, *, by: list[str]) -> None:
    """One commit: what the table had of this day of the input out, this in. by: its partition columns, the day last."""
    is_of_day = f"{by[-1]} = '{day}'"
    files = [file for file in files if pq.read_metadata(parquet_source(file)).num_rows]
    with storing(target), alone_with(target), lasting(target):
        table = table_at(target)
        if not files:
            if table is not None:
                table.delete(is_of_day)
            return
        dataset = parquet_dataset(files)
        columns = {name: ds.field(name) for name in dataset.schema.names}
        columns[by[-1]] = ds.scalar(dt.date.fromisoformat(day))
        scanner = dataset.scanner(columns=columns)
        if table is not None:
            again_if_taken(
                lambda: write_deltalake(
                    target, scanner.to_reader(), mode="overwrite", schema_mode="merge", predicate=is_of_day
                )
            )
        else:
            write_deltalake(
                target, scanner.to_reader(), mode="append", partition_by=by,
                configuration=NO_STATISTICS | checkpoints_of(target),
            )  # fmt: skip
