"""`remap`: reruns published days from stored responses, with the columns that are declared now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.arrow_values import readable_values
from jobs.commands.day_range import day_end
from jobs.declare.values.calendar import day_begin
from jobs.errors import DeclarationError
from jobs.process.day_options import DayOptions
from jobs.schema import columns as schema
from jobs.storage.parquet_files import parquet_source
from jobs.storage.stored_files import is_there
from jobs.tables.delta.delta_log import table_at
from jobs.tables.records.published_runs import last_published
from jobs.wording import counted

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.process.day_events import DayEvent
    from jobs.process.day_pipeline import DayPipeline
    from jobs.schema.records import DayRecord, DeclaredFacts

OPTIONS = ("--no-calls", "--ignore-ttl")  # of the Spark program
ANSWERED = (*schema.HAS_ANSWER, "miss")


def published_days(enrichment: Enrichment, first: str, last: str | None = None) -> list[str]:
    """Return the published days from `first` to `last`, or to the newest.

    Partitions that are names have no order: then only `first`.
    """
    table = table_at(enrichment.output.path)
    partitions = [] if table is None else table.partitions()
    days = {str(partition[enrichment.input.partition]) for partition in partitions}
    if not isinstance(enrichment.input.every, str):
        return [day for day in (first,) if day in days]
    zone = enrichment.zone
    begin, end = (
        day_begin(first, zone),
        day_end(last, zone) if last else dt.datetime.max.replace(tzinfo=dt.UTC),
    )
    return sorted(day for day in days if begin <= day_begin(day, zone) < end)


def remap(pipeline: DayPipeline, days: Sequence[str]) -> Iterator[DayEvent]:
    """Run the days from stored answers of any age, without a call, until a day is not published.

    A day is held back if a row would lose its answer because the ledger no longer has it, or if
    that cannot be told.

    Raises:
        DeclarationError: The enrichment has no ledger.
    """
    enrichment = pipeline.enrichment
    if enrichment.ledger is None:
        raise DeclarationError(
            f"{enrichment.name} has no ledger: there are no stored responses to map."
        )
    return pipeline.run(days, DayOptions(OPTIONS, accept=why_answers_are_lost, until_red=True))


def why_answers_are_lost(record: DayRecord) -> str:
    """Return why a day would lose answers of the published day; empty if it would not."""
    facts = record.facts
    table = facts.declared.table
    before = last_published(facts.declared.enrichment, facts.day, table=table)
    return explain_lost_answers(before, record)


def why_calls_lose_answers(record: DayRecord) -> str:
    """Return why failed calls take answers away from readers, as a replayed vendor's where the next
    vendor had answered; empty if they do not, or if the rows cannot be compared.
    """
    facts = record.facts
    before = last_published(facts.declared.enrichment, facts.day, table=facts.declared.table)
    names = facts.declared.row_id
    if before is None or names != before.facts.declared.row_id:
        return ""
    if names == schema.SOURCE_IDENTITY and before.facts.input_files != facts.input_files:
        return ""
    which = "that a failed call would hide"
    answered = schema.HAS_ANSWER
    return _first_loss(before, record, names, schema.FAILED, answered=answered, which=which)


def explain_lost_answers(before: DayRecord | None, now: DayRecord) -> str:
    if before is None:
        return ""
    names = now.facts.declared.row_id
    if not names or names != before.facts.declared.row_id:
        names = schema.SOURCE_IDENTITY
    for lookup in now.figures.lookups:
        if (
            lookup.outcomes.get("not_asked", 0)
            and names == schema.SOURCE_IDENTITY
            and (gone := set(before.facts.input_files) - set(now.facts.input_files))
        ):
            return (
                f"lookup {lookup.name}: some rows have no stored response, and the input was "
                f"written again since the day was published ({min(gone)} is gone), so that rows "
                "cannot be compared. Run the day instead, or declare row_id."
            )
    which = "whose response the ledger does not hold"
    loss = _first_loss(before, now, names, ("not_asked",), answered=ANSWERED, which=which)
    return loss and f"{loss} Run the day instead, which asks for them."


def _first_loss(
    before: DayRecord,
    now: DayRecord,
    names: Sequence[str],
    outcomes: Sequence[str],
    *,
    answered: Sequence[str],
    which: str,
) -> str:
    """Return a sentence about rows that have one of the outcomes at a lookup, and no longer the
    answer of that or another lookup; empty without such rows.
    """
    unasked: set[tuple[Any, ...]] = set()
    for lookup in now.figures.lookups:
        if any(lookup.outcomes.get(outcome, 0) for outcome in outcomes):
            unasked.update(row_ids(now, names, schema.status(lookup.name), outcomes))
    for whose, status in _statuses(now.facts.declared) if unasked else ():
        # a lookup above one that was not asked is skipped
        without = unasked.intersection(row_ids(now, names, status, (*outcomes, "skipped")))
        lost = sum(row in without for row in row_ids(before, names, status, answered))
        if lost:
            return (
                f"{whose}: {counted(lost, 'row has', 'rows have')} an answer in the published day "
                f"{which}, and would lose it."
            )
    return ""


def _statuses(declared: DeclaredFacts) -> Iterator[tuple[str, str]]:
    """Yield each waterfall and lookup, in words, with the column of its status."""
    for choice in declared.choices:
        yield f"waterfall {choice.name}", choice.status
    for lookup in declared.lookups:
        yield f"lookup {lookup.name}", schema.status(lookup.name)


def row_ids(
    record: DayRecord, names: Sequence[str], column: str, outcomes: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the ids of the rows with these outcomes in the column of a status."""
    for file in filter(is_there, record.facts.published_files):  # vacuum removes files without rows
        by_lower_name = {name.lower(): name for name in pq.read_schema(parquet_source(file)).names}
        status = by_lower_name.get(column.lower())
        if status is not None:
            rows = pq.read_table(
                parquet_source(file),
                columns=list(
                    dict.fromkeys([status, *(by_lower_name[name.lower()] for name in names)])
                ),
                partitioning=None,
            )
            matching = rows.filter(pc.is_in(rows[status], value_set=pa.array(outcomes)))
            yield from zip(
                *(readable_values(matching[by_lower_name[name.lower()]]) for name in names),
                strict=True,
            )
