"""Publishes files that are written already: their columns in Delta, their add actions, and the
commit that creates a table with them.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, Field, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from jobs.declare.values.calendar import is_day
from jobs.schema.records import DayFacts
from jobs.tables.delta.delta_log import checkpoint_settings, day_type

NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True)
class NewFile:
    """A file that no version of its table has yet.

    Attributes:
        path: Its path below the table.
        size: Its bytes.
        changed: When it was written, in ms since the epoch.
        rows: Its rows.
    """

    path: str
    size: int
    changed: int
    rows: int


def end_of_run(facts: DayFacts) -> int:
    """Return when the run's files were all written, in ms since the epoch."""
    return round(dt.datetime.fromisoformat(facts.finished_at).timestamp() * 1000)


def add_actions(files: Iterable[NewFile], partition: Mapping[str, str | None]) -> list[AddAction]:
    """Return the actions that add these files to a partition; a file without rows has none."""
    return [
        AddAction(
            path=file.path,  # deltalake quotes it
            size=file.size,
            partition_values=partition,
            modification_time=file.changed,
            data_change=True,
            stats=f'{{"numRecords": {file.rows}}}',
        )
        for file in files
        if file.rows
    ]


def table_columns(columns: Iterable[pa.Field], facts: DayFacts, *more: Field) -> Schema:
    """Return these columns, then `more`, then the day's column. Each may be null."""
    fields = Schema.from_arrow(pa.schema([column.with_nullable(True) for column in columns])).fields
    kind = day_type("day" if is_day(facts.day) else "hour")
    return Schema([*fields, *more, Field(facts.declared.partition, kind)])


def create_table(
    table: str,
    columns: Schema,
    actions: Sequence[AddAction],
    properties: CommitProperties,
    *,
    partition_by: Sequence[str],
    name: str | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> None:
    """Create a table with these files by a single commit. Raises DeltaError if it exists."""
    create_table_with_add_actions(
        table, columns, [*actions], mode="error", partition_by=[*partition_by], name=name,
        configuration={**settings, **checkpoint_settings(table)}, commit_properties=properties,
    )  # fmt: skip
