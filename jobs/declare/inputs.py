"""The declaration of an input: each day's files, or the table that has them. Free of Spark."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from jobs.declare.answers.answer_casts import AnswerColumn
from jobs.declare.answers.answer_types import read_ddl
from jobs.declare.values.calendar import FRAME, Every
from jobs.declare.values.fingerprint import NOT_IN_FINGERPRINT, WHERE_DECLARED
from jobs.declare.values.places import ICEBERG_NAME, require_place
from jobs.declare.values.type_checks import require_types
from jobs.errors import DeclarationError

InputFormat = Literal["parquet", "csv", "json", "delta", "iceberg"]
TABLES: tuple[InputFormat, ...] = ("delta", "iceberg")  # formats whose files are named by a table


@dataclass(frozen=True, kw_only=True)
class Input:
    """A folder per day, `<path>/<partition>=<day>/`, a Delta table partitioned by the day, or an
    Iceberg table.

    The files of a day may differ: a column that a file lacks is null in its rows, and the wider of
    two compatible types is read. Incompatible types in a column are refused before any call. From a
    table, a run reads the last version or snapshot, and records its number.

    Attributes:
        path: A folder, local or on a disk that driver and executors share, or a URL of an object
            store; empty for an Iceberg table.
        partition: The name in the folders' names, the partition column of the Delta table, or the
            day's column or partition field of the Iceberg table; also the day's column in the
            published table.
        row_id: Columns that identify a row in evidence; by default source file and row number.
        asset_key: Key of the Dagster asset that writes these files, if any: `["raw", "orders"]`.
        format: "parquet", "csv" (with a header), "json" (an object per line), "delta" or "iceberg";
            the published table of another enrichment is a Delta table.
        schema: The columns to read from CSV or JSON, which do not name their types, in Spark's DDL.
        table: With format "iceberg", `catalog.namespace.table`; pyiceberg's configuration names the
            catalog.
        every: "day"; "hour", an hour of UTC named as 2013-01-10T05Z; or names of partitions, as
            ["eu", "us"]. Whatever is documented for a day then holds for each hour or named
            partition.
        skip_change_commits: With format "delta", for streams: skip commits that delete or change
            rows of a day, as Spark's Delta source does with its option skipChangeCommits. By
            default such a commit ends the stream. The day's run brings the changed rows.
        rows: "all"; or "changed", with names of partitions and `row_id`: then a run enriches rows
            that are new, that changed since the published version, or whose answer is past its
            `ttl`, and removes rows that are gone.
    """

    path: str = ""
    partition: str = "date"
    row_id: Sequence[str] = ()
    asset_key: Sequence[str] = field(default=(), metadata=NOT_IN_FINGERPRINT)
    format: InputFormat = field(default="parquet", metadata=WHERE_DECLARED)
    schema: str = field(default="", metadata=WHERE_DECLARED)
    table: str = field(default="", metadata=WHERE_DECLARED)
    every: Every = field(default="day", metadata=WHERE_DECLARED)
    skip_change_commits: bool = field(default=False, metadata=NOT_IN_FINGERPRINT)
    rows: Literal["all", "changed"] = field(default="all", metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_types(self, "input", leave=["row_id"])  # the enrichment checks it and adds its name
        self._check_every()
        self._check_rows()
        self._check_schema()
        self._check_place()
        if not re.fullmatch(r"[^\W\d]\w*", self.partition):  # others have a meaning in SQL or paths
            raise DeclarationError(
                f"input: partition is {self.partition!r}; it must be letters, digits and _, not a "
                "digit first: folders and a column are named after it."
            )

    def _check_every(self) -> None:
        if isinstance(self.every, str):
            right = self.every in ("day", "hour")
        else:
            named = all(re.fullmatch(r"[A-Za-z][\w.-]*", name, re.ASCII) for name in self.every)
            different = {name.lower() for name in self.every} - {FRAME}
            right = named and 0 < len(different) == len(self.every)
        if not right:
            raise DeclarationError(
                f"input: every is {self.every!r}; it must be day, hour, or names of partitions "
                "that differ in more than case. A name begins with a letter, has only letters, "
                f"digits, _, . and -, and is not {FRAME}."
            )

    def _check_rows(self) -> None:
        if self.only_changed and (isinstance(self.every, str) or not self.row_id):
            raise DeclarationError(
                f'input: rows is "changed", row_id {self.row_id!r}, and every {self.every!r}; it '
                "needs the columns "
                'that identify a row, and a table without days, such as row_id=["customer_id"], '
                'every=["customers"].'
            )

    def _check_place(self) -> None:
        if self.skip_change_commits and self.format != "delta":
            raise DeclarationError(
                "input: skip_change_commits is for a Delta table, whose commits it is about, and "
                f"format is {self.format!r}. Leave it out."
            )
        if self.format != "iceberg" and not self.table:
            require_place("input", self.path)
        elif self.format != "iceberg" or self.path or not ICEBERG_NAME.fullmatch(self.table):
            raise DeclarationError(
                f"input: format is {self.format!r}, and table {self.table!r}: an Iceberg table, "
                "and nothing else, is "
                'declared by its name alone, such as table="catalog.namespace.table", without a '
                "path."
            )

    def _check_schema(self) -> None:
        if (self.format in ("csv", "json")) != bool(self.schema):
            raise DeclarationError(
                f"input: schema is {self.schema!r}, and format {self.format!r}: CSV and JSON need "
                "the columns to read, "
                'such as "order_id BIGINT, at TIMESTAMP"; the other formats have their own.'
            )
        for column in self.columns:
            if self.format == "csv" and pa.types.is_nested(column.arrow_type):
                raise DeclarationError(
                    f"input: schema: {column.name}: CSV holds no {column.spark_type}."
                )
            if column.name.lower() == self.partition.lower():
                raise DeclarationError(
                    f"input: schema: {column.name!r} is the column of the day, which the folders "
                    "name. Leave it out."
                )

    @property
    def columns(self) -> tuple[AnswerColumn, ...]:
        """The columns of `schema`; empty for a format whose files name their columns."""
        return read_ddl(self.schema, "input: schema") if self.schema else ()

    @property
    def only_changed(self) -> bool:
        """Whether a run enriches only changed rows."""
        return self.rows == "changed"

    @property
    def place(self) -> str:
        """The path, or the name of the table."""
        return self.table or self.path

    def folder(self, day: str) -> str:
        return f"{self.path.rstrip('/')}/{self.partition}={day}"
