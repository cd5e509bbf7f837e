"""The days of an enrichment, each with its last run, from the records of its runs."""

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from data_quality.report.day_runs import RunLine, list_day_runs
from jobs.schema.records import DayRecord, UnwrittenRun, Verdict
from jobs.wording import counted


@dataclass(frozen=True)
class Day:
    """A day with its last runs; at least one of `record` and `unwritten` is set.

    Attributes:
        day: The day.
        record: The last run that wrote files.
        unwritten: A later run that wrote none.
        shown: The run whose rows readers see.
        runs: All runs of the day, oldest first.
    """

    day: str
    record: DayRecord | None
    unwritten: UnwrittenRun | None
    shown: DayRecord | None = None
    runs: tuple[RunLine, ...] = ()

    @property
    def state(self) -> str:
        """The state of the last run; `written` until the day is published or held back."""
        if self.unwritten is not None:
            return self.unwritten.state
        return state(self.record) if self.record else ""

    @property
    def reason(self) -> str:
        if self.unwritten is not None:
            return self.unwritten.reason
        return reason(self.record) if self.record else ""

    @property
    def ended_at(self) -> str:
        if self.unwritten is not None:
            return self.unwritten.ended_at
        return self.record.facts.finished_at if self.record else ""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return () if self.record is None else self.record.verdicts

    @property
    def is_published(self) -> bool:
        """Whether readers see the recorded run, whatever came later without files."""
        return self.record is not None and self.record.state == "published"


def list_days(records: Sequence[DayRecord], unwritten: Sequence[UnwrittenRun]) -> list[Day]:
    """Return the days in order. A run without files counts until a later run writes files."""
    written = {record.facts.day: record for record in _in_order(records)}
    ended = {run.day: run for run in sorted(unwritten, key=lambda run: run.started_at)}
    shown = {
        record.facts.day: record for record in _in_order(records) if record.state == "published"
    }
    records_of: dict[str, list[DayRecord]] = defaultdict(list)
    unwritten_of: dict[str, list[UnwrittenRun]] = defaultdict(list)
    for record in records:
        records_of[record.facts.day].append(record)
    for run in unwritten:
        unwritten_of[run.day].append(run)
    days = []
    for day in sorted(written.keys() | ended.keys()):
        last, later = written.get(day), ended.get(day)
        is_later = later is not None and (
            last is None
            or later.run_id == last.facts.run_id  # it ended after it had written
            or _time(later.started_at) > _time(last.facts.started_at)
        )
        runs = list_day_runs(day, records_of[day], unwritten_of[day])
        days.append(Day(day, last, later if is_later else None, shown.get(day), runs))
    return days


def _in_order(records: Sequence[DayRecord]) -> list[DayRecord]:
    return sorted(records, key=lambda record: record.order)


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def state(record: DayRecord) -> str:
    """Return the state of a record; verdicts may already hold a `written` record back."""
    if record.state == "written" and record.red:
        return "held back"
    return record.state


def reason(record: DayRecord) -> str:
    """Return why a run has its state: the verdict that holds its day back, or how many passed."""
    if record.reason:
        return record.reason
    if stops := record.red:
        more = f" ({len(stops)} checks hold the day back)" if len(stops) > 1 else ""
        return f"{stops[0].check}: {stops[0].sentence}{more}"
    warnings = [verdict for verdict in record.verdicts if verdict.status == "failed"]
    count = sum(verdict.status == "passed" for verdict in record.verdicts)
    passed = f"{counted(count, 'check')} passed"
    if warnings:
        return f"{passed}; a warning: {warnings[0].check}: {warnings[0].sentence}"
    not_run = [verdict for verdict in record.verdicts if verdict.status == "not_run"]
    return passed + (f", {len(not_run)} not run" if not_run else "")
