"""The rows as tasks read them, with identity and keys of every lookup; and as tasks write them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type

from jobs.declare.chains import levels
from jobs.declare.enrichment import Enrichment
from jobs.declare.values.key_expressions import named_column
from jobs.errors import DeclarationError
from jobs.input.keys.arrow_expressions import arrow_expression
from jobs.run.engines.spark_facts import is_remote
from jobs.run.rows.chained_keys import CURE, compile_chained, key_expressions
from jobs.schema import columns as schema
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.rows.choices import Choice

ZONE = "spark.sql.session.timeZone"
UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00")
KEY_TYPES = (
    T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampType,
    T.TimestampNTZType, T.NullType,
)  # fmt: skip


def with_identity(df: DataFrame, enrichment: Enrichment) -> DataFrame:
    """Add each row's source file and number; null if not from files, with a declared row_id."""
    if set(schema.SOURCE_IDENTITY) <= set(df.columns):
        return df
    try:
        return df.select(
            "*",
            F.col("_metadata.file_path").alias(schema.SOURCE_FILE),
            F.col("_metadata.row_index").alias(schema.SOURCE_ROW),
        )
    except AnalysisException as error:
        if not enrichment.input.row_id:
            raise DeclarationError(
                f"{enrichment.name}: input: row_id is not declared, and the rows are not read "
                "straight from files; name the columns that identify a row."
            ) from error
    return without_identity(df)


def without_identity(df: DataFrame) -> DataFrame:
    """Add a source file and number that are null: `row_id` identifies each row."""
    nothing = F.lit(None)
    return df.withColumns(
        {schema.SOURCE_FILE: nothing.cast("string"), schema.SOURCE_ROW: nothing.cast("bigint")}
    )


