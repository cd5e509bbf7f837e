"""`remap`: reruns published days from stored responses, with the columns that are declared now."""

import datetime as dt
from collections.abc import Iterator, Sequence

from jobs.commands.day_range import day_end
from jobs.commands.lost_answers import why_answers_are_lost
from jobs.declare.enrichment import Enrichment
from jobs.declare.values.calendar import day_begin
from jobs.errors import DeclarationError
from jobs.process.day_events import DayEvent
from jobs.process.day_options import NO_CALLS, DayOptions
from jobs.process.day_pipeline import DayPipeline
from jobs.tables.delta.asked_keys import files_of_days


def published_days(enrichment: Enrichment, first: str, last: str | None = None) -> list[str]:
    """Return the published days from `first` to `last`, or to the newest.

    Partitions that are names have no order: then only `first`.
    """
    days = {day for day, _ in files_of_days(enrichment)}
    if not isinstance(enrichment.input.every, str):
        return [day for day in (first,) if day in days]
    zone = enrichment.zone
    begin = day_begin(first, zone)
    end = day_end(last, zone) if last else dt.datetime.max.replace(tzinfo=dt.UTC)
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
    return pipeline.run(days, DayOptions(NO_CALLS, accept=why_answers_are_lost, until_red=True))
