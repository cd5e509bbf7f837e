"""Decides whether the tasks of a day read its files by Arrow, and deals the files to them."""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from jobs.arrow_values import may_be_old
from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.input.day import InputDay
from jobs.input.dealing import deal
from jobs.input.file_rows import FileRows
from jobs.input.keys.key_values import Values
from jobs.run.engines.spark_facts import count_slots, is_remote
from jobs.run.rows.chained_keys import compile_keys
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW, arrow_schema
from jobs.storage.parquet_files import rows_by_number
from jobs.storage.urls import is_url
from jobs.task.rows.arrow_batches import BatchLayout

CALENDARS = tuple(f"spark.sql.parquet.{kind}RebaseModeInRead" for kind in ("datetime", "int96"))


def rows_of_day(enrichment: str, day: InputDay, spark: SparkSession) -> DataFrame:
    """Return all rows of a day for Spark: Spark reads files on a disk itself; Arrow reads those on
    a store in Spark's tasks.

    Raises:
        DeclarationError: Arrow would read other values from the store than Spark.
    """
    if not is_url(day.files[0]):
        return day.read(spark)
    types = day.spark_types()
    if types is None or day.only_in_spark:
        raise DeclarationError(
            f"{enrichment}: input: only Spark reads {day.only_in_spark} as it was meant, and it "
            "reads no files on a store. Write the files without it, or with another type, or put "
            "them into a folder that driver and executors share."
        )
    reads = FileRows(deal(day, count_slots(spark)), day.schema, {}, day.row_bytes)
    given = StructType(
        [*types.fields, StructField(SOURCE_FILE, StringType()), StructField(SOURCE_ROW, LongType())]
    )
    tasks = len(reads.parts)
    return spark.range(0, tasks, 1, tasks).mapInArrow(rows_by_number(reads.of), given)


def file_rows(
    prepared: DataFrame, enrichment: Enrichment, layout: BatchLayout, day: InputDay, *, at_most: int
) -> FileRows | None:
    """Return the rows of `prepared` as tasks read them from the files of the day, value for value.

    Args:
        prepared: The rows as Spark reads them, with their keys.
        enrichment: As declared.
        layout: Names the columns of the keys.
        day: The files from which `prepared` is read directly.
        at_most: The highest number of tasks.

    Returns:
        None if only Spark can read them: keys that only Spark evaluates, types that Arrow reads
        differently, Spark Connect.
    """
    on_disk = not is_url(day.files[0])
    if (
        (on_disk and is_remote(prepared.sparkSession))
        or day.only_in_spark
        or not _is_plain(prepared, day)
    ):
        return None
    # without the keys of chained lookups: tasks make these once they know the answers
    keys: dict[str, Values] = {}
    for key in compile_keys(enrichment, layout, day.schema):
        if key.values is None:
            return None
        keys[key.name] = key.values
    if pa.schema([(name, key.kind) for name, key in keys.items()]) != _types(prepared, keys):
        return None
    return FileRows(deal(day, at_most), day.schema, keys, day.row_bytes)


def _types(prepared: DataFrame, names: Iterable[str]) -> pa.Schema:
    return arrow_schema(StructType([prepared.schema[name] for name in names]))


def _is_plain(prepared: DataFrame, day: InputDay) -> bool:
    """Return whether Spark passes the columns to Arrow as they are in the files."""
    fields = [prepared.schema[name] for name in day.names]
    is_dated = any(may_be_old(column.kind) for column in day.columns)
    calendars = map(prepared.sparkSession.conf.get, CALENDARS)
    return arrow_schema(StructType(fields)).types == day.schema.types and not (
        is_dated and set(calendars) != {"CORRECTED"}
    )