def with_keys(df: DataFrame, enrichment: Enrichment) -> tuple[DataFrame, BatchLayout]:
    """Return the input with the key columns of each lookup, and the layout of its batches.

    Raises:
        DeclarationError: Spark refuses the expression of a key, or a key has a wrong type.
    """
    layout = lay_out_batch(enrichment, df.columns)
    if enrichment.has_chains:
        types = schema.arrow_schema(T.StructType([df.schema[name] for name in df.columns]))
        layout = replace(layout, chained=compile_chained(enrichment, layout, types))
    columns: dict[str, Column] = {}
    texts: list[str] = []
    for place in range(len(enrichment.lookups)):
        if made := layout.made(place):
            # for their types: tasks make the values
            kinds = {name: from_arrow_type(column.kind) for name, column in made.items()}
            columns |= {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
            continue
        expressions = key_expressions(enrichment, layout, place)
        columns |= {name: F.expr(text) for name, text in expressions.items()}
        texts += expressions.values()
    try:
        if all(map(named_column, texts)):
            keyed = df.withColumns(columns)
        else:
            with _in_utc(df, enrichment):
                # inside a struct, an expression that makes rows, such as explode, is an error
                df.select(*map(F.struct, columns.values()))
                keyed = df.withColumns(columns)
    except AnalysisException as error:
        message = next(line for line in str(error).splitlines() if line.strip())
        raise DeclarationError(f"{enrichment.name}: keys: Spark refuses them: {message}") from error
    check_key_types(enrichment, layout, keyed.schema)
    return keyed, layout


@contextmanager
def _in_utc(df: DataFrame, enrichment: Enrichment) -> Iterator[None]:
    """Resolve expressions in UTC, as runs of days do, whatever the zone of a user's session.

    Raises:
        DeclarationError: The session is Spark Connect's, which resolves them later, in its zone.
    """
    settings = df.sparkSession.conf
    zone = settings.get(ZONE) or "UTC"
    if zone in UTC_NAMES:
        yield
        return
    if is_remote(df.sparkSession):
        raise DeclarationError(
            f"{enrichment.name}: keys: runs evaluate them in UTC, and the session's zone is "
            f'{zone}. Call spark.conf.set("{ZONE}", "UTC").'
        )
    settings.set(ZONE, "UTC")
    try:
        yield
    finally:
        settings.set(ZONE, zone)


def lay_out_batch(enrichment: Enrichment, columns: Sequence[str]) -> BatchLayout:
    """Name what a task needs of its rows: these columns, and columns for the keys."""
    # numbers, because names of lookups and of keys could collide
    keys = [
        tuple(f"__key_{place}_{number}" for number in range(len(lookup.keys)))
        for place, lookup in enumerate(enrichment.lookups)
    ]
    of_level = levels(enrichment.lookups)
    wanted = tuple(
        f"__key_{place}_{len(lookup.keys)}"
        if lookup.on_null_key == "fail" and (lookup.when is not None or of_level[place])
        else None
        for place, lookup in enumerate(enrichment.lookups)
    )
    # Spark ignores case, Arrow does not
    by_lower_name = {column.lower(): column for column in columns}
    event_time = enrichment.event_time
    bound = (
        0 if event_time is None else round(event_time.max_out_of_orderness.total_seconds() * 1000)
    )
    return BatchLayout(
        carried=tuple(columns),
        keys=tuple(keys),
        order_key=tuple(by_lower_name[name.lower()] for name in enrichment.key),
        event_time=None if event_time is None else by_lower_name[event_time.column.lower()],
        max_out_of_orderness_ms=bound,
        lookups=tuple(lookup.name for lookup in enrichment.lookups),
        answers=tuple(lookup.written for lookup in enrichment.lookups),
        key_names=tuple(tuple(lookup.keys) for lookup in enrichment.lookups),
        wanted=wanted if any(wanted) else (),
        choices=compile_choices(enrichment),
    )


def check_key_types(enrichment: Enrichment, layout: BatchLayout, types: T.StructType) -> None:
    """Check that every key can become a text, which the ledger and the dead letters need."""
    for lookup, columns in zip(enrichment.lookups, layout.keys, strict=True):
        for (name, expression), column in zip(lookup.as_written.keys.items(), columns, strict=True):
            kind = types[column].dataType
            if not _has_text(kind):
                raise DeclarationError(
                    f"{enrichment.name}: lookup {lookup.name}: keys.{name}: {expression!r} is "
                    f"{kind.simpleString()}, "
                    f'which no key can hold. Cast it: "cast({expression} as string)".'
                )


def _has_text(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_text(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(_has_text(field.dataType) for field in kind.fields)
    return isinstance(kind, KEY_TYPES)


def written_schema(carried: T.StructType, layout: BatchLayout) -> T.StructType:
    """Return carried columns, each lookup's answers, status and time, and the audit columns."""
    known = {field.name: field for field in carried.fields}
    names = [name for name in layout.carried if name not in schema.SOURCE_IDENTITY]
    added = []
    for lookup, answers in zip(layout.lookups, layout.answers, strict=True):
        added += [_field(answer.name, answer.arrow_type) for answer in answers]
        added += map(_spark_field, schema.published_columns(lookup))
    for choice in layout.choices:
        kinds = dict(zip([name for name, _ in choice.facts.columns], choice.kinds, strict=True))
        for column in choice.facts.published():
            kind = kinds.get(column.name)
            added.append(_spark_field(column) if kind is None else _field(column.name, kind))
    added += map(_spark_field, schema.ROW_TABLE)
    added += [
        _spark_field(column.of(lookup))
        for lookup in layout.lookups
        for column in schema.AUDIT_TABLE
    ]
    keys = [
        T.StructField(
            schema.key(lookup),
            T.StructType(
                [
                    T.StructField(name, known[key].dataType)
                    for name, key in zip(named, parts, strict=True)
                ]
            ),
        )
        for lookup, parts, named in zip(layout.lookups, layout.keys, layout.key_names, strict=False)
    ]
    return T.StructType([known[name] for name in names] + added + keys)


def _spark_field(column: schema.Column) -> T.StructField:
    return _field(column.name, column.arrow_type, nullable=column.nullable)


def _field(name: str, kind: pa.DataType, *, nullable: bool = True) -> T.StructField:
    return T.StructField(name, from_arrow_type(kind), nullable)


def compile_choices(enrichment: Enrichment) -> tuple[Choice, ...]:
    """Return the waterfalls as a task applies them.

    Raises:
        DeclarationError: Arrow cannot evaluate `accept`.
    """
    found = []
    lookups = {lookup.name: lookup for lookup in enrichment.lookups}
    for facts in enrichment.choices:
        accepts = []
        for vendor, text in zip(facts.vendors, facts.accepted, strict=True):
            written = [(column.name, column.arrow_type) for column in lookups[vendor].written]
            values = arrow_expression(text, pa.schema(written))
            if values is None:
                raise DeclarationError(
                    f"{enrichment.name}: waterfall {facts.name}: accept cannot be evaluated over "
                    f"the answers of lookup {vendor}. {CURE}"
                )
            accepts.append(values)
        kinds = tuple(column.arrow_type for column in lookups[facts.vendors[0]].columns)
        found.append(Choice(facts, tuple(accepts), kinds))
    return tuple(found)
