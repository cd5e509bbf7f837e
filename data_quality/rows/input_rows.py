"""Reads rows of a run's input files again, with Spark's column types."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_quality.rows.task_rows import Places, TaskRows
from jobs.arrow_values import conform, is_unambiguous, one_chunk
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW, arrow_schema
from jobs.schema.records import DayFacts
from jobs.storage.parquet_files import has_old_calendar, open_parquet, read_footer
from jobs.storage.urls import for_spark, path_from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class NeedsSpark(Exception):  # noqa: N818  # what is missing
    """Only Spark can evaluate or read something, and this is a task; the driver then does it."""


class InputRows:
    """The rows of the input files.

    Spark reads what Arrow would read otherwise than Spark: nested columns of old layouts, and files
    with dates of the old calendar. Arrow, which is faster, reads the rest.
    """

    def __init__(self, spark: SparkSession | None, facts: DayFacts) -> None:
        self._spark, self._facts = spark, facts
        self._paths = [path_from_spark(file) for file in facts.input_files]

    @cached_property
    def counts(self) -> Mapping[str, int]:
        return {path: read_footer(path).num_rows for path in self._paths}

    def for_tasks(self) -> InputRows:
        """Return a copy without Spark, for tasks."""
        _ = self.counts, self.columns  # read once, here: all copies have them
        copied = copy.copy(self)
        copied._spark = None  # noqa: SLF001  # a copy of this class
        return copied

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    @cached_property
    def spark_types(self) -> StructType:
        """Column types as the run recorded them, else as Spark infers them."""
        from pyspark.sql.types import StructType

        if self._facts.input_types:
            return StructType.fromJson(json.loads(self._facts.input_types))
        if not self._paths:
            return StructType()
        assert self._spark is not None
        return self._spark.read.parquet(*map(for_spark, self._paths)).schema

    @cached_property
    def columns(self) -> pa.Schema:
        return arrow_schema(self.spark_types)

    def read(self, path: str, first: int, last: int) -> pa.Table:
        """Read the rows `first` to `last`, both inclusive, in their order."""
        if self._facts.input_types:  # without them only Spark knows which types it inferred
            try:
                return self._by_arrow(path, first, last)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                pass
        return self._by_spark(path, first, last)

    def _by_arrow(self, path: str, first: int, last: int) -> pa.Table:
        """Read with Arrow. Raises an Arrow error if Arrow would read the file unlike Spark."""
        with open_parquet(path) as file:
            row, groups, first_read = 0, [], 0
            for number in range(file.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                if row + count <= first:
                    first_read += count
                elif row <= last:
                    groups.append(number)
                row += count
            table = file.read_row_groups(groups).slice(first - first_read, last - first + 1)
            if has_old_calendar(file.metadata) and not all(map(is_unambiguous, table.columns)):
                raise pa.ArrowNotImplementedError("its old dates are of another calendar")
        by_lower_name = {name.lower(): one_chunk(table[name]) for name in table.column_names}
        return pa.table(
            [
                conform(by_lower_name[field.name.lower()], field.type)
                if field.name.lower() in by_lower_name
                else pa.nulls(len(table), field.type)
                for field in self.columns
            ],
            schema=self.columns,
        )

    def _by_spark(self, path: str, first: int, last: int) -> pa.Table:
        from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias

        if self._spark is None:
            raise NeedsSpark
        row = F.col("_metadata.row_index")
        frame = self._spark.read.schema(self.spark_types).parquet(for_spark(path))
        rows = frame.where(row.between(first, last)).select("*", row.alias("__row")).toArrow()
        return rows.take(pc.sort_indices(rows["__row"])).drop_columns(["__row"])


def with_input(rows: TaskRows, source: InputRows) -> list[tuple[Places, pa.Table]]:
    """Return, by input file, the places of rows that come from it, and those input rows."""
    return rows.once("with input", lambda: list(_with_input(rows, source)))


def _with_input(rows: TaskRows, source: InputRows) -> Iterator[tuple[Places, pa.Table]]:
    numbers = rows.numbers(SOURCE_ROW)
    for uri, of_file in by_file(rows).items():
        path = path_from_spark(uri) if uri is not None else ""
        places = of_file[(numbers[of_file] >= 0) & (numbers[of_file] < source.counts.get(path, 0))]
        if not len(places):
            continue
        wanted = numbers[places].astype(np.int64)
        first, last = int(wanted.min()), int(wanted.max())
        given = source.read(path, first, last)
        # consecutive rows need no copy
        is_consecutive = len(wanted) == len(given) and bool((np.diff(wanted) == 1).all())
        yield places, given if is_consecutive else given.take(pa.array(wanted - first))


def by_file(rows: TaskRows) -> dict[str | None, Places]:
    """Return the places of rows by their source file, as Spark names it; None: without one."""

    def made() -> dict[str | None, Places]:
        column = rows.column(SOURCE_FILE)
        column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)
        names = [*column.dictionary.to_pylist(), None]
        return {names[code]: np.flatnonzero(codes == code) for code in np.unique(codes)}

    return rows.once("by file", made)
