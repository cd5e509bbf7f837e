"""Finds a day's distinct keys, each with its number of rows and a row of it.

If Arrow and Spark agree on the types of a key's parts, the driver evaluates the keys of up to
MOST_ROWS rows by Arrow, or those of up to ROWS_COLLECTED rows that a Spark job collects. More
rows, and keys of other types, stay in Spark. benchmarks/hits.py measures both.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from jobs.input.day import InputDay
from jobs.input.dealing import Parts
from jobs.input.keys.arrow_expressions import COMPARABLE, MOST_ROWS
from jobs.run.keys.driver_keys import KeyRows, collect_rows
from jobs.run.keys.key_rows import read_key_rows
from jobs.run.keys.key_texts import ROWS, TASK, TEXT, is_whole, with_texts
from jobs.run.rows.local_rows import LocalRows
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW
from jobs.task.plan import PartitionPlan

_DRAWN = "__key_drawn"
ROWS_COLLECTED = 500_000  # by a Spark job, for keys or files that Arrow may read differently
# of strings only those without a collation
COMPARABLE_IN_SPARK = {from_arrow_type(kind, prefer_timestamp_ntz=True) for kind in COMPARABLE}


@dataclass(frozen=True)
class SparkRows:
    """The keys of rows that stay in Spark.

    Attributes:
        names: The columns with the key.
        task: Of each row.
    """

    prepared: DataFrame
    names: tuple[str, ...]
    task: Column

    @property
    def repeats(self) -> bool:
        """Whether several rows have the same key, or two keys the same hash, in a tenth of the time
        of `day_keys`.
        """
        rows = self.prepared.where(is_whole(self.names))
        hashes = rows.select(F.xxhash64(*self.names).alias("hash"))
        return not hashes.groupBy("hash").count().where("count > 1").isEmpty()

    def texts(self, *, hidden: bool) -> None:  # as of KeyRows
        """Return None: only Spark has the keys."""

    def distinct(self, *, hidden: bool, seed: int) -> SparkKeys:
        """Return each key once, with a row of it drawn by `seed`."""
        keys = day_keys(self.prepared, self.names, task=self.task, hidden=hidden, seed=seed)
        kept = keys.persist()
        return SparkKeys(kept, kept.select(TEXT, ROWS, TASK).toArrow())


def find_keys(
    prepared: DataFrame | LocalRows, plan: PartitionPlan, place: int, day: InputDay | None
) -> KeyRows | SparkRows:
    """Return the keys of a lookup in a day's rows.

    Args:
        prepared: The rows, with their keys.
        plan: Their plan; the lookups that the key reads have been asked.
        place: The place of the lookup.
        day: The day's files, if the driver may read keys from them; else None.

    Raises:
        LedgerError, RowFailed, TidegateError: As `read_key_rows` does.
    """
    names = plan.layout.keys[place]
    rows = math.inf if day is None else day.rows
    fit_the_driver = rows <= MOST_ROWS and all(
        prepared.schema[name].dataType in COMPARABLE_IN_SPARK for name in names
    )
    if plan.layout.made(place) or (plan.reads is not None and fit_the_driver):
        return read_key_rows(prepared, plan, place)
    assert not isinstance(prepared, LocalRows)  # which always fit
    parts = None if plan.reads is None else plan.reads.parts
    task = F.spark_partition_id() if parts is None else task_column(parts)
    if fit_the_driver and rows <= ROWS_COLLECTED:
        return collect_rows(prepared, names, task)
    return SparkRows(prepared, names, task)


@dataclass(frozen=True)
class SparkKeys:
    """Distinct keys that Spark keeps until `drop`. The driver has TEXT, ROWS and TASK of
    each: about 50 bytes and the length of the text.
    """

    kept: DataFrame  # of `day_keys`
    wanted: pa.Table

    @property
    def types(self) -> StructType:
        """Types of the columns of `frame`."""
        return self.kept.schema

    def frame(self, keys: pa.Table, missing: pa.Table) -> DataFrame:
        """Return lines of `wanted` in Spark, possibly with others, which need no call: none of them
        is `missing`, without an answer.
        """
        kept = self.kept
        if pc.min(keys[ROWS]).as_py() > 1:
            kept = kept.where(F.col(ROWS) > 1)
            missing = missing.filter(pc.greater(missing[ROWS], 1))
        if missing.num_rows == keys.num_rows and 2 * keys.num_rows > self.wanted.num_rows:
            return kept
        texts = self.kept.sparkSession.createDataFrame(keys.select([TEXT]))
        # otherwise every known key goes through a task again
        return self.kept.join(texts, TEXT, "left_semi")

    def drop(self) -> None:
        self.kept.unpersist()


def task_column(parts: Parts) -> Column:
    """Return the task that reads a row: rows go to tasks in the order of their files' URLs."""
    row = F.struct(F.col(SOURCE_FILE).alias("file"), F.col(SOURCE_ROW).alias("row"))
    firsts = [task[0] for task in parts[1:]]
    bounds = [
        F.struct(F.lit(first.url).alias("file"), F.lit(first.row).cast("bigint").alias("row"))
        for first in firsts
    ]
    later = [(row >= bound).cast("int") for bound in bounds]
    return functools.reduce(operator.add, later, F.lit(0))


def day_keys(
    prepared: DataFrame, names: Sequence[str], *, task: Column, hidden: bool, seed: int
) -> DataFrame:
    """Find by Spark each key in the columns `names`, with TEXT, ROWS, TASK and a row."""
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
