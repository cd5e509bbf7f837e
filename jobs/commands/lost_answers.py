"""Finds the rows of a run that would take answers away from readers."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.arrow_values import Numbers, digest, readable_values
from jobs.declare.values.key_expressions import columns_in
from jobs.input.staged_files import name_anywhere, names_anywhere
from jobs.schema import columns as schema
from jobs.schema.records import DayFacts, DayRecord, DeclaredFacts
from jobs.storage.parquet_files import open_parquet, parquet_source, read_schema
from jobs.storage.stored_files import is_there
from jobs.storage.urls import path_from_spark
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import list_files
from jobs.wording import counted

ANSWERED = (*schema.HAS_ANSWER, "miss")


def why_answers_are_lost(record: DayRecord) -> str:
    """Return why a day would lose answers of the published day; empty if it would not."""
    return explain_lost_answers(_files_that_readers_see(record.facts), record)


def why_calls_lose_answers(record: DayRecord) -> str:
    """Return why failed calls take answers away from readers, as a replayed vendor's where the next
    vendor had answered; empty if they do not, or if the rows cannot be compared.
    """
    if _first_with(record, schema.FAILED) is None:
        return ""
    published = _files_that_readers_see(record.facts)
    names = _identity(published, record)
    if _why_not_comparable(published, names, record):
        return ""
    which = "that a failed call would hide"
    answered = schema.HAS_ANSWER
    return _first_loss(published, record, names, schema.FAILED, answered=answered, which=which)


def _files_that_readers_see(facts: DayFacts) -> list[str]:
    """Return the files of a run's day in the table.

    No record names them all: several batches of a stream, another machine or an enrichment of
    another name may have written them.
    """
    table = table_at(facts.declared.table)
    files = [] if table is None else list_files(table, facts.declared, facts.day)
    return [file.place for file in files]


def explain_lost_answers(published: Sequence[str], now: DayRecord) -> str:
    """Return why rows of the files that readers see would lose answers by the run that would
    replace them; empty if none would.
    """
    unasked = _first_with(now, ("not_asked",))
    if unasked is None:
        return ""
    names = _identity(published, now)
    if why := _why_not_comparable(published, names, now):
        return f"lookup {unasked}: some rows have no stored response, and {why}"
    which = "whose response the ledger does not hold"
    loss = _first_loss(published, now, names, ("not_asked",), answered=ANSWERED, which=which)
    return loss and f"{loss} Run the day instead, which asks for them."


def _first_with(run: DayRecord, outcomes: Sequence[str]) -> str | None:
    """Return the first lookup at which rows of a run have one of the outcomes."""
    return next(
        (lookup.name for lookup in run.figures.lookups if any(map(lookup.outcomes.get, outcomes))),
        None,
    )


def _identity(published: Sequence[str], now: DayRecord) -> Sequence[str]:
    """Return the columns that identify a row in all files: `row_id` without repeats, else its
    source.
    """
    names = now.facts.declared.row_id
    columns = [{name.lower() for name in _columns(file)} for file in published]
    has_ids = names and all(known.issuperset(map(str.lower, names)) for known in columns)
    if has_ids and not any(_repeats(files, names) for files in (published, written_files(now))):
        return names
    return schema.SOURCE_IDENTITY


def _repeats(files: Iterable[str], names: Sequence[str]) -> bool:
    """Return whether two rows of these files have equal values in these columns."""
    digests: list[Numbers] = []
    for file in files:
        with open_parquet(file) as opened:
            by_lower_name = {name.lower(): name for name in opened.schema_arrow.names}
            ids = [by_lower_name[name.lower()] for name in names]
            batches = opened.iter_batches(columns=ids)
            digests += [digest(batch.column(name) for name in ids) for batch in batches]
    found = np.concatenate(digests) if digests else np.zeros(0, np.uint64)
    return len(np.unique(found)) < len(found)


def _why_not_comparable(published: Sequence[str], names: Sequence[str], now: DayRecord) -> str:
    if any(schema.SOURCE_FILE not in _columns(file) for file in published):
        return (
            "another program wrote files of the published day, as OPTIMIZE does, so that rows "
            "cannot be compared. Run the day instead."
        )
    if names == schema.SOURCE_IDENTITY and (
        gone := _sources(published) - set(map(name_anywhere, now.facts.input_files))
    ):
        return (
            f"the input was written again since the day was published ({min(gone)} is gone), so "
            "that rows cannot be compared. Run the day instead, or declare a row_id that no two "
            "rows share."
        )
    return ""


def _first_loss(
    published: Sequence[str],
    now: DayRecord,
    names: Sequence[str],
    outcomes: Sequence[str],
    *,
    answered: Sequence[str],
    which: str,
) -> str:
    """Return a sentence about rows that have one of the outcomes at a lookup, and no longer the
    answer of that lookup or of one that reads it; empty without such rows.
    """
    written, columns = written_files(now), {name for file in published for name in _columns(file)}
    unasked: dict[str, set[tuple[Any, ...]]] = {}
    new: set[tuple[Any, ...]] = set()  # of them, at lookups that the published run did not have
    for lookup in now.figures.lookups:
        if any(lookup.outcomes.get(outcome, 0) for outcome in outcomes):
            status = schema.status(lookup.name)
            rows = unasked[lookup.name] = {*row_ids(written, names, status, outcomes)}
            new |= set() if status.lower() in map(str.lower, columns) else rows

    def without_answers() -> Iterator[tuple[str, str, set[tuple[Any, ...]]]]:
        for whose, status, below in _statuses(now.facts.declared) if unasked else ():
            # a lookup above one that was not asked is skipped
            hidden = set[tuple[Any, ...]]().union(*(unasked.get(name, ()) for name in below))
            unanswered = row_ids(written, names, status, (*outcomes, "skipped"))
            yield whose, status, hidden.intersection(unanswered)
        for name in _former_lookups(now.facts.declared, columns) if new else ():  # renamed, perhaps
            yield f"lookup {name}, which is no longer declared", schema.status(name), new

    for whose, status, without in without_answers():
        if lost := sum(row in without for row in row_ids(published, names, status, answered)):
            rows_have = counted(lost, "row has", "rows have")
            return (
                f"{whose}: {rows_have} an answer in the published day {which}, and would lose it."
            )
    return ""


def _former_lookups(declared: DeclaredFacts, columns: Iterable[str]) -> list[str]:
    """Return the lookups with these audit columns that are declared no more."""
    found = (re.fullmatch("_(.+)_attempts", column) for column in columns)
    known = {lookup.name.lower() for lookup in declared.lookups}
    return sorted(name[1] for name in found if name and name[1].lower() not in known)


def written_files(run: DayRecord) -> list[str]:
    """Return the files of a run; a store has none without rows."""
    return [file for file in run.facts.published_files if is_there(file)]


def _columns(file: str) -> list[str]:
    names: list[str] = read_schema(file).names
    return names


def _sources(files: Iterable[str]) -> set[str]:
    """Return the input's files whose rows are in these files."""
    found: set[str] = set()
    for file in files:
        rows = pq.read_table(parquet_source(file), columns=[schema.SOURCE_FILE], partitioning=None)
        places = map(path_from_spark, pc.unique(rows[schema.SOURCE_FILE]).to_pylist())
        found.update(map(name_anywhere, places))
    return found


