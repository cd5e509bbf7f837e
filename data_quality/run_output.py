"""The files of a run as the checks see them: every column as written, and the place of each row in the files."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql.types import IntegralType, LongType, StructField, StructType

from jobs import schema
from jobs.schema import DayFacts, DeclaredFacts

POSITION = "__position"  # long: place of the row in the run's files; grows within a task in the order in which it wrote
_ROWS_OF_A_FILE = 1 << 40  # more rows than any one file holds; leaves room for 8 million files
_NUMBER_OF_A_TASKS_FILE = re.compile(r"-c(\d+)\.")  # part-00003-<uuid>-c012.snappy.parquet: the task's 13th file


def read(spark: SparkSession, facts: DayFacts) -> DataFrame:
    """Exactly the files of the run, read as they lie, with POSITION. A day without files gives an empty frame.

    One task writes one file, or several in turn, each in the order in which its rows came.
    """
    if not facts.files:
        return _without_rows(spark, _schema_of_an_empty_day(spark, facts))
    frame = spark.read.parquet(*facts.files)
    uris = sorted(frame.inputFiles(), key=_in_order_of_writing)
    spelled = {form: place for place, uri in enumerate(uris) for form in (uri, one_spelling(uri))}
    # An Arrow table goes to Spark as it is; rows would go through a Python worker, started for them alone.
    places = spark.createDataFrame(pa.table({"_uri": [*spelled], "_place": pa.array(spelled.values(), pa.int64())}))
    located = frame.select("*", F.col("_metadata.file_path").alias("_uri"), F.col("_metadata.row_index").alias("_row"))
    # A row whose file is not found would vanish from every check: it stops them all instead.
    place = F.coalesce("_place", F.raise_error(F.concat(F.lit("not a file of the run: "), "_uri")).cast("long"))
    position = place * _ROWS_OF_A_FILE + F.col("_row")
    return (
        located.join(F.broadcast(places), "_uri", "left").withColumn(POSITION, position).drop("_uri", "_row", "_place")
    )


def one_spelling(uri: str) -> str:
    """Spark writes one local file as file:/x and as file:///x."""
    return re.sub(r"^file:/+", "file:/", uri)


def _path(uri: str) -> str:
    """What Spark opens: it takes a path as it stands, and gives it back percent-encoded."""
    return unquote(uri) if uri.startswith("file:") or "://" in uri else uri


def _in_order_of_writing(uri: str) -> tuple[str, int, str]:
    """The counter as a number: as text, the thousandth file of a task would sort before its second."""
    counter = _NUMBER_OF_A_TASKS_FILE.search(uri)
    return (uri[: counter.start()], int(counter[1]), uri) if counter else (uri, 0, uri)


def event_time_ms(frame: DataFrame, column: str) -> Column:
    """An event time as the watermarks count it: whole milliseconds since the epoch, an integer column taken as such."""
    if isinstance(frame.schema[column].dataType, IntegralType):
        return F.col(column).cast("long")
    return F.floor(F.unix_micros(F.col(column).cast("timestamp")) / 1000).cast("long")


def read_input(spark: SparkSession, facts: DayFacts) -> DataFrame:
    """The input read again, with the identity of each row; empty when the day has no input files."""
    if not facts.input_files:
        columns = [f"`{name}` STRING" for name in facts.input_columns if name not in schema.SOURCE_IDENTITY]
        identity = [f"{schema.SOURCE_FILE} STRING", f"{schema.SOURCE_ROW} LONG"]
        return _without_rows(spark, structure(", ".join([*columns, *identity])))
    kinds = StructType.fromJson(json.loads(facts.input_types)) if facts.input_types else None
    reader = spark.read if kinds is None else spark.read.schema(kinds)
    frame = reader.parquet(*(_path(uri) for uri in facts.input_files))
    file = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "file:/")
    row = F.col("_metadata.row_index")
    return frame.select("*", file.alias(schema.SOURCE_FILE), row.alias(schema.SOURCE_ROW))


def _without_rows(spark: SparkSession, kinds: StructType) -> DataFrame:
    return spark.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in kinds.fields))


def _schema_of_an_empty_day(spark: SparkSession, facts: DayFacts) -> StructType:
    columns = {field.name: field for field in read_input(spark, facts).schema.fields}
    for field in structure(", ".join(audit_ddl(facts.declared))).fields:
        columns[field.name] = field
    return StructType([*columns.values(), StructField(POSITION, LongType())])


def structure(ddl: str) -> StructType:
    parsed = StructType.fromDDL(ddl)
    assert isinstance(parsed, StructType)  # a list of columns always is
    return parsed


def audit_ddl(declared: DeclaredFacts) -> list[str]:
    """The columns that a run adds to its input, as Spark DDL: the row's, each lookup's, and the answers."""
    ddl = [
        f"{schema.PARTITION} INT",
        f"{schema.INPUT_SEQ} LONG",
        f"{schema.OUTPUT_SEQ} LONG",
        f"{schema.SEGMENT} LONG",
        f"{schema.LATE} BOOLEAN",
        f"{schema.SOURCE_FILE} STRING",
        f"{schema.SOURCE_ROW} LONG",
    ]
    for lookup in declared.lookups:
        ddl += [f"`{column}` {kind}" for column, kind in lookup.returns]
        ddl += [
            f"{schema.status(lookup.name)} STRING",
            f"{schema.source(lookup.name)} STRING",
            f"{schema.attempts(lookup.name)} ARRAY<STRUCT<start: LONG, end: LONG, throttled: BOOLEAN>>",
            f"{schema.latency_ms(lookup.name)} DOUBLE",
            f"{schema.paused_ms(lookup.name)} DOUBLE",
            f"{schema.error(lookup.name)} STRING",
            f"{schema.published_status(lookup.name)} STRING",
            f"{schema.published_answered_at(lookup.name)} TIMESTAMP",
            f"{schema.key(lookup.name)} STRUCT<{', '.join(f'`{part}`: STRING' for part, _ in lookup.keys)}>",
        ]
    return ddl
