"""Finds a day's distinct keys, each with its number of rows and a row of it.

If Arrow and Spark agree on the types of a key's parts, the driver evaluates the keys of up to
MOST_ROWS rows by Arrow, or those of up to ROWS_COLLECTED rows that a Spark job collects. More
rows, and keys of other types, stay in Spark. benchmarks/hits.py measures both.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias
from pyspark.sql.pandas.types import from_arrow_type

from jobs.input.dealing import Parts
from jobs.input.keys.arrow_expressions import arrow_keys
from jobs.input.keys.key_columns import COMPARABLE, MOST_ROWS
from jobs.run.keys.driver_keys import DriverKeys, KeyRows, collect_rows, read_rows
from jobs.run.keys.key_texts import ROWS, TASK, TEXT, is_whole, with_texts
from jobs.run.rows.local_rows import CURE, LocalRows, NeedsSpark
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from jobs.declare.lookup import Lookup
    from jobs.input.day import InputDay

_DRAWN = "__key_drawn"
ROWS_COLLECTED = 500_000  # by a Spark job, for keys or files that Arrow may read differently
# of strings only those without a collation
COMPARABLE_IN_SPARK = {from_arrow_type(kind, prefer_timestamp_ntz=True) for kind in COMPARABLE}


@dataclass(frozen=True)
class KeySource:
    """The source of a lookup's keys in a day.

    Args:
        prepared: The rows, with the key in the columns `names`.
        lookup: The lookup of the key.
        day: The day's files, if the driver may read keys from them; else None.
        parts: Of these files, which each task reads; None if the tasks are the partitions of
            `prepared`.
        chained: The rows with a key that reads earlier answers; None for other keys.
    """

    prepared: DataFrame | LocalRows
    names: tuple[str, ...]
    lookup: Lookup
    day: InputDay | None
    parts: Parts | None = None
    chained: KeyRows | None = None

    @property
    def repeats(self) -> bool:
        """Whether several rows have the same key; in Spark also if two keys have the same hash."""
        if self._in_driver is not None:
            return self._in_driver.repeats
        return repeats_in_spark(self._frame, self.names)

    def texts(self, *, hidden: bool) -> pa.ChunkedArray | None:
        """Returns the texts of the rows' keys. None if only Spark reads them. hidden: digests."""
        return None if self._in_driver is None else self._in_driver.texts(hidden=hidden)

    def distinct(self, *, hidden: bool, seed: int) -> DriverKeys | SparkKeys:
        """Returns each key once, with a row of it drawn by `seed`, so that the tasks that read
        these rows have equal shares of the keys. hidden: TEXT is a digest.
        """
        if self._in_driver is not None:
            return self._in_driver.distinct(hidden=hidden, seed=seed)
        return SparkKeys.of(self._frame, self.names, task=self._task, hidden=hidden, seed=seed)

    @property
    def _task(self) -> Column:
        return F.spark_partition_id() if self.parts is None else task_column(self.parts)

    @property
    def _frame(self) -> DataFrame:
        if isinstance(self.prepared, LocalRows):
            raise NeedsSpark(
                f"lookup {self.lookup.name}: a key is not read without Spark: a file is torn, or "
                f"needs more memory than there is. {CURE}"
            )
        return self.prepared

    @functools.cached_property
    def _in_driver(self) -> KeyRows | None:
        if self.chained is not None:
            return self.chained
        if self.day is None or self.day.rows > MOST_ROWS or not self._are_comparable:
            return None
        found, keys = None, arrow_keys(self.lookup, self.names, self.day.schema)
        if keys is not None and self.parts is not None:
            found = read_rows(self.prepared, keys, self.day, self.parts)
        if found is None and self.day.rows <= ROWS_COLLECTED:
            found = collect_rows(self._frame, self.names, self._task)
        return found

    @property
    def _are_comparable(self) -> bool:
        return all(
            self.prepared.schema[name].dataType in COMPARABLE_IN_SPARK for name in self.names
        )


@dataclass(frozen=True)
class SparkKeys:
    """Distinct keys that Spark keeps until `drop`. The driver has TEXT, ROWS and TASK of
    each: about 50 bytes and the length of the text.
    """

    kept: DataFrame  # of `day_keys`
    wanted: pa.Table

    @classmethod
    def of(
        cls, prepared: DataFrame, names: Sequence[str], *, task: Column, hidden: bool, seed: int
    ) -> SparkKeys:
        kept = day_keys(prepared, names, task=task, hidden=hidden, seed=seed).persist()
        return cls(kept, kept.select(TEXT, ROWS, TASK).toArrow())

    @property
    def types(self) -> StructType:
        """Types of the columns of `frame`."""
        return self.kept.schema

    def located(self, keys: pa.Table) -> pa.Table:
        """Returns lines of `wanted` with TASK."""
        return keys

    def frame(self, keys: pa.Table) -> DataFrame:
        """Returns lines of `wanted` in Spark, possibly with others that need no call."""
        if 2 * keys.num_rows > self.wanted.num_rows:
            return self.kept.where(F.col(ROWS) > 1) if pc.min(keys[ROWS]).as_py() > 1 else self.kept
        texts = self.kept.sparkSession.createDataFrame(keys.select([TEXT]))
        # otherwise every known key goes through a task again
        return self.kept.join(texts, TEXT, "left_semi")

    def drop(self) -> None:
        self.kept.unpersist()


def task_column(parts: Parts) -> Column:
    """Returns the task that reads a row: rows go to tasks in the order of their files' URLs."""
    row = F.struct(F.col(SOURCE_FILE).alias("file"), F.col(SOURCE_ROW).alias("row"))
    firsts = [task[0] for task in parts[1:]]
    bounds = [
        F.struct(F.lit(one.url).alias("file"), F.lit(one.row).cast("bigint").alias("row"))
        for one in firsts
    ]
    later = [(row >= bound).cast("int") for bound in bounds]
    return functools.reduce(operator.add, later, F.lit(0))


def day_keys(
    prepared: DataFrame, names: Sequence[str], *, task: Column, hidden: bool, seed: int
) -> DataFrame:
    """Finds by Spark each key in the columns `names`, with TEXT, ROWS, TASK and a row."""
    drawn = F.struct(
        F.xxhash64(SOURCE_FILE, SOURCE_ROW, F.lit(seed)).alias("draw"),
        task.alias(TASK),
        F.col(SOURCE_FILE),
        F.col(SOURCE_ROW),
    )
    grouped = (
        prepared.select(*names, drawn.alias(_DRAWN))
        .where(is_whole(names))
        .groupBy(*names)
        .agg(F.count("*").alias(ROWS), F.min(_DRAWN).alias(_DRAWN))
        .select(*names, ROWS, f"{_DRAWN}.*")
        .drop("draw")
    )
    return with_texts(grouped, names, hidden=hidden)


def repeats_in_spark(prepared: DataFrame, names: Sequence[str]) -> bool:
    """Returns whether a key repeats, in a tenth of the time of `day_keys`."""
    hashes = prepared.where(is_whole(names)).select(F.xxhash64(*names).alias("hash"))
    return not hashes.groupBy("hash").count().where("count > 1").isEmpty()
