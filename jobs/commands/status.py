"""`status`: reads the records of the last days of an enrichment, and its runs without a record."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from jobs.commands.day_range import day_range, has_day
from jobs.declare.enrichment import Enrichment
from jobs.declare.values.calendar import FRAME, day_begin, last_ended
from jobs.errors import NoInput
from jobs.schema.records import DayRecord, RunBill, UnwrittenRun
from jobs.storage.urls import absolute
from jobs.tables.records import run_records
from jobs.tables.records.killed_runs import as_published, unended_runs, with_costs

CLOCKS_DIFFER = dt.timedelta(days=1)  # of the disk and of runs; at most


@dataclass(frozen=True)
class RecentRuns:
    """The runs of the last days of an enrichment.

    Attributes:
        days: The days, in order: those that the schedule wants, and others that have run, but for
            those that only ever had no input, as a mistyped one.
        records: The records of their runs.
        ended: Their runs that wrote no files, or are at work.
        others: Records of other days, with each run that started since `since`.
        bills: The bills of runs without a record, likewise, of any day.
    """

    days: tuple[str, ...]
    records: tuple[DayRecord, ...]
    ended: tuple[UnwrittenRun, ...]
    others: tuple[DayRecord, ...]
    bills: tuple[RunBill, ...]


def recent_runs(
    enrichment: Enrichment, count: int, now: dt.datetime, since: dt.datetime
) -> RecentRuns:
    """Return the runs of the last `count` days, and the runs that started since a moment.

    It reads no record of a day before, unless a run of it has written since then.

    Raises TidegateError if a record, or the store with those of other machines, cannot be read.
    """
    name = enrichment.name
    run_records.fetch(name, enrichment.output.path)
    known = [day for day in run_records.days(name) if day != FRAME]
    wanted = scheduled_days(enrichment, count, now)
    if not isinstance(enrichment.input.every, str):
        days = sorted({*known, *wanted})
    elif wanted:
        days = sorted({*wanted, *(day for day in known if day >= wanted[0])})
    else:
        days = known[-count:]
    changed = run_records.days(name, changed_since=(since - CLOCKS_DIFFER).timestamp())
    # first, because a run that ends meanwhile saves its record and then removes its bill
    bills = [bill for day in changed for bill in run_records.bills(name, day)]
    runs = {day: _runs_of_day(enrichment, day) for day in days}
    days = [day for day in days if day in wanted or not _had_no_input(*runs[day])]
    records = tuple(record for day in days for record in runs[day][0])
    ended = tuple(run for day in days for run in runs[day][1])
    others = tuple(
        record for day in changed if day not in days for record in run_records.load(name, day)
    )
    recorded = {record.facts.run_id for record in (*records, *others)}
    open_bills = tuple(bill for bill in bills if bill.run_id not in recorded)
    return RecentRuns(tuple(days), records, ended, others, open_bills)


def runs_of_day(enrichment: Enrichment, day: str) -> tuple[list[DayRecord], list[UnwrittenRun]]:
    """Return a day's runs that wrote files, and the others with their costs, at work too.

    Raises TidegateError.
    """
    run_records.fetch(enrichment.name, enrichment.output.path)
    written, ended = _runs_of_day(enrichment, day)
    return written, with_costs(ended)


def _runs_of_day(enrichment: Enrichment, day: str) -> tuple[list[DayRecord], list[UnwrittenRun]]:
    name = enrichment.name
    table = enrichment.output.path
    written = as_published(run_records.load(name, day), table)
    unwritten = run_records.unwritten(name, day)
    unended = unended_runs(name, table, day, records=written, unwritten=unwritten)
    return written, [*unwritten, *unended]


def _had_no_input(written: Sequence[DayRecord], ended: Sequence[UnwrittenRun]) -> bool:
    states = {run.state for run in ended}
    return not written and states == {NoInput.state}


def unseen_days(enrichment: Enrichment, records: Sequence[DayRecord]) -> dict[str, str]:
    """Return why readers of the declared table do not see published days, by day.

    Raises TidegateError if the table cannot be read.
    """
    if not any(record.state == "published" for record in records):
        return {}
    # imports deltalake, which a table without a published day does not need
    from jobs.tables.records.published_runs import was_published
    from jobs.tables.shown.shown_days import lost_days

    table = enrichment.output.path
    unseen = {day: f"it {why}" for day, why in lost_days(enrichment, records)}
    for record in records:
        published_to, day = record.facts.declared.table, record.facts.day
        if record.state != "published" or absolute(published_to) == absolute(table):
            continue
        if not was_published(table, record.facts):
            unseen[day] = (
                f"it was published to {published_to}, and not yet to {table}, which is declared now"
            )
    return unseen


def scheduled_days(enrichment: Enrichment, count: int, now: dt.datetime) -> list[str]:
    """Return which of the last `count` days, or their hours, a daily schedule wants; all names."""
    every, zone = enrichment.input.every, enrichment.zone
    if not isinstance(every, str):
        return [*every] if enrichment.schedule else []
    if enrichment.schedule is None or enrichment.schedule.split()[2:] != ["*", "*", "*"]:
        return []
    last = last_ended(now, every, zone)
    latest = day_begin(last, zone).astimezone(ZoneInfo(zone)).date()
    declared = (latest - dt.date.fromisoformat(enrichment.start)).days
    first = latest - dt.timedelta(days=max(0, min(count - 1, declared)))
    days = day_range(enrichment, first.isoformat(), last, names=("start", "now"))
    return [day for day in days if has_day(enrichment, day)]
