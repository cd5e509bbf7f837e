"""The rows of a day as the only task of the local engine reads them: by Arrow, without Spark."""

from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import LongType, StringType, StructField, StructType

from jobs.declare.enrichment import Enrichment
from jobs.declare.values.key_expressions import columns_in
from jobs.errors import DeclarationError
from jobs.input.day import InputDay
from jobs.input.dealing import deal
from jobs.input.file_rows import FileRows
from jobs.input.keys.arrow_expressions import COMPARABLE, MOST_ROWS
from jobs.input.keys.key_values import Values
from jobs.input.same_values import refuse_old_dates
from jobs.run.engines.engine import Engine, LocalEngine, SparkEngine
from jobs.run.rows.chained_keys import compile_chained, compile_keys, declared_text
from jobs.run.rows.keyed_rows import check_key_types, lay_out_batch
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW
from jobs.task.rows.arrow_batches import BatchLayout

CURE = "Run it on Spark, the default engine."


@dataclass(frozen=True)
class LocalRows:
    """The input of a run of the local engine.

    Attributes:
        engine: Runs its task.
        schema: Of the rows, with their identity and their keys, in Spark's types.
        layout: Names the columns of keys, order and event time.
        reads: How the task reads them.
    """

    engine: LocalEngine
    schema: StructType
    layout: BatchLayout
    reads: FileRows

    @classmethod
    def of(cls, engine: LocalEngine, enrichment: Enrichment, day: InputDay) -> Self:
        """Plan how a task reads a day of an enrichment that `preflight` has accepted.

        Raises:
            DeclarationError: The day or the declaration needs Spark; the message says which part,
                and why.
        """
        refuse_what_needs_spark(enrichment)
        if day.rows > MOST_ROWS:
            raise DeclarationError(
                f"{enrichment.name}: input: the day has {day.rows:,} rows, and the local engine "
                f"runs up to {MOST_ROWS:,}. {CURE}"
            )
        types = day.spark_types()
        if types is None or day.unlike_but_dates:
            raise DeclarationError(
                f"{enrichment.name}: input: only Spark reads {day.unlike_but_dates} as it was "
                f"meant. {CURE}"
            )
        if day.has_old_dates:
            refuse_old_dates(day.files)
        fields = [
            *types.fields,
            StructField(SOURCE_FILE, StringType()),
            StructField(SOURCE_ROW, LongType()),
        ]
        layout = lay_out_batch(enrichment, [field.name for field in fields])
        layout = replace(layout, chained=compile_chained(enrichment, layout, day.schema))
        keys = _keys(enrichment, layout, day)
        columns = keys | {
            name: key for chained_keys in layout.chained for name, key in chained_keys.items()
        }
        fields += [StructField(name, from_arrow_type(key.kind)) for name, key in columns.items()]
        schema = StructType(fields)
        check_key_types(enrichment, layout, schema)
        return cls(engine, schema, layout, FileRows(deal(day, 1), day.schema, keys, day.row_bytes))


def engine_for(rows: DataFrame | LocalRows) -> Engine:
    """Return the engine whose tasks read these rows."""
    return rows.engine if isinstance(rows, LocalRows) else SparkEngine(rows.sparkSession)


def refuse_what_needs_spark(enrichment: Enrichment) -> None:
    """Raise DeclarationError for a declaration that the local engine cannot run."""
    for declared, feature in (
        (enrichment.windows, "windows"),
        (enrichment.expectations, "expectations"),
    ):
        if declared:
            raise DeclarationError(f"{enrichment.name}: {feature} need Spark. {CURE}")


def _keys(enrichment: Enrichment, layout: BatchLayout, day: InputDay) -> dict[str, Values]:
    keys = {}
    for key in compile_keys(enrichment, layout, day.schema):
        if key.values is None or key.values.kind not in COMPARABLE:
            text = declared_text(key.lookup, key.field)
            raise DeclarationError(
                f"{enrichment.name}: lookup {key.lookup.name}: {key.field}: {text!r} needs Spark "
                f"(docs/inputs.md lists what does not). {CURE}{_cure_for_fractions(key.text, day)}"
            )
        keys[key.name] = key.values
    return keys


def _cure_for_fractions(expression: str, day: InputDay) -> str:
    """Return a hint for numbers of pandas, which have fractions where a null is among them."""
    names = {name.lower() for name in columns_in("keys", expression)}
    kinds = {field.name: field.type for field in day.schema if field.name.lower() in names}
    for name, kind in kinds.items():
        if pa.types.is_floating(kind):
            return (
                f" {name!r} has fractions: in pandas, whole numbers beside nulls do until "
                'astype("Int64").'
            )
    return ""
