"""Checks the SQL of declared windows against the columns of the run, before any call."""

from collections.abc import Iterator

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  # Spark's usual alias

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.run.rows.keyed_rows import written_schema
from jobs.run.windows.window_rows import END, FIRED, RANK, START, aggregated
from jobs.schema import columns as schema
from jobs.schema.records import WindowFacts
from jobs.task.rows.arrow_batches import BatchLayout


def check_windows(prepared: DataFrame, enrichment: Enrichment, layout: BatchLayout) -> None:
    """Raise DeclarationError unless Spark can carry out the SQL of every window."""
    windows = enrichment.facts().windows
    if not windows:
        return
    written = written_schema(prepared.schema, layout)
    answers = {answer.name for answer in enrichment.facts().published_answers()}
    published = {*layout.carried, *answers} - {*schema.SOURCE_IDENTITY}
    fields = [field for field in written.fields if field.name in published]
    wrong = (
        f"window {window.name}: {message}"
        for window in windows
        for message in _wrong(prepared, window, fields, enrichment.input.partition)
    )
    DeclarationError.raise_for(wrong, enrichment.name)


def _wrong(
    prepared: DataFrame, window: WindowFacts, fields: list[T.StructField], partition: str
) -> Iterator[str]:
    by_lower_name = {field.name.lower(): field.name for field in fields}
    taken = [name for name in schema.DROPPED_COLUMNS if name in by_lower_name]
    if taken:
        yield (
            f"the published column {by_lower_name[taken[0]]!r} is one that windows have. Rename it."
        )
        return
    absent = [column for column in window.key if column.lower() not in by_lower_name]
    if absent:
        yield (
            f"key: no column {absent[0]!r} is published. There are: "
            f"{', '.join(by_lower_name.values())}."
        )
        return
    bounds = [T.StructField(START, T.LongType()), T.StructField(END, T.LongType())]
    empty = prepared.sparkSession.createDataFrame([], T.StructType([*fields, *bounds]))
    try:
        columns = aggregated(empty, window, partition).schema
        schema.arrow_schema(columns)
    except (AnalysisException, ParseException) as error:
        yield (
            "its sql is wrong: "
            f"{next(line for line in str(error).splitlines() if line.strip()).rstrip('.')}."
        )
        return
    except Exception as error:  # noqa: BLE001  # a type that no file can hold
        yield f"its sql gives what no table can hold: {' '.join(str(error).split())}"
        return
    names = [name.lower() for name in columns.names] + [
        schema.PANE,
        schema.FIRED,
        schema.INPUT_DAY,
        FIRED,
        RANK,
    ]
    odd = next((name for name in columns.names if {".", "`"} & {*name}), None)
    if odd is not None:  # Spark reads it as a field
        yield f"{odd!r} has a {'dot' if '.' in odd else 'backtick'} in its name. Rename the column."
    twice = next((name for name in columns.names if names.count(name.lower()) > 1), None)
    if twice is not None:
        yield f"sql: {twice!r} is a column of its key, or one that windows have; rename it."
