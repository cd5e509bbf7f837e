"""Was the day that is due published by its deadline? A check of the partition due, not of the one touched last."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from jobs.tables import run_records
from orchestration.common.deadlines import day_due, deadline, local_time
from orchestration.dagster.assets.day_status import published_times
from orchestration.dagster.assets.metadata import checks_in_words
from orchestration.dagster.declared import Declared
from orchestration.dagster.schedules import PUBLISHED_IN_TIME
from orchestration.dagster.sensors.starts_days import Clock, utc_now


@dataclass(frozen=True)
class FreshnessResult:
    """passed is True, too, where nothing is due."""

    passed: bool
    sentence: str
    day: str = ""
    deadline: str = ""
    checks: str = ""  # of the day's last run that wrote files: a later backfill hides them nowhere here

    def evaluation(self, declared: Declared) -> dg.AssetCheckEvaluation:
        return dg.AssetCheckEvaluation(
            asset_key=declared.key,
            check_name=PUBLISHED_IN_TIME,
            passed=self.passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=self.sentence,
            metadata={"day": self.day, "deadline": self.deadline, "checks": self.checks} if self.day else {},
        )


def freshness(declared: Declared, now: dt.datetime) -> FreshnessResult:
    day = day_due(declared.enrichment, now)
    until = deadline(declared.enrichment, day) if day else None
    if day is None or until is None:
        return FreshnessResult(True, f"No day of {declared.name} is due.")
    first = min(published_times(declared, day), default=None)
    by = f"{local_time(declared.enrichment, until)}, its deadline"
    if first is None:
        sentence = f"{day} is not published; {by}, has passed."
    else:
        late = f"{(first - until) // dt.timedelta(minutes=1)} min after" if first > until else "before"
        sentence = f"{day} was published at {local_time(declared.enrichment, first, '%F %H:%M')}, {late} {by}."
    written = run_records.load(declared.name, day)
    checks = checks_in_words(written[-1]) if written else "none ran"
    return FreshnessResult(
        first is not None and first <= until, sentence, day, until.isoformat(timespec="minutes"), checks
    )


def freshness_check(declared: Declared, now: Clock = utc_now) -> dg.AssetChecksDefinition:

    @dg.asset_check(
        asset=declared.key,
        name=PUBLISHED_IN_TIME,
        description=(
            f"The day that is due was published by {declared.enrichment.publish_by} of the day after, in "
            f"{declared.enrichment.zone}. Answered at the deadline by the sensor tidegate_reports_days, and again when "
            "the day comes late."
        ),
    )
    def check() -> dg.AssetCheckResult:
        found = freshness(declared, now())
        reported = found.evaluation(declared)
        return dg.AssetCheckResult(
            passed=reported.passed,
            severity=reported.severity,
            description=reported.description,
            metadata=reported.metadata,
        )

    return check


def changed(
    all_declared: Sequence[Declared], reported: dict[str, str], now: dt.datetime
) -> Iterator[dg.AssetCheckEvaluation]:
    """What is new of the days that are due. reported: the last sentence on each enrichment, which this updates."""
    for declared in all_declared:
        found = freshness(declared, now)
        if found.day and reported.get(declared.name) != found.sentence:
            reported[declared.name] = found.sentence
            yield found.evaluation(declared)
