"""Checks the columns of an input against a declaration."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from jobs.declare.chains import readable_columns
from jobs.declare.enrichment import Enrichment, written_columns
from jobs.declare.finding.extras import require_extra
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.lookup import Lookup
from jobs.declare.sql_lookup import SqlLookup
from jobs.errors import DeclarationError
from jobs.input.day import InputDay
from jobs.schema.columns import ROW_COLUMNS, SOURCE_IDENTITY, audit_columns, key

# columns that a run adds to those of the input
OWN_KEYS = re.compile(r"__key_\d+_\d+|__partition_of_frame")
# columns of a file's row, as Spark and the checks name them
OF_FILES = ("_metadata", "_uri", "_row")


def check_columns(enrichment: Enrichment, columns: Iterable[str]) -> None:
    known = _known_columns(enrichment, columns)
    missing = _missing(_columns_read(enrichment), known, enrichment.input.place)
    wrong = (*missing, *_columns_twice(enrichment, known))
    DeclarationError.raise_for(wrong, enrichment.name)


def check_spark_frame(enrichment: Enrichment, columns: Iterable[str]) -> None:
    """Check the columns of a Spark frame, which all go through the tasks and their files."""
    known = _known_columns(enrichment, columns)
    wrong = list(_missing(_columns_of_keys(enrichment), known, "the frame"))
    wrong += _columns_twice(enrichment, known)
    wrong += [_say_written(known[name]) for name in SOURCE_IDENTITY if name in known]
    DeclarationError.raise_for(wrong, enrichment.name)


def check_frame(enrichment: Enrichment, columns: Iterable[Any]) -> list[str]:
    """Find the columns of a frame that the keys read.

    Args:
        enrichment: As declared.
        columns: Names; pandas allows any object as a name.

    Returns:
        Their names, in the frame's spelling.

    Raises:
        DeclarationError: A column is missing or ambiguous, or has the name of an answer.
    """
    known: dict[str, str] = {}
    twice = set()
    for column in columns:
        if isinstance(column, str):
            twice |= {column.lower()} & known.keys()
            known.setdefault(column.lower(), column)
    read = list(_columns_of_keys(enrichment))
    wrong = list(_missing(read, known, "the frame"))
    kept = {column.lower() for column in (*_columns_kept(enrichment), *SOURCE_IDENTITY)}
    wrong += [
        f"{where}: {_say_written(column)}"
        for where, column in read
        if column.lower() in kept or OWN_KEYS.fullmatch(column.lower())
    ]
    wrong += [
        f"{where}: several columns of the frame are named {column!r}, as case does not count. "
        "Rename one."
        for where, column in read
        if column.lower() in twice
    ]
    wrong += _answers_twice(enrichment, known)
    DeclarationError.raise_for(wrong, enrichment.name)
    return list(dict.fromkeys(known[column.lower()] for _, column in read))


def _missing(
    read: Iterable[tuple[str, str]], known: Mapping[str, str], place: str
) -> Iterator[str]:
    for where, column in read:
        if column.lower() not in known:
            close = difflib.get_close_matches(column.lower(), known, n=1, cutoff=0.3)
            hint = (
                f"Did you mean {known[close[0]]!r}?"
                if close
                else f"It has: {', '.join(known.values()) or 'none'}."
            )
            yield f"{where}: no column {column!r} in {place}. {hint}"


def _answers_twice(enrichment: Enrichment, known: Mapping[str, str]) -> Iterator[str]:
    for lookup in enrichment.lookups:
        for column in written_columns(lookup):
            if column.lower() in known:
                yield (
                    f"lookup {lookup.name}: returns: {column!r} exists in the input. "
                    f"{_advise_renaming(lookup, column)}"
                )
    for choice in enrichment.choices:
        for column in (published.name for published in choice.published()):
            if column.lower() in known:
                yield f"waterfall {choice.name}: {column!r} exists in the input. Rename it there."


def _columns_twice(enrichment: Enrichment, known: Mapping[str, str]) -> Iterator[str]:
    yield from _answers_twice(enrichment, known)
    for column in _columns_kept(enrichment):
        if column.lower() in known:
            yield f"input: {_say_written(known[column.lower()])}"


def _say_written(column: str) -> str:
    return f"{column!r} is a column that Tidegate writes. Rename it."


def _known_columns(enrichment: Enrichment, columns: Iterable[str]) -> dict[str, str]:
    """Return the columns by lower-case name. Raises DeclarationError for unusable names."""
    known: dict[str, str] = {}
    wrong = []
    for column in columns:
        if column == "*" or OWN_KEYS.fullmatch(column.lower()):
            wrong.append(
                f"{column!r} means something else to {'Spark' if column == '*' else 'a run'}. "
                "Rename the column."
            )
        # Spark uses them for a field of a struct, and for quoting
        for mark, called in ((".", "dot"), ("`", "backtick")):
            if mark in column:
                wrong.append(f"{column!r} has a {called} in its name. Rename the column.")
        if column.lower() in known:
            wrong.append(
                f"{known[column.lower()]!r} and {column!r} differ only in case, which Spark "
                "ignores. Rename one."
            )
        known[column.lower()] = column
    DeclarationError.raise_for(wrong, f"{enrichment.name}: input")
    return known


def _columns_of_keys(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    """Yield the columns of the input that keys and conditions read."""
    answers: set[str] = set()
    for lookup in enrichment.lookups:
        for field, column in lookup.columns_read():
            if column.lower() not in answers:
                yield f"lookup {lookup.name}: {field}", column
        answers |= {column.lower() for column in readable_columns(lookup)}


def _columns_read(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    yield from _columns_of_keys(enrichment)
    yield from (("input: row_id", column) for column in enrichment.input.row_id)
    yield from (("pii", column) for column in enrichment.pii)
    yield from (("key", column) for column in enrichment.key)
    if enrichment.event_time is not None:
        yield "event_time", enrichment.event_time.column


def _columns_kept(enrichment: Enrichment) -> Iterator[str]:
    """Yield the audit columns, which no input may have, except source file and row number."""
    yield from (column for column in ROW_COLUMNS if column not in SOURCE_IDENTITY)
    for lookup in enrichment.lookups:
        yield from audit_columns(lookup.name)
        yield key(lookup.name)


def _advise_renaming(lookup: Lookup, column: str) -> str:
    kind = {answer.name: answer.spark_type for answer in lookup.columns}.get(column)
    if kind is None:
        return f"Rename the lookup: its name {lookup.name!r} is the prefix."
    new = f"{lookup.name}_{column}"
    if isinstance(lookup, HttpLookup):
        path = lookup.answer_path(column)
        return f'Rename it here: returns="{new} {kind}", paths={{"{new}": "{path}"}}.'
    if isinstance(lookup, SqlLookup):
        return (
            f'Rename it here: returns="{new} {kind}", and give the table a view with that column.'
        )
    return f'Rename it here: returns="{new} {kind}", and in what the function gives.'


def check_files_columns(enrichment: Enrichment, columns: Iterable[str]) -> None:
    """Refuse columns of the files with names that Spark or Tidegate uses for each row."""
    known = {column.lower(): column for column in columns}
    wrong = []
    # the day's folder gives the table its partition column
    if enrichment.input.partition.lower() in known:
        wrong.append(
            f"the files hold a column {enrichment.input.partition!r}, and so do their folders' "
            "names. Leave it out of the files, or call the folders otherwise (Input.partition)."
        )
    wrong += [
        f"{known[name]!r} is a name under which Spark and Tidegate keep where a row came from. "
        "Rename the column."
        for name in (*SOURCE_IDENTITY, *OF_FILES)
        if name in known
    ]
    DeclarationError.raise_for(wrong, f"{enrichment.name}: input")


def check_event_time(enrichment: Enrichment, schema: pa.Schema) -> None:
    if enrichment.event_time is None:
        return
    name = next(
        (name for name in schema.names if name.lower() == enrichment.event_time.column.lower()),
        None,
    )
    if name is None:
        return  # check_columns reports it
    kind = schema.field(name).type
    if not pa.types.is_timestamp(kind):
        raise DeclarationError(
            f"{enrichment.name}: event_time: {name!r} is {kind}; it must be a timestamp."
        )


def check_chained(enrichment: Enrichment, input_day: InputDay) -> None:
    """Raise DeclarationError for chains that no engine can run on this input."""
    if enrichment.has_chains:
        try:
            check_columns(enrichment, input_day.names)
        except DeclarationError:  # already reported
            return
        require_extra("spark", f"{enrichment.name}: a chain")
        # imports pyspark, which checks for Spark do not need
        from jobs.run.rows.chain_check import require_arrow_keys

        require_arrow_keys(enrichment, input_day)