def _statuses(declared: DeclaredFacts) -> Iterator[tuple[str, str, set[str]]]:
    """Yield each waterfall and lookup, in words, with the column of its status and the lookups that
    its answers come from or depend on.
    """
    below = _below(declared)
    for choice in declared.choices:
        vendors = set[str]().union(*(below[vendor] for vendor in choice.vendors))
        yield f"waterfall {choice.name}", choice.status, vendors
    for lookup in declared.lookups:
        yield f"lookup {lookup.name}", schema.status(lookup.name), below[lookup.name]


def _below(declared: DeclaredFacts) -> dict[str, set[str]]:
    """Map each lookup to itself and the lookups whose answers its keys read, at any level."""
    found: dict[str, set[str]] = {}
    writers: dict[str, str] = {}  # column of an answer, or of a status -> its lookup
    for lookup in declared.lookups:
        read = {column.lower() for _, sql in lookup.keys for column in columns_in("keys", sql)}
        direct = {writers[column] for column in read & writers.keys()}
        found[lookup.name] = {lookup.name}.union(*(found[other] for other in direct))
        columns = [*lookup.columns, schema.published_status(lookup.name)]
        writers |= {column.lower(): lookup.name for column in columns}
    return found


def row_ids(
    files: Iterable[str], names: Sequence[str], column: str, outcomes: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the ids of the rows with these outcomes in the column of a status."""
    for file in files:
        by_lower_name = {name.lower(): name for name in _columns(file)}
        status = by_lower_name.get(column.lower())
        if status is not None:
            ids = [by_lower_name[name.lower()] for name in names]
            wanted = [*dict.fromkeys([status, *ids])]
            rows = pq.read_table(parquet_source(file), columns=wanted, partitioning=None)
            matching = rows.filter(pc.is_in(rows[status], value_set=pa.array(outcomes)))
            values = (names_anywhere(name, matching[name]) for name in ids)
            yield from zip(*map(readable_values, values), strict=True)
