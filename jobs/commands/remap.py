"""`remap`: reruns published days from stored responses, with the columns that are declared now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
NOT_ANSWERED = ("not_asked", "skipped")


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


def explain_lost_answers(before: DayRecord | None, now: DayRecord) -> str:
    if before is None:
        return ""
    names = now.facts.declared.row_id
    if not names or names != before.facts.declared.row_id:
        names = schema.SOURCE_IDENTITY
    unasked: set[tuple[Any, ...]] = set()
    for lookup in now.figures.lookups:
        if not lookup.outcomes.get("not_asked", 0):
            continue
        if names == schema.SOURCE_IDENTITY and (
            gone := set(before.facts.input_files) - set(now.facts.input_files)
        ):
            return (
                f"lookup {lookup.name}: some rows have no stored response, and the input was "
                f"written again since the day was published ({min(gone)} is gone), so that rows "
                "cannot be compared. Run the day instead, or declare row_id."
            )
        unasked.update(_ids(now, names, schema.status(lookup.name), ("not_asked",)))
    for whose, status in _statuses(now.facts.declared) if unasked else ():
        # a lookup above one that was not asked is skipped
        without = unasked.intersection(_ids(now, names, status, NOT_ANSWERED))
        lost = sum(row in without for row in _ids(before, names, status, ANSWERED))
        if lost:
            return (
                f"{whose}: {counted(lost, 'row has', 'rows have')} an answer in the published day "
                "whose response the ledger does not hold, and would lose it. Run the day instead, "
                "which asks for them."
            )
    return ""


def _statuses(declared: DeclaredFacts) -> Iterator[tuple[str, str]]:
    """Yield each lookup and waterfall, in words, with the column of its status."""
    for lookup in declared.lookups:
        yield f"lookup {lookup.name}", schema.status(lookup.name)
    for choice in declared.choices:
        yield f"waterfall {choice.name}", choice.status


def _ids(
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
                *(matching[by_lower_name[name.lower()]].to_pylist() for name in names),
                strict=True,
            )
