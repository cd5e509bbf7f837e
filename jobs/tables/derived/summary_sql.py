"""Runs the SQL of a summary over a published day; checks it over an empty day before any call."""

import contextlib
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from jobs.declare.enrichment import Enrichment, Summary
from jobs.declare.values.calendar import column_value, is_day
from jobs.errors import DeclarationError, TidegateError
from jobs.input.day import InputDay
from jobs.storage.locked_folders import temporary_folder
from jobs.tables.delta.delta_log import day_type, table_at
from jobs.tables.delta.type_check import answer_fields
from jobs.tables.delta.write_errors import delta_errors

NEVER_A_DAY = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)


def rows_of(enrichment: Enrichment, summary: Summary, day: str) -> pa.Table:
    """Return the summary of a published day, with the day as its last column.

    Raises TidegateError if the SQL fails, or has a column of the day's name with another value.
    """
    try:
        return _with_day(
            _result(DeltaTable(enrichment.output.path), enrichment, summary, day).read_all(),
            enrichment,
            day,
        )
    except Exception as error:
        answers = "with new calls" if enrichment.ledger is None else "with the ledger's answers"
        raise TidegateError(
            f"{enrichment.name}: summary {summary.name} of {day} is not made: "
            f"{delta_errors(error)}. The day itself is published: fix the sql, then run the same "
            f"again, {answers}, or materialize the summary alone in Dagster."
        ) from error


def check_summaries(enrichment: Enrichment, input_day: InputDay, day: str) -> None:
    """Check every summary's SQL against the published columns, and the types of its result.

    Skips a day whose types only Spark knows, and does nothing if no temporary file can be written.
    Raises DeclarationError.
    """
    if not enrichment.summaries or input_day.infer_in_spark:
        return
    with contextlib.suppress(OSError), temporary_folder() as folder:
        try:
            empty = _empty(Path(folder, "published"), enrichment, input_day)
        except DeltaError:
            return  # the columns are inconsistent, which is not a fault of the query
        wrong = []
        for number, summary in enumerate(enrichment.summaries):
            try:
                _check(empty, enrichment, summary, day, Path(folder, str(number)))
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001  # any error of the query
                wrong.append(
                    f"summary {summary.name}: its sql is wrong: {delta_errors(error)}. It selects "
                    f"from {enrichment.name}, in DataFusion's dialect."
                )
        DeclarationError.raise_for(wrong, enrichment.name)


def _check(
    empty: DeltaTable, enrichment: Enrichment, summary: Summary, day: str, folder: Path
) -> None:
    """Raise any error of the query or of a table of its result. Computes no row, because SQL may
    fail on no rows but not on data, such as a division by their number.
    """
    columns = pa.schema(_result(empty, enrichment, summary, day).schema)
    for column in columns:
        if _is_day(column.name, enrichment) and any(
            is_kind(column.type) for is_kind in NEVER_A_DAY
        ):
            raise ValueError(
                f"{column.name!r} is the column of the day, and {column.type} here; rename it"
            )
    write_deltalake(folder, _with_day(columns.empty_table(), enrichment, day))


def _result(
    source: DeltaTable, enrichment: Enrichment, summary: Summary, day: str
) -> pa.RecordBatchReader:
    """Run the query lazily, with the rows of the day under the enrichment's name."""
    cast = "date " if is_day(day) else ""
    day_only = f"SELECT * FROM __all WHERE \"{enrichment.input.partition}\" = {cast}'{day}'"  # noqa: S608  # our names
    query = QueryBuilder().register("__all", source)
    # a view keeps the SQL unchanged, with its WITH, semicolon or comment
    query.execute(f'CREATE VIEW "{enrichment.name}" AS {day_only}')
    return pa.RecordBatchReader.from_stream(query.execute(summary.sql))


def _with_day(rows: pa.Table, enrichment: Enrichment, day: str) -> pa.Table:
    """Add the day's column. Raises ValueError if a column of its name has another value, or if the
    result has no other column.
    """
    others = [
        number for number, name in enumerate(rows.column_names) if not _is_day(name, enrichment)
    ]
    if not others:
        raise ValueError(f"it gives no column besides {enrichment.input.partition!r}")
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _is_day(name, enrichment):
            for value in column.unique().to_pylist():
                if str(value).removesuffix("+00:00").removesuffix(" 00:00:00") != day:
                    raise ValueError(
                        f"{name!r} is the column of the day, and holds {value} too; rename it"
                    )
    value = pa.scalar(column_value(day))
    days = pa.repeat(value, rows.num_rows)
    return rows.select(others).append_column(enrichment.input.partition, days)


def _is_day(name: str, enrichment: Enrichment) -> bool:
    return name.lower() == enrichment.input.partition.lower()


def _empty(folder: Path, enrichment: Enrichment, input_day: InputDay) -> DeltaTable:
    path, partition = enrichment.output.path, enrichment.input.partition
    published = table_at(path)
    existing = published.schema().fields if published is not None else []
    # a field per name
    by_name = {
        field.name.lower(): field for field in (*input_day.schema, *answer_fields(enrichment))
    }
    new = Schema.from_arrow(pa.schema([*by_name.values()])).fields
    fields = {
        field.name.lower(): field
        for field in (*new, Field(partition, day_type(enrichment.input.every)), *existing)
    }
    return DeltaTable.create(folder, Schema([*fields.values()]), partition_by=[partition])
