"""Finds a row of a published day by the values of its columns."""

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.arrow_values import readable_rows
from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.schema import columns as schema
from jobs.storage.parquet_files import parquet_source, read_schema
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import days_of
from jobs.wording import counted, did_you_mean, listed

PLACE = [schema.PARTITION, schema.INPUT_SEQ, schema.OUTPUT_SEQ]  # names a row in its file


@dataclass(frozen=True)
class PublishedRow:
    """A row as its run wrote it.

    Attributes:
        day: The day.
        file: The file.
        run_id: The run that wrote the file.
        files: All files of the day.
        values: The row, with the columns of the audit.
    """

    day: str
    file: str
    run_id: str
    files: tuple[str, ...]
    values: Mapping[str, Any]

    def column(self, name: str) -> str | None:
        """Return the row's spelling of a column; declarations ignore case."""
        return next((own for own in self.values if own.lower() == name.lower()), None)

    def get(self, name: str) -> Any:
        column = self.column(name)
        return None if column is None else self.values[column]


def find_row(enrichment: Enrichment, wanted: Mapping[str, str], day: str | None) -> PublishedRow:
    """Return the published row with these values, texts by column, of this day, or else of the
    newest day that has it.

    Raises:
        DeclarationError: No row has the values, several of a day have them, a column is unknown, a
            value does not fit it, or another program wrote the row's file.
    """
    table = table_at(enrichment.output.path)
    days = {} if table is None else days_of(table, enrichment.facts())
    if day is not None and day not in days:
        newest = f"the newest day with rows is {max(days)}" if days else "no day has rows"
        raise DeclarationError(f"{enrichment.name}: no row of {day} is published; {newest}.")
    searched = [day] if day is not None else sorted(days, reverse=True)
    _require_columns(
        enrichment, (file.place for candidate in searched for file in days[candidate]), wanted
    )
    for candidate in searched:
        files = days[candidate]
        found = [(file, row) for file in files for row in _places(file.place, wanted)]
        if len(found) > 1:
            row_id = listed(enrichment.input.row_id) or schema.SOURCE_ROW
            raise DeclarationError(
                f"--row {_shown(wanted)}: {len(found):,} rows of {candidate} have these values; "
                f"name one row, by {row_id}."
            )
        if found:
            file, place = found[0]
            (values,) = readable_rows(_read(file.place, zip(PLACE, place, strict=True), None))
            places = tuple(other.place for other in files)
            return PublishedRow(candidate, file.place, file.run, places, values)
    where = day or counted(len(days), "published day")
    raise DeclarationError(f"--row {_shown(wanted)}: no row of {where} has these values.")


def rows_that_used(
    row: PublishedRow, lookup: str, answered_at: Any, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield, by file, these columns of the other rows of the day with an answer of this time, and
    their keys.
    """
    key, at = schema.key(lookup), schema.published_answered_at(lookup)
    for file in row.files:
        names = read_schema(file).names
        wanted = [name for name in names if name in {*columns, *PLACE, key}]
        if {key, at} <= set(names):
            found = _read(file, [(at, answered_at)], wanted)
            if file == row.file:
                own = tuple(row.values[name] for name in PLACE)
                is_other = [place != own for place in _places_in(found)]
                found = found.filter(pa.array(is_other, pa.bool_()))
            yield found


def _require_columns(
    enrichment: Enrichment, files: Iterable[str], wanted: Mapping[str, str]
) -> None:
    """Raise DeclarationError if no file has one of the columns; days may differ in columns."""
    spelled: dict[str, str] = {}
    for file in files:
        spelled |= {lower: field.name for lower, field in _fields(file).items()}
        if all(name.lower() in spelled for name in wanted):
            return
    for name, text in wanted.items():
        if spelled and name.lower() not in spelled:
            audit = (schema.audit_columns(lookup.name) for lookup in enrichment.lookups)
            of_run = {*schema.ROW_COLUMNS}.union(*audit)
            shown = [column for column in spelled.values() if column not in of_run]
            raise DeclarationError(
                f"--row {name}={text}: {enrichment.name} has no column {name!r}."
                f"{did_you_mean(name, spelled.values())} It has: {listed(shown, 20)}."
            )


def _fields(file: str) -> dict[str, pa.Field]:
    return {field.name.lower(): field for field in read_schema(file)}


def _places(file: str, wanted: Mapping[str, str]) -> Iterator[tuple[int, ...]]:
    fields = _fields(file)
    chosen = []
    for name, text in wanted.items():
        field = fields.get(name.lower())
        if field is None:  # the day was written before the input had the column
            return
        chosen.append((field.name, _typed(name, text, field.type)))
    if PLACE[0] not in read_schema(file).names:
        if _has_row(file, chosen):
            raise DeclarationError(
                f"--row {_shown(wanted)}: another program wrote {file}, as OPTIMIZE does, which "
                "does not tell how its rows were made. Run its day again."
            )
        return
    yield from _places_in(_read(file, chosen, PLACE))


def _places_in(rows: pa.Table) -> Iterator[tuple[int, ...]]:
    return zip(*(rows[name].to_pylist() for name in PLACE), strict=True)


def _typed(name: str, text: str, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DeclarationError(
            f"--row {name}={text}: the column is of type {kind}, and the value does not fit it."
        ) from error


def _read(file: str, values: Iterable[tuple[str, Any]], columns: list[str] | None) -> pa.Table:
    """Read the rows with these values."""
    equal = (pc.equal(pc.field(name), pc.scalar(value)) for name, value in values)
    filters = functools.reduce(operator.and_, equal)
    return pq.read_table(parquet_source(file), columns=columns, filters=filters, partitioning=None)


def _has_row(file: str, values: Sequence[tuple[str, Any]]) -> bool:
    """Return whether a file has a row with these values, also in Arrow's views, as delta-rs writes
    them: pyarrow compares views, but filters no rows with them.
    """
    names = [name for name, _ in values]
    rows = pq.read_table(parquet_source(file), columns=names, partitioning=None)
    equal = (pc.equal(rows[name], value) for name, value in values)
    return bool(pc.any(functools.reduce(pc.and_, equal)).as_py())


def _shown(wanted: Mapping[str, str]) -> str:
    return " ".join(f"{name}={text}" for name, text in wanted.items())
