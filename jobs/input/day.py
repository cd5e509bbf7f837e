"""The input of a day: its files, their rows and their common columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.declare.finding.extras import require_extra
from jobs.declare.inputs import TABLES
from jobs.errors import DeclarationError, NoInput, naming
from jobs.input.day_folder import DayFolder, days_there, find_in_folder, nearest_to
from jobs.input.same_values import ARROW_TYPES, changes_values, only_in_spark, refuse_old_dates
from jobs.input.staged_files import FOLDER as STAGED
from jobs.input.staged_files import is_copy, staged, typed_copy
from jobs.input.table_formats import refuse_table_formats
from jobs.input.types import (
    SPARK_TYPES,
    InputColumn,
    in_both,
    in_table,
    needs_types,
    read_columns,
    with_types,
)
from jobs.schema.columns import arrow_schema, nullable
from jobs.storage import parquet_files, stored_files
from jobs.storage.urls import absolute, below, for_spark, is_url
from jobs.storage.work_folders import work_place
from jobs.wording import counted, did_you_mean, listed, one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from jobs.declare.enrichment import Enrichment
    from jobs.declare.inputs import Input
    from jobs.input.delta import DeltaInput
    from jobs.input.iceberg import IcebergInput
    from jobs.storage.stored_files import StoredFile

FOOTERS_AT_ONCE = 32  # more than cores: each waits for a shared disk
BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
UNBOUNDED = 2**31 - 1  # which alone Spark does not compare with
NARROW = 4096  # bytes of a row: 1,000 of them, a batch, are far below Spark's 64 MB
FileFacts = tuple[tuple[str, int, int], ...]  # path, bytes, ns since the epoch


@dataclass(frozen=True)
class InputDay:
    """The input of a day, from its files' footers.

    A column that a file lacks is null in its rows.

    Attributes:
        files: The files with rows, or a single file if none has rows.
        rows: The number of rows.
        columns: The columns of all files, in the order of first occurrence.
        row_bytes: Average bytes of a row in the row group with the largest rows.
        unlike: `only_in_spark` as far as the footers tell, whatever the dates.
        has_old_dates: Whether dates or times before 1900, if there are any, are of an old calendar.
    """

    files: tuple[str, ...]
    rows: int
    columns: tuple[InputColumn, ...]  # of all files, in the order of first occurrence
    alike: bool  # all files have these columns and types
    version: int | None = None  # of the Delta table, or snapshot of the Iceberg table
    table: str = ""  # id of that table
    row_bytes: float = math.inf
    unlike: str = ""
    has_old_dates: bool = False
    copied: bool = False  # the files are copies, whose names tell what they are copied from
    unread: tuple[str, ...] = ()  # other entries, and values of no day
    groups: tuple[tuple[int, ...], ...] = ()  # of each file: the rows of its row groups
    bytes: int = 0  # of all columns in the row groups, not compressed
    files_version: str = ""  # of the files that were found, also those without rows

    @property
    def unread_clause(self) -> str:
        """A clause, after a semicolon, that names what is not read; empty if all is read."""
        return f"; not read: {listed(self.unread)}" if self.unread else ""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.kind) for column in self.columns])

    @property
    def facts(self) -> FileFacts:
        """Path, size and time of each file; without the time of a copy, which is its last use."""
        found = map(stored_files.StoredFile.at, self.files)
        return tuple(
            (file.place, file.size, 0 if self.copied or is_copy(file.place) else file.changed_ns)
            for file in found
        )

    @property
    def infer_in_spark(self) -> bool:
        """Whether Spark must infer the types.

        It reads some layouts of nested columns differently from Arrow, and takes the types of a
        single file for all.
        """
        return self.alike and any(
            column.has_old_layout and not column.spark_field for column in self.columns
        )

    @property
    def only_in_spark(self) -> str:
        """What Arrow may read from the files otherwise than Spark, or empty."""
        return self.unlike_but_dates or ("what is of an old calendar" if self.has_old_dates else "")

    @cached_property
    def unlike_but_dates(self) -> str:
        """A column that Arrow reads otherwise than Spark, if no date is before 1900; or empty."""
        types = self.spark_types()
        if self.unlike or types is None:
            return self.unlike
        from pyspark.errors import PySparkException  # slow to load, only for runs

        for field, column in zip(types, self.columns, strict=True):
            try:
                kinds = arrow_schema(type(types)([field])).types
            except (PySparkException, ValueError):  # Arrow has no such type
                kinds = []
            if kinds != [column.kind]:
                return f"{column.name!r} ({field.dataType.simpleString()})"
        return ""

    def spark_types(self) -> StructType | None:
        """Return the types for Spark's read; None where Spark infers them."""
        if self.infer_in_spark:
            return None
        from pyspark.sql.pandas.types import from_arrow_type  # slow to load, only for runs
        from pyspark.sql.types import StructField, StructType

        fields = []
        for column in self.columns:
            if column.spark_field:
                field = StructField.fromJson(column.spark_field | {"name": column.name})
            else:
                field = StructField(
                    column.name, from_arrow_type(column.kind, prefer_timestamp_ntz=True)
                )
            fields.append(field)
        return nullable(StructType(fields))

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows.

        Passes the types to Spark, which would otherwise need a job to read them from a file, and
        would lose columns that this file lacks. Spark measures a batch for Python after each row,
        in all columns: a fifth of its work. It need not where rows are narrow on average, because a
        batch also has a bound in rows.
        """
        if self.row_bytes <= NARROW:
            spark.conf.set(BYTES_PER_BATCH, UNBOUNDED)
        elif spark.conf.get(BYTES_PER_BATCH, None) == str(UNBOUNDED):  # of an earlier day
            spark.conf.unset(BYTES_PER_BATCH)
        types = self.spark_types()
        reader = spark.read if types is None else spark.read.schema(types)
        return reader.parquet(*(for_spark(absolute(file)) for file in self.files))


def find_input(
    enrichment: Enrichment, day: str, published: pa.Schema | None = None, *, elsewhere: bool = False
) -> InputDay:
    """Find the files of a day.

    Args:
        enrichment: The declaration.
        day: The day of its input.
        published: The columns of the published table, whose types the day's columns get where their
            values fit.
        elsewhere: Whether tasks run on other machines. They read Parquet files on a store where
            these are, and copies of other files lie on the table's store.

    Raises:
        NoInput: The day has no file.
        DeclarationError: Its files do not fit together, or are of a table that is not declared, or
            a table cannot be read.
    """
    declared = enrichment.input
    with naming(enrichment.name):
        table = _table(declared) if declared.format in TABLES else None
        found, unread = (
            find_in_folder(declared, day) if table is None else _find_in_table(table, day)
        )
        copied = declared.format not in ("parquet", "delta") or (
            is_url(declared.path) and not elsewhere
        )
        on_store = elsewhere and is_url(enrichment.output.path)
        work = work_place(enrichment.output.path, on_store=on_store)
        folder = below(work, STAGED, f"{declared.partition}={day}")
        if copied:
            files = staged(found, declared, folder, hidden=bool(enrichment.pii))
        else:
            files = [file.place for file in found]
        if table is None:
            of_day = of_files(files, published, table=enrichment.output.path, folder=folder)
        else:
            of_day = of_table(files, table, published, enrichment.output.path)
            if not of_day.rows:
                raise _without_rows(table, day)
        return replace(
            of_day,
            copied=copied,
            unread=tuple(unread),
            files_version=stored_files.version_of(found),
        )


def files_in(declared: Input, day: str) -> list[StoredFile]:
    """Return the files of a day by name, maybe none; of a table, those of its last version.

    Raises:
        DeclarationError: A table or an object store cannot be read.
    """
    if declared.format in TABLES:
        try:
            return _table(declared).files(day)
        except NoInput:
            return []
    return list(DayFolder.of(declared, day).files)


def last_day(declared: Input) -> str:
    """Return the last day, or hour, of the input.

    Raises:
        DeclarationError: The input has no day.
    """
    if declared.format in TABLES:
        if last := _table(declared).last_day:
            return last
        raise DeclarationError(f"input: {declared.place} has no rows of any day.")
    if last := max(days_there(declared), default=None):
        return last
    prefix, root = f"{declared.partition}=", declared.path.rstrip("/")
    refuse_table_formats(root, root)
    if not is_url(root) and not Path(root).is_dir():
        above = Path(root).parent
        beside = [str(above / name) for name in stored_files.folders_in(str(above))]
        raise DeclarationError(f"input: there is no folder {root}.{did_you_mean(root, beside)}")
    meant = nearest_to(declared, "2013-01-10")
    raise DeclarationError(
        f"input: {root} has no folder of a day, such as {prefix}2013-01-10.{meant}"
    )


def _table(declared: Input) -> DeltaInput | IcebergInput:
    if declared.format == "iceberg":
        require_extra("iceberg", 'Input(format="iceberg")')
        from jobs.input.iceberg import IcebergInput

        return IcebergInput.at(declared.table, declared.partition, declared.every)
    from jobs.input.delta import DeltaInput  # deltalake, which definitions load without

    return DeltaInput.at(declared.path, declared.partition, every=declared.every)


def _find_in_table(
    table: DeltaInput | IcebergInput, day: str
) -> tuple[Sequence[StoredFile], Sequence[str]]:
    files = table.files(day)
    if not files:
        raise _without_rows(table, day)
    return files, [
        f"{counted(rows, 'row')} with {name}" for name, rows in table.rows_of_no_day().items()
    ]


def of_table(
    files: Sequence[str | Path],
    table: DeltaInput | IcebergInput,
    published: pa.Schema | None = None,
    place: str = "",
) -> InputDay:
    """Return the input in these files, with their table's columns in the published types.

    Raises:
        DeclarationError: A file cannot be read, or a column cannot be enriched.
    """
    footers = _footers(list(map(str, files)))
    read = {file: footer for file, footer in footers.items() if footer.num_rows}
    known = {field.name: field.type for field in published or ()}
    columns = tuple(
        in_table(column, known.get(column.name, column.kind), place) for column in table.columns()
    )
    return InputDay(
        tuple(read), columns=columns, alike=False, version=table.version, table=table.id,
        unlike=_unlike(read.values(), columns),
        has_old_dates=any(map(parquet_files.has_old_calendar, read.values())),
        **group_facts([*read.values()]),
    )  # fmt: skip


def _without_rows(table: DeltaInput | IcebergInput, day: str) -> NoInput:
    version = f"{table.version_name} {table.version}"
    return NoInput(
        f"input: {table.root} has no rows of {day} in {version}; nothing can be enriched."
    )


def of_files(
    files: Sequence[str | Path],
    published: pa.Schema | None = None,
    *,
    table: str = "",
    folder: str | None = None,
) -> InputDay:
    """Return the input in these files.

    A file without rows is ignored, unless none has rows, because its writer often knew no types.

    Args:
        files: The files of a day.
        published: The columns of the published table, whose types the day's columns get where their
            values fit.
        table: The table's place.
        folder: For copies of files with columns that are null throughout and were written without a
            type.

    Raises:
        DeclarationError: The files do not fit together, or such a file exists and no folder is
            given.
    """
    footers = _footers(list(map(str, files)))
    read = [file for file, footer in footers.items() if footer.num_rows] or list(footers)[:1]
    columns: dict[str, InputColumn] = {}
    by_facts: dict[tuple[str, bytes | None], list[InputColumn]] = {}
    by_file: dict[str, list[InputColumn]] = {}
    for file in read:
        footer = footers[file]
        facts = (
            str(footer.schema).partition("\n")[2],
            (footer.metadata or {}).get(SPARK_TYPES.encode()),
        )
        if facts not in by_facts:
            by_facts[facts] = list(read_columns(file, footer))
            _join(columns, by_facts[facts])
        by_file[file] = by_facts[facts]
    alike = len(by_facts) == 1
    for field in published or ():
        column = columns.get(field.name.lower())
        if column is not None and column.name == field.name:
            columns[field.name.lower()] = in_table(column, field.type, table)
            alike &= columns[field.name.lower()] is column
    if copies := _copies_with_types(by_file, columns, folder):
        return of_files([copies.get(file, file) for file in read], published, table=table)
    found, of_read = tuple(map(with_types, columns.values())), [footers[file] for file in read]
    return InputDay(
        tuple(read), columns=found, alike=alike,
        unlike=_unlike(of_read, found),
        has_old_dates=any(map(parquet_files.has_old_calendar, of_read)),
        **group_facts(of_read),
    )  # fmt: skip


def _copies_with_types(
    by_file: Mapping[str, Sequence[InputColumn]],
    columns: Mapping[str, InputColumn],
    folder: str | None,
) -> dict[str, str]:
    """Copy the files with columns that Spark would read with another type than the day's; return
    the places of the copies by file.
    """
    copies = {}
    for file, of_file in by_file.items():
        untyped = [column for column in of_file if column.untyped]
        wrong = [
            column
            for column in untyped
            if needs_types(column.kind, columns[column.name.lower()].kind)
        ]
        if wrong:
            copies[file] = _with_types(file, wrong, of_file, columns, folder)
    return copies


def _with_types(
    file: str,
    wrong: Sequence[InputColumn],
    of_file: Sequence[InputColumn],
    columns: Mapping[str, InputColumn],
    folder: str | None,
) -> str:
    """Copy a file so that these columns have their types; without a folder (a stream), refuse."""
    if folder is None:
        bare, typed = wrong[0], columns[wrong[0].name.lower()]
        raise DeclarationError(
            f"input: {replace(bare, file=file).without_type}. Write it with its type, {typed.kind} "
            f"in {typed.file}."
        )
    refuse_old_dates([file])
    types = {column.name: columns[column.name.lower()].kind for column in wrong}
    return typed_copy(file, types, folder, {column.name: column.kind for column in of_file})


def _unlike(footers: Iterable[pq.FileMetaData], columns: Sequence[InputColumn]) -> str:
    for column in columns:
        if changes_values(column.spark_field):
            return f"{column.name!r} (whose values Spark changes as it reads them)"
    different = {
        (str(footer.schema).partition("\n")[2], (footer.metadata or {}).get(ARROW_TYPES)): footer
        for footer in footers
    }
    types = {column.name.lower(): column.kind for column in columns}
    return only_in_spark(different.values(), types)


def group_facts(footers: Sequence[pq.FileMetaData]) -> dict[str, Any]:
    """Return the fields of an InputDay that tell the rows of its files."""
    found = [
        [footer.row_group(number) for number in range(footer.num_row_groups)] for footer in footers
    ]
    groups = [group for of_file in found for group in of_file if group.num_rows]
    return {
        "rows": sum(group.num_rows for group in groups),
        "row_bytes": max((group.total_byte_size / group.num_rows for group in groups), default=0.0),
        "groups": tuple(tuple(group.num_rows for group in of_file) for of_file in found),
        "bytes": sum(group.total_byte_size for group in groups),
    }


def _footers(files: Sequence[str]) -> dict[str, pq.FileMetaData]:
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        return dict(zip(files, pool.map(_footer, files), strict=True))


def _footer(file: str) -> pq.FileMetaData:
    try:
        return parquet_files.read_plain_footer(file)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        cause = one_line(str(error)).rstrip(".")
        raise DeclarationError(
            f"input: {file} is not a readable Parquet file: {cause}. Write it again, or remove it."
        ) from error


def _join(columns: dict[str, InputColumn], of_file: Sequence[InputColumn]) -> None:
    """Merge a file's columns by lower-case name: Spark does not distinguish `Id` from `id`."""
    by_lower_name: dict[str, str] = {}
    for column in of_file:
        name = column.name.lower()
        if name in by_lower_name:
            raise DeclarationError(
                f"input: {by_lower_name[name]!r} and {column.name!r} in {column.file} "
                "differ only in case, which Spark ignores. Rename one."
            )
        by_lower_name[name] = column.name
        columns[name] = in_both(columns[name], column) if name in columns else column
