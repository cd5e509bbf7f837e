"""Evaluates the declared key expressions again for the rows of the input."""

import re
from collections.abc import Iterator

import pyarrow as pa

from data_quality.rows.input_rows import NeedsSpark, with_input
from data_quality.rows.task_rows import Places, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import one_chunk
from jobs.schema.columns import published_status
from jobs.schema.records import DeclaredFacts, LookupFacts

Key = dict[str, pa.Array]  # part -> its values
Expression = tuple[str, str, str]  # lookup, part of its key, Spark SQL

# functions whose value differs between evaluations or queries
_FLEETING = re.compile(
    r"\b(current_date|current_timestamp|localtimestamp|current_time|current_user|session_user)\b|\bunix_timestamp\s*\(\s*\)"
    r"|\b(curdate|now|user|rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id"
    r"|spark_partition_id|input_file_\w+)\s*\(",
    re.IGNORECASE,
)
# not 1, -1 or "a", which are values, whatever the columns are named; nor are these words
_COLUMN = re.compile(r"\s*(?:`([^`]+)`|(?!(?:true|false|null)\b)([^\W\d]\w*))\s*", re.IGNORECASE)


def answers_read(declared: DeclaredFacts) -> list[str]:
    """Return the columns of answers and statuses that keys may read."""
    texts = [text.lower() for lookup in declared.lookups for _, text in lookup.keys]
    return [
        name
        for lookup in declared.lookups[:-1]  # only later lookups read them
        for name in (*lookup.columns, published_status(lookup.name))
        if any(name.lower() in text for text in texts)
    ]


def lasting(lookup: LookupFacts) -> list[tuple[str, str]]:
    return [(part, text) for part, text in lookup.keys if not _FLEETING.search(text)]


def declared_keys(
    rows: TaskRows, lookup: LookupFacts, day: WrittenDay
) -> Iterator[tuple[Places, Key]]:
    """Yield places of rows in the input, and their keys' repeatable parts. Raises ValueError."""
    for places, keys, refused in rows.once(
        "declared keys", lambda: list(_declared_keys(rows, day))
    ):
        if lookup.name in refused:
            raise ValueError(refused[lookup.name])
        yield places, keys[lookup.name]


def _declared_keys(
    rows: TaskRows, day: WrittenDay
) -> Iterator[tuple[Places, dict[str, Key], dict[str, str]]]:
    """Yield the keys of all lookups; a Spark job evaluates the expressions that only Spark can."""
    answers = {name: rows.decoded(name) for name in answers_read(day.declared)}
    for places, of_input in with_input(rows, day.input):
        given = of_input
        for column, values in answers.items():
            given = given.append_column(column, values.take(pa.array(places)))
        columns = {name.lower(): name for name in given.column_names}
        keys: dict[str, Key] = {lookup.name: {} for lookup in day.declared.lookups}
        rest: list[Expression] = []
        for lookup in day.declared.lookups:
            for part, text in lasting(lookup):
                plain = _COLUMN.fullmatch(text)
                name = columns.get((plain[1] or plain[2]).lower()) if plain else None
                if name is not None:
                    keys[lookup.name][part] = one_chunk(given[name])
                elif day.evaluate and (values := day.evaluate(text, given)) is not None:
                    keys[lookup.name][part] = values
                else:
                    rest.append((lookup.name, part, text))
        refused = _evaluate(rest, given, day, keys) if rest else {}
        yield places, keys, refused


def _evaluate(
    rest: list[Expression], given: pa.Table, day: WrittenDay, keys: dict[str, Key]
) -> dict[str, str]:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    if day.spark is None:  # the local engine refuses these keys before the run
        raise NeedsSpark
    used = [
        name
        for name in given.column_names
        if any(name.lower() in text.lower() for _, _, text in rest)
    ]
    used = used or given.column_names[:1]
    answers = [field for field in given.schema if field.name in answers_read(day.declared)]
    types = StructType(
        [*day.input.spark_types.fields, *from_arrow_schema(pa.schema(answers)).fields]
    )
    types = StructType([types[name] for name in used])
    frame = day.spark.createDataFrame(given.select(used), types)
    able, refused = [], {}
    for number, (lookup, part, text) in enumerate(rest):
        column = F.expr(text).alias(f"key_{number}")
        try:
            frame.select(column)
        except PySparkException as error:
            refused[lookup] = f"Spark refuses keys.{part}: {str(error).strip().splitlines()[0]}"
        else:
            able.append((lookup, part, column))
    evaluated = frame.select(*(column for _, _, column in able)).toArrow()
    for (lookup, part, _), values in zip(able, evaluated.columns, strict=True):
        keys[lookup][part] = one_chunk(values)
    return refused
