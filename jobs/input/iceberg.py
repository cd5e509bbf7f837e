"""A day of an Iceberg table that others write: its last snapshot, as pyiceberg reads it."""

import contextlib
import datetime as dt
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyiceberg.io.pyarrow as by_arrow
from pyiceberg.catalog import load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import ArrowScan, expression_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.config import Config

from jobs.declare.values.calendar import Every, day_begin, day_column, is_day, only_name
from jobs.errors import DeclarationError, NoInput, TidegateError
from jobs.input.iceberg_nested import AsStored
from jobs.input.staged_files import ScannedFile
from jobs.input.types import InputColumn, read_columns
from jobs.storage.stored_files import StoredFile, error_text

by_arrow.ArrowProjectionVisitor = AsStored  # type: ignore[misc]
READ_RULES = "nested values as stored"  # a copy by other rules is made anew
TIME_TRANSFORMS = {"day": (DayTransform,), "hour": (HourTransform,)}


@dataclass(frozen=True)
class IcebergInput:
    """The last snapshot of an Iceberg table, with the table's present columns.

    Attributes:
        table: The opened table.
        root: The table's name, for messages: catalog.namespace.table.
        partition: A column of days or hours, or a partition field, the day or the hour of a time;
            not needed if `every` is a single name.
        every: The declared days, hours or names.
    """

    table: Table
    root: str
    partition: str
    every: Every
    version_name: ClassVar = "snapshot"

    @classmethod
    def at(cls, name: str, partition: str, every: Every) -> Self:
        """Open `catalog.namespace.table`.

        Raises:
            NoInput: The table does not exist, or has no snapshot.
            DeclarationError: The catalog is not configured or does not answer, or the table cannot
                be read.
        """
        configured = catalog_config("input", name)
        catalog, _, table = name.partition(".")
        with _reading(name):
            try:
                opened = cls(
                    load_catalog(catalog, **configured).load_table(table), name, partition, every
                )
            except NoSuchTableError as error:
                raise NoInput(
                    f"input: there is no Iceberg table {name}; nothing can be enriched."
                ) from error
        if opened.table.current_snapshot() is None:
            raise NoInput(
                f"input: nobody has written a row to {name} yet; nothing can be enriched."
            )
        return opened

    @property
    def id(self) -> str:
        return str(self.table.metadata.table_uuid)

    @property
    def version(self) -> int:
        return self.table.metadata.current_snapshot_id or 0  # `at` requires a snapshot

    @property
    def last_day(self) -> str | None:
        """The last day of the data files, also if its rows were deleted since.

        It is a file's partition, else the file's largest value. If none of them is a day, the rows
        are read; None if no row has a day.
        """
        if self._is_whole:
            return only_name(self.every)
        planned = self._planned()
        with _reading(self.root, self.table):
            days = [self._last_day_in(task.file) for task in planned]
        if self._default is not None and any(
            entry.snapshot_id in self._before_day_column for entry in self._entries
        ):
            days.append(self._day_in(self._default))
        return max(filter(None, days), default=None) or self._last_day_of_rows()

    def _last_day_of_rows(self) -> str | None:
        """Read the last day, for want of statistics, or because they end with a text of no day."""
        column = self._day_column
        values: set[Any] = set()
        with _reading(self.root, self.table):
            for batch in self.table.scan(selected_fields=(column.name,)).to_arrow_batch_reader():
                is_text = isinstance(column.field_type, StringType)
                values |= set(
                    pc.unique(batch[0]).to_pylist() if is_text else [pc.max(batch[0]).as_py()]
                )
        return max(filter(None, (self._day_in(str(value)) for value in values)), default=None)

    def files(self, day: str) -> list[StoredFile]:
        """Return the data files that may have rows of a day, by path.

        Raises:
            DeclarationError: Rows are deleted in a way that pyiceberg does not read.
        """
        wanted, columns = self._day_filter(day), self.columns()
        added = self._times_of_files()
        types = pa.schema([(column.name, column.kind) for column in columns])
        files = []
        for task in self._planned(wanted):
            place = task.file.file_path.removeprefix("file://")
            read = [
                task.file.file_path,
                *sorted(deletes.file_path for deletes in task.delete_files),
            ]
            changed = max(added.get(path, 0) for path in read)
            rows = functools.partial(self._live_rows, task, wanted, types)
            facts = [READ_RULES, *read, str(wanted), str(self.table.schema())]
            if not self._is_whole and self._default is not None:
                facts.append(self._default)  # versions that did not look at it copied no row
            files.append(
                ScannedFile(place, task.file.file_size_in_bytes, changed, facts, read, types, rows)
            )
        return sorted(files, key=lambda file: file.place)

    def columns(self) -> tuple[InputColumn, ...]:
        """Return the table's columns without the day's.

        Raises:
            DeclarationError: A column cannot be enriched.
        """
        empty = pa.BufferOutputStream()
        names = [field.name for field in self.table.schema().fields if field.name != self.partition]
        try:
            pq.write_table(self.table.schema().select(*names).as_arrow().empty_table(), empty)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise DeclarationError(
                f"input: {self.root} has a type that is not read: {error_text(error)}."
            ) from error
        return tuple(read_columns(self.root, pq.read_metadata(pa.BufferReader(empty.getvalue()))))

    @property
    def _parted(self) -> tuple[Any, ...]:
        """The transforms that make a partition of a time."""
        return TIME_TRANSFORMS.get(str(self.every), ())

    @functools.cached_property
    def _day_column(self) -> NestedField:
        """The column of a row's day: a date, a text or a time."""
        table, by_days = self.table.schema(), self.every == "day"
        column = next((field for field in table.fields if field.name == self.partition), None)
        if column is not None:
            if isinstance(column.field_type, StringType) or (
                isinstance(column.field_type, DateType) and by_days
            ):
                return column
            found = f"{self.partition} in {self.root} is {column.field_type}"
        else:
            times = (
                field
                for field in self.table.spec().fields
                if isinstance(field.transform, self._parted)
            )
            source = next(
                (field.source_id for field in times if field.name == self.partition), None
            )
            if source is not None:
                return table.find_field(source)
            found = (
                f"{self.root} has no column {self.partition} (Input.partition), but "
                f"{', '.join(table.column_names)}"
            )
        raise DeclarationError(
            f"input: {found}; {day_column(self.every)}"
            + (f", or a partition field, the {self.every} of a time." if self._parted else ".")
        )

    @property
    def _is_whole(self) -> bool:
        """Whether the whole table is the only declared partition."""
        return (
            only_name(self.every) is not None
            and self.partition not in self.table.schema().column_names
        )

    def _day_filter(self, day: str) -> BooleanExpression:
        if self._is_whole:
            return AlwaysTrue()
        column = self._day_column
        term = Reference(self.table.schema().find_column_name(column.field_id) or column.name)
        if not isinstance(column.field_type, (TimestampType, TimestamptzType)):
            return EqualTo(term=term, value=literal(day))
        begin = day_begin(day, "UTC")  # as Iceberg's transforms of times
        if not isinstance(column.field_type, TimestamptzType):
            begin = begin.replace(tzinfo=None)
        end = begin + dt.timedelta(**{f"{self.every}s": 1}, microseconds=-1)  # may be the last time
        first, last = (literal(moment.isoformat()) for moment in (begin, end))
        return And(
            GreaterThanOrEqual(term=term, value=first), LessThanOrEqual(term=term, value=last)
        )

    def _planned(self, wanted: BooleanExpression | None = None) -> list[FileScanTask]:
        with _reading(self.root, self.table):
            scan = self.table.scan() if wanted is None else self.table.scan(wanted)
            return list(scan.plan_files())

    def _live_rows(
        self, task: FileScanTask, wanted: BooleanExpression, types: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield a data file's rows of the day that are not deleted, with the table's columns."""
        schema, names, condition = self.table.schema(), types.names, None
        with _reading(f"{task.file.file_path} of {self.root}", self.table):
            # files may lack a partition's column, and a filter on it would then find no row
            rows = task.residual if task.residual == AlwaysTrue() else wanted
            if rows != AlwaysTrue() and self._default is not None:
                # pyiceberg compares the default of a date or a time as if it were a number
                condition = expression_to_pyarrow(bind(schema, wanted, True), schema)
                names, rows = [*names, self._day_column.name], AlwaysTrue()
            scan = ArrowScan(self.table.metadata, self.table.io, schema.select(*names), rows)
            for batch in scan.to_record_batches([task]):
                found = pa.Table.from_batches([batch])
                found = found if condition is None else found.filter(condition)
                yield from found.select(types.names).cast(types).to_batches()

    def _times_of_files(self) -> dict[str, int]:
        """Return when each live file was added, in ns since the epoch.

        A file whose snapshot has expired is left out.
        """
        snapshots = {
            snapshot.snapshot_id: snapshot.timestamp_ms * 1_000_000
            for snapshot in self.table.snapshots()
        }
        return {
            entry.data_file.file_path: snapshots[entry.snapshot_id]
            for entry in self._entries
            if entry.snapshot_id in snapshots
        }

    @functools.cached_property
    def _entries(self) -> list[ManifestEntry]:
        """The live files, including files of deletes."""
        last = self.table.current_snapshot()
        with _reading(self.root):
            manifests = last.manifests(self.table.io) if last else ()
            return [
                entry
                for manifest in manifests
                for entry in manifest.fetch_manifest_entry(self.table.io)
            ]

    def rows_of_no_day(self) -> dict[str, int]:
        """Return the number of rows that no run reads, by the value that is no day, or null.

        Without a partition by the day only nulls are known. Rows deleted since count too, those of
        names that are not declared do not.
        """
        found: Counter[str] = Counter()
        if not self._is_whole:
            for entry in self._entries:
                if entry.data_file.content == DataFileContent.DATA:
                    value, rows = self._describe_dayless(entry.data_file)
                    if entry.snapshot_id in self._before_day_column:
                        default = self._default
                        is_read = default is not None and self._is_read(default)
                        value = "null" if default is None else repr(default)
                        rows = 0 if is_read else entry.data_file.record_count
                    found[f"{self.partition} = {value}"] += rows
        return {value: rows for value, rows in found.items() if rows}

    @functools.cached_property
    def _before_day_column(self) -> set[int]:
        """The snapshots older than the day's column, whose files have no number of its nulls."""
        column, schemas = self._day_column, self.table.schemas()
        return {
            snapshot.snapshot_id
            for snapshot in self.table.snapshots()
            if snapshot.schema_id in schemas
            and column.field_id not in schemas[snapshot.schema_id].field_ids
        }

    @property
    def _default(self) -> str | None:
        """The value of the day's column in the rows of files that lack it; None if that is null."""
        default = self._day_column.initial_default
        return None if default is None else str(default)

    def _is_read(self, value: str) -> bool:
        """Return whether a run reads the rows of a value, or leaves out a name not declared."""
        return not isinstance(self.every, str) or self._day_in(value) is not None

    def _describe_dayless(self, file: DataFile) -> tuple[str, int]:
        """Return the day column's value in a file, and how many of the rows no run reads."""
        column = self._day_column
        for place, field in enumerate(self.table.specs()[file.spec_id].fields):
            if (
                isinstance(field.transform, IdentityTransform)
                and field.source_id == column.field_id
            ):
                value = file.partition[place]
                text = (
                    "null"
                    if value is None
                    else field.transform.to_human_string(column.field_type, value)
                )
                if value is None:
                    return text, file.record_count
                return repr(text), 0 if self._is_read(text) else file.record_count
        return "null", (file.null_value_counts or {}).get(column.field_id, 0)

    def _last_day_in(self, file: DataFile) -> str | None:
        """Return the day by its partition, else by its statistics; None if neither has a day."""
        column = self._day_column
        for place, field in enumerate(self.table.specs()[file.spec_id].fields):
            known = isinstance(field.transform, (IdentityTransform, *self._parted))
            if known and field.source_id == column.field_id:
                return self._day_in(
                    field.transform.to_human_string(column.field_type, file.partition[place])
                )
        last = (file.upper_bounds or {}).get(column.field_id)
        if last is None or not isinstance(column.field_type, PrimitiveType):
            return None
        value: Any = from_bytes(column.field_type, last)
        return self._day_in(IdentityTransform().to_human_string(column.field_type, value))

    def _day_in(self, text: str) -> str | None:
        """Return the day in a value as Iceberg writes it, or None.

        Args:
            text: A day, an hour or a time: 2013-01-10, 2013-01-10-05, 2013-01-10T05:59:59. A run
                reads a text only where it is equal to the day.
        """
        if isinstance(self._day_column.field_type, StringType):
            return text if is_day(text, self.every) else None
        named = (text, text[:10], f"{text[:10]}T{text[11:13]}Z")
        return next((name for name in named if is_day(name, self.every)), None)


def catalog_config(where: str, name: str) -> dict[str, Any]:
    """Return pyiceberg's configuration of the catalog of `catalog.namespace.table`.

    Raises:
        DeclarationError: The catalog is not configured.
    """
    catalog = name.partition(".")[0]
    configured = Config().get_catalog_config(catalog)
    if configured is None:
        raise DeclarationError(
            f"{where}: {name} is in a catalog {catalog!r}, which is not configured here; set "
            f"PYICEBERG_CATALOG__{catalog.upper()}__URI in the environment, or name it in "
            ".pyiceberg.yaml."
        )
    return dict(configured)


@contextlib.contextmanager
def _reading(source: str, table: Table | None = None) -> Iterator[None]:
    """Turn each error, also a transient one, into DeclarationError: catalogs raise many kinds."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        cure, widened = "", [] if table is None or isinstance(error, OSError) else _widened(table)
        if "equality deletes" in str(error):
            cure = "; rewrite its data files, which applies the deletes"
        elif widened:
            cure = (
                f". pyiceberg reads no file from before {', '.join(widened)} was widened from date "
                "to a time; rewrite the table's data files"
            )
        raise DeclarationError(
            f"input: {source} cannot be read: {error_text(error)}{cure}."
        ) from error


def _widened(table: Table) -> list[str]:
    """Return the columns that are times and were dates."""
    dates = {
        field.field_id
        for schema in table.schemas().values()
        for field in schema.fields
        if isinstance(field.field_type, DateType)
    }
    return [
        field.name
        for field in table.schema().fields
        if field.field_id in dates and not isinstance(field.field_type, DateType)
    ]
