"""A day of a Delta table that others write: a version's live files, with the table's columns."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from jobs.declare.values.calendar import Every, day_column, is_day, only_name
from jobs.errors import DeclarationError, NoInput
from jobs.input.file_rows import naming_unread
from jobs.input.types import InputColumn, with_leaves
from jobs.storage.parquet_files import read_footer
from jobs.storage.stored_files import StoredFile, error_text, files_in, folders_in
from jobs.storage.urls import is_url, path_from_spark

VECTORS = "deletionVectors"
# features that may be required; any other changes which rows or values the files stand for
READ = {
    VECTORS,
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
# delta-rs requires it of each table with deletion vectors, also without a variant
VARIANTS = {"variantType", "variantType-preview"}
IS_VARIANT = re.compile(r'[tT]ype":\s*"variant"')  # a column, field, element or value
MAPPING = "delta.columnMapping.mode"
OTHERWISE = "or write the rows of each day to Parquet files in a folder of their own."


@dataclass(frozen=True)
class DeltaInput:
    """A version of a Delta table, partitioned by the day or the hour.

    A table that is a single named partition may have no partitions.

    Attributes:
        table: The opened table.
        root: Its folder, or the URL of a store.
        partition: The column of the day.
        every: The declared days, hours or names.
    """

    table: DeltaTable
    root: str
    partition: str
    every: Every
    version_name: ClassVar = "version"

    @classmethod
    def at(
        cls, path: str, partition: str, version: int | None = None, *, every: Every = "day"
    ) -> Self:
        """Open a version of the table, by default the last.

        Raises:
            NoInput: No table exists.
            DeclarationError: The version does not exist, Parquet files lie without a log, the table
                is not partitioned by the day alone, or Spark's Parquet reader would read its files
                otherwise than Delta does.
        """
        root = path_from_spark(path.rstrip("/"))
        try:
            if not DeltaTable.is_deltatable(path):
                names = [file.name for file in files_in(root)] + folders_in(root)
                if any(name.endswith(".parquet") or "=" in name for name in names):
                    raise DeclarationError(
                        f'input: {root} is not a Delta table, and Input(format="delta") says it is '
                        "one."
                    )
                raise NoInput(f"input: there is no Delta table at {root}; nothing can be enriched.")
            opened = cls(DeltaTable(path, version=version), root, partition, every)
            opened._refuse_what_is_not_read()
        except (DeltaError, OSError, ValueError) as error:
            if feature := unknown_feature(error):
                raise _not_read(root, feature) from error
            named = f"version {version} of {root}" if version is not None else root
            raise DeclarationError(
                f"input: {named} cannot be read: {error_text(error)}."
            ) from error
        return opened

    @property
    def version(self) -> int:
        return self.table.version()

    @property
    def id(self) -> str:
        """The id of the table; another table at its place has another id."""
        return str(self.table.metadata().id)

    @property
    def last_day(self) -> str | None:
        return max(self.days(), default=None)

    def days(self) -> list[str]:
        if self._is_whole:
            name = only_name(self.every)
            return [name] if name and self.table.file_uris() else []
        days = (str(partition[self.partition]) for partition in self.table.partitions())
        return sorted(day for day in days if is_day(day, self.every))

    def rows_of_no_day(self) -> dict[str, int]:
        """Return the rows that no run reads: their number by the value that is no day."""
        found: Counter[str] = Counter()
        if not self._is_whole:
            for action in self._actions.select(
                [f"partition.{self.partition}", "num_records", "path"]
            ).to_pylist():
                day = action[f"partition.{self.partition}"]
                if day is None or (
                    isinstance(self.every, str) and not is_day(str(day), self.every)
                ):
                    value = "null" if day is None else repr(str(day))
                    found[f"{self.partition} = {value}"] += self._count_rows(action)
        return found

    def _count_rows(self, action: Mapping[str, Any]) -> int:
        """Return the rows of a file, also if its writer did not count them in the log."""
        rows: int | None = action["num_records"]
        if rows is None:
            place = self.place(action["path"])
            with naming_unread(place):
                rows = read_footer(place).num_rows
        return rows

    @cached_property
    def _actions(self) -> pa.Table:
        return pa.table(self.table.get_add_actions(flatten=True))

    def files(self, day: str) -> list[StoredFile]:
        """Return the live files of a day, by path.

        Raises:
            DeclarationError: A vector deletes rows of a file, or cannot be read.
        """
        actions = self._actions
        if not self._is_whole:
            actions = actions.filter(
                pc.equal(actions[f"partition.{self.partition}"].cast(pa.string()), day)
            )
        files = sorted(map(self._file, actions.to_pylist()), key=lambda file: file.place)
        deleted = {os.path.realpath(self.place(uri)) for uri in files_with_vectors(self.table)}
        if marked := next(
            (file for file in files if os.path.realpath(file.place) in deleted), None
        ):
            raise DeclarationError(
                f"input: {marked.place} has a deletion vector, which marks rows of the file as "
                f"deleted; purge them (REORG TABLE ... APPLY (PURGE)), {OTHERWISE}"
            )
        return files

    def columns(self) -> tuple[InputColumn, ...]:
        """Return the table's columns without the day's.

        A column that a file lacks is null in its rows.
        """
        fields = pa.schema(self.table.schema().to_arrow())
        return tuple(
            InputColumn(
                field.name, with_leaves(field.type), self.root, untyped=False, spark_field=None
            )
            for field in fields
            if field.name != self.partition
        )

    def place(self, name: str) -> str:
        """Return the place of a file.

        Args:
            name: Its name in the log: relative to the table, or a URL or path where a clone shares
                the files of another table.
        """
        name = unquote(re.sub("^file:/+", "/", name))  # Spark writes file:/x, others file:///x
        return name if is_url(name) or name.startswith("/") else f"{self.root}/{name}"

    @property
    def _is_whole(self) -> bool:
        """Whether all its rows are of the only partition that is declared."""
        return only_name(self.every) is not None and not self.table.metadata().partition_columns

    def _file(self, action: dict[str, Any]) -> StoredFile:
        return StoredFile(
            self.place(action["path"]),
            action["size_bytes"],
            action["modification_time"] * 1_000_000,
        )

    def _refuse_what_is_not_read(self) -> None:
        mapping = self.table.metadata().configuration.get(MAPPING, "none")
        if mapping != "none":
            raise DeclarationError(
                f"input: {self.root} has a column mapping ({MAPPING} is {mapping!r}): its files "
                f"name columns otherwise than the table; set it to none, {OTHERWISE}"
            )
        read = READ | {"columnMapping"}
        if not IS_VARIANT.search(self.table.schema().to_json()):
            read |= VARIANTS
        if unknown := sorted(set(self.table.protocol().reader_features or ()) - read):
            raise _not_read(self.root, unknown[0])
        partitions = self.table.metadata().partition_columns
        if self._is_whole:
            if any(
                field.name.lower() == self.partition.lower() for field in self.table.schema().fields
            ):
                raise DeclarationError(
                    f"input: {self.root} is not partitioned, and its column {self.partition!r} has "
                    "the name of the published table's partition; choose another name for that "
                    "(Input.partition)."
                )
            return
        if partitions != [self.partition]:
            raise DeclarationError(
                f"input: {self.root} is partitioned by {', '.join(partitions) or 'nothing'}; it "
                f"must be by {self.partition} alone, the column of the day (Input.partition)."
            )
        kind = next(
            field.type for field in self.table.schema().fields if field.name == self.partition
        )
        if kind != PrimitiveType("string") and (
            kind != PrimitiveType("date") or self.every != "day"
        ):
            raise DeclarationError(
                f"input: {self.partition} in {self.root} is {kind.type}; {day_column(self.every)}."
            )


def _not_read(root: str, feature: str) -> DeclarationError:
    return DeclarationError(
        f"input: {root} has the Delta feature {feature}, which Tidegate does not read; drop the "
        f"feature, {OTHERWISE}"
    )


def unknown_feature(error: Exception) -> str | None:
    """Return the feature of a table for which deltalake does not open it; None if it is another
    error.
    """
    named = re.search(r"Feature '([^']+)' is not supported|(catalog-managed) table", str(error))
    return named and (named[1] or "catalogManaged")


def files_with_vectors(table: DeltaTable) -> list[str]:
    """Return the URIs of the live files of which a deletion vector marks rows as deleted.

    Raises:
        DeclarationError: A vector cannot be read.
    """
    if VECTORS not in (table.protocol().reader_features or ()):
        return []
    try:
        uris: list[str] = pa.table(table.deletion_vectors())["filepath"].to_pylist()
    except DeltaError as error:
        raise DeclarationError(
            f"a deletion vector of the Delta table {table.table_uri} cannot be read: "
            f"{error_text(error)}."
        ) from error
    return uris
