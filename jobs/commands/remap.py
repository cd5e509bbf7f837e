"""`remap`: published days again from stored responses, with the columns and paths declared now; no call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from jobs import records
from jobs.errors import DeclarationError

if TYPE_CHECKING:
    from jobs.commands.target import Target
    from jobs.declarations import Enrichment
    from jobs.nightly import DayOutcome
    from jobs.schema import DayRecord, LookupFigures

OPTIONS = ("--no-calls", "--ignore-ttl")  # of the Spark program
ANSWERED = ("ok", "miss", "fallback")


def published_days(enrichment: Enrichment, first: str, last: str | None = None) -> list[str]:
    """The days that readers see, from `first` to `last`, both included; to the newest by default."""
    if not DeltaTable.is_deltatable(enrichment.output.path):
        return []
    partitions = DeltaTable(enrichment.output.path).partitions()
    days = {str(partition[enrichment.input.partition]) for partition in partitions}
    return sorted(day for day in days if first <= day and (last is None or day <= last))


def remap(target: Target, days: Iterable[str]) -> Iterator[DayOutcome]:
    """Run the days from stored answers of any age; the first that is not published is the last.

    A day is held back when a row that had an answer would lose it, as the ledger has it no more. Raises
    DeclarationError without a ledger, and DayTaken.
    """
    enrichment = target.enrichment
    if enrichment.ledger is None:
        raise DeclarationError(f"{enrichment.name} keeps no ledger: there are no stored responses to map anew.")
    for day in days:
        published = last_published(enrichment.name, day)
        outcome = target.run(day, OPTIONS, lambda record, before=published: lost_answers(before, record))  # type: ignore[misc]
        yield outcome
        if not outcome.is_published:
            return


def last_published(enrichment: str, day: str) -> DayRecord | None:
    """The record of the run whose files readers see."""
    published = [record for record in records.load(enrichment, day) if record.state == "published"]
    return max(published, key=lambda record: record.published_version or 0, default=None)


def lost_answers(before: DayRecord | None, now: DayRecord) -> str:
    """Why the day must not replace the published one, if it has answers that are not stored any more; else empty."""
    if before is None:
        return ""
    had = {lookup.name: lookup for lookup in before.figures.lookups}
    for lookup in now.figures.lookups:
        lost = _answered(had[lookup.name]) - _answered(lookup) if lookup.name in had else 0
        if lost > 0 and lookup.outcomes.get("not_asked", 0):
            return (
                f"lookup {lookup.name}: {lost:,} rows have an answer in the published day whose response the ledger "
                "does not hold; they would lose it. Run the day instead, which asks for them."
            )
    return ""


def _answered(lookup: LookupFigures) -> int:
    return sum(lookup.outcomes.get(outcome, 0) for outcome in ANSWERED)
