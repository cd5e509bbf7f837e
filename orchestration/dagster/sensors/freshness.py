"""Checks whether the day that is due was published by its deadline."""

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg

from jobs.tables.records import run_records
from orchestration.common.deadlines import day_due, deadline, local_time
from orchestration.dagster.assets.day_status import published_times
from orchestration.dagster.assets.metadata import checks_in_words
from orchestration.dagster.declared import Declared
from orchestration.dagster.errors import noting
from orchestration.dagster.schedules import PUBLISHED_IN_TIME
from orchestration.dagster.sensors.starts_days import Clock, utc_now


def freshness(declared: Declared, now: dt.datetime) -> dg.AssetCheckEvaluation:
    """Evaluate the check; it passes, without metadata, if no day is due."""
    evaluation = partial(
        dg.AssetCheckEvaluation,
        declared.key,
        PUBLISHED_IN_TIME,
        severity=dg.AssetCheckSeverity.WARN,
    )
    day = day_due(declared.enrichment, now)
    until = deadline(declared.enrichment, day) if day else None
    if day is None or until is None:
        return evaluation(passed=True, description=f"No day of {declared.name} is due.")
    first = min(published_times(declared, day), default=None)
    by = f"{local_time(declared.enrichment, until)}, its deadline"
    if first is None:
        sentence = f"{day} is not published; {by}, has passed."
    else:
        late = (
            f"{(first - until) // dt.timedelta(minutes=1)} min after" if first > until else "before"
        )
        sentence = (
            f"{day} was published at {local_time(declared.enrichment, first, '%F %H:%M')}, "
            f"{late} {by}."
        )
    written = run_records.load(declared.name, day)
    # of the last run that wrote files
    checks = checks_in_words(written[-1]) if written else "none ran"
    return evaluation(
        passed=first is not None and first <= until,
        description=sentence,
        metadata={"day": day, "deadline": until.isoformat(timespec="minutes"), "checks": checks},
    )


def freshness_check(declared: Declared, now: Clock = utc_now) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=declared.key,
        name=PUBLISHED_IN_TIME,
        description=(
            f"The day that is due was published by {declared.enrichment.publish_by} of the day "
            f"after, in {declared.enrichment.zone}. Answered at the deadline by the sensor "
            f"{declared.names.shared('reports_days')}, and again when the day comes late."
        ),
    )
    def check() -> dg.AssetCheckResult:
        found = freshness(declared, now())
        return dg.AssetCheckResult(
            passed=found.passed,
            severity=found.severity,
            description=found.description,
            metadata=found.metadata,
        )

    return check


def changed(
    all_declared: Sequence[Declared], reported: dict[str, str], now: dt.datetime, unread: list[str]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield changed evaluations of due days.

    Updates the last sentences in `reported`, and adds to `unread` what cannot be read.
    """
    for declared in all_declared:
        with noting(unread, declared.name):
            found = freshness(declared, now)
            if (
                found.metadata
                and found.description
                and reported.get(declared.name) != found.description
            ):
                reported[declared.name] = found.description
                yield found
