"""Reads the last days of a package's tables: their states, what to do, and what they cost."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from zoneinfo import ZoneInfo

from data_quality import next_step as held_back
from data_quality.report.days import Day, list_days
from jobs.commands.day_range import day_end
from jobs.commands.status import RecentRuns, recent_runs, unseen_days
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import discover_all
from jobs.declare.values.calendar import is_day
from jobs.errors import TidegateError
from jobs.schema.costs import sum_by_currency
from jobs.schema.facts import Facts
from jobs.tables.records import run_records
from jobs.tables.records.run_bills import charges_so_far, count_calls
from orchestration.common.day_results import figures
from orchestration.common.deadlines import deadline
from orchestration.common.states import PUBLISHED, RUNNING, WAITING

MISSING = "missing"
FINE = {PUBLISHED, WAITING, RUNNING}
OF_ROWS = ("rows", "answers_from_ledger")
FIGURES = (*OF_ROWS, "calls", "dead_letters", "cost")


@dataclass(frozen=True)
class DayStatus(Facts):
    """A day of a table; the figures are of its last run that wrote files."""

    day: str
    state: str  # of its last run; without a run: missing, or waiting until the day is due
    reason: str
    next_step: str  # empty if there is nothing to do
    rows: int | None = None
    calls: int | None = None
    answers_from_ledger: int | None = None
    dead_letters: int | None = None
    cost: dict[str, float] = field(default_factory=dict)  # by currency
    p99_ms: float | None = None  # of the answers of its slowest lookup
    version: int | None = None  # of the table, by the run that readers see; None: none is seen
    published_at: str | None = None  # ISO 8601, UTC

    @property
    def is_fine(self) -> bool:
        return self.state in FINE

    @property
    def waits(self) -> bool:
        """Whether a run of it waits for jobs of a vendor."""
        return self.state == WAITING and bool(self.next_step)

    @property
    def is_missing(self) -> bool:
        return self.state == MISSING


@dataclass(frozen=True)
class Work(Facts):
    """What the runs of a span of time did; of a stopped or killed run, and of `tidegate try`, only
    what is billed is known.
    """

    runs: int = 0
    rows: int = 0
    calls: int = 0
    answers_from_ledger: int = 0
    cost: dict[str, float] = field(default_factory=dict)  # by currency


@dataclass(frozen=True)
class TableStatus(Facts):
    """The last days of a table."""

    enrichment: str
    table: str
    days: tuple[DayStatus, ...]  # oldest first
    published_day: str | None = None  # the newest that readers see, of these days
    error: str = ""  # why its records, or its declaration, cannot be read; empty: they can
    last_24_hours: Work = field(default_factory=Work)
    this_month: Work = field(default_factory=Work)  # in UTC, as the bills of services

    @property
    def last(self) -> DayStatus | None:
        return self.days[-1] if self.days else None

    @property
    def bad(self) -> list[DayStatus]:
        return [day for day in self.days if not day.is_fine]

    @property
    def unpublished(self) -> list[DayStatus]:
        """The days to tell of: bad, or waiting for jobs of a vendor."""
        return [day for day in self.days if day.waits or not day.is_fine]

    @property
    def seen(self) -> DayStatus | None:
        """The newest day that readers see."""
        return next((day for day in self.days if day.day == self.published_day), None)

    @property
    def rank(self) -> tuple[int, str]:
        """Sort tables: a last day that is not fine comes first, then any other such day."""
        last = self.error or (self.last is not None and not self.last.is_fine)
        return 0 if last else 1 if self.bad else 2, self.enrichment


@dataclass(frozen=True)
class Status(Facts):
    """The tables of a package, what is wrong first."""

    at: str
    tables: tuple[TableStatus, ...]


def read_tables(package: str, days: int, now: dt.datetime) -> Status:
    """Read the last days of every table of a package; `error` says why a table cannot be read.

    Raises DeclarationError if there is no such package.
    """
    found, faults = discover_all(package)
    broken = [TableStatus(module, "", (), error=str(why)) for module, why in faults.items()]
    read = (read_table(discovered.enrichment, days, now) for discovered in found)
    return make_status([*broken, *read], now)


def make_status(tables: Iterable[TableStatus], now: dt.datetime) -> Status:
    ordered = sorted(tables, key=lambda table: table.rank)
    return Status(now.isoformat(timespec="seconds"), tuple(ordered))


def read_table(enrichment: Enrichment, count: int, now: dt.datetime) -> TableStatus:
    """Read the last `count` days of a table; if its records cannot be read, `error` says why."""
    name, table = enrichment.name, enrichment.output.path
    yesterday = now - dt.timedelta(hours=24)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    try:
        runs = recent_runs(enrichment, count, now, min(yesterday, month))
        known = {day.day: day for day in list_days(runs.records, runs.ended)}
        unseen = unseen_days(enrichment, runs.records)
        days = [_day(enrichment, day, known.get(day), unseen, now) for day in runs.days]
    except TidegateError as error:
        return TableStatus(name, table, (), error=str(error))
    shown = [day.day for day in days if day.published_at is not None]
    return TableStatus(
        name, table, tuple(days), shown[-1] if shown else None, "",
        _work(runs, yesterday), _work(runs, month),
    )  # fmt: skip


def _work(runs: RecentRuns, since: dt.datetime) -> Work:
    begin = since.isoformat()
    known = {record.facts.run_id: record for record in (*runs.records, *runs.others)}
    records = [
        record
        for record in known.values()
        if record.facts.started_at >= begin
        and not record.facts.run_id.startswith(run_records.FORGET)
    ]
    before = [figures(known[record.counts_too]) for record in records if record.counts_too in known]
    bills = [bill for bill in runs.bills if bill.started_at >= begin]
    counts = [figures(record) for record in records]
    unrecorded = [charge for bill in bills for charge in charges_so_far(bill).values()]
    costs = add_costs(
        *(count["cost"] for count in counts),
        *({charge.currency: float(charge.cost)} for charge in unrecorded),
    )
    rows, stored = (
        sum(count[name] for count in counts) - sum(count[name] for count in before)
        for name in OF_ROWS
    )
    calls = sum(count["calls"] for count in counts) + (count_calls(unrecorded) or 0)
    return Work(len(records) + len(bills), rows, calls, stored, costs)


def add_costs(*costs: Mapping[str, float]) -> dict[str, float]:
    """Return the sum of costs, by currency."""
    found = sum_by_currency(
        (currency, Decimal(str(money))) for cost in costs for currency, money in cost.items()
    )
    return {currency: float(money) for currency, money in sorted(found.items())}


def _day(
    enrichment: Enrichment, name: str, day: Day | None, unseen: Mapping[str, str], now: dt.datetime
) -> DayStatus:
    if day is None:
        due = _due(enrichment, name)
        waits = due is not None and now < due
        reason = f"it is due by {due:%Y-%m-%d %H:%M} UTC" if waits else "no run of it is recorded"
        step = "" if waits else f"Run it: `tidegate run {enrichment.name} --day {name}`."
        return DayStatus(name, WAITING if waits else MISSING, reason, step)
    state, reason, step = day_state(enrichment, day, unseen)
    found = DayStatus(name, state, reason, step)
    if day.shown is not None and name not in unseen:
        shown = day.shown
        found = replace(found, version=shown.published_version, published_at=shown.published_at)
    if day.record is None:
        return found
    counts = figures(day.record) | {"rows": day.record.rows_published}
    times = [lookup.latency_p99_ms or 0.0 for lookup in day.record.figures.lookups]
    slowest = max(times, default=0.0) or None
    return replace(found, p99_ms=slowest, **{name: counts[name] for name in FIGURES})


def _due(enrichment: Enrichment, day: str) -> dt.datetime | None:
    """Return when a day or hour is wanted: by `publish_by`, else when the schedule starts its run.

    A schedule with several times a day starts it within the next day.
    """
    by = enrichment.publish_by
    minute, hour = (enrichment.schedule or "* *").split()[:2]
    if enrichment.input.every == "hour":
        end = day_end(day, enrichment.zone)
        begun = end.astimezone(ZoneInfo(enrichment.zone)).minute  # of an hour of a half-hour zone
        wait = (int(minute) - begun) % 60 if minute.isdigit() else 60
        return end + dt.timedelta(minutes=wait)
    if not is_day(day):
        return None
    if by is None:
        is_daily = minute.isdigit() and hour.isdigit()
        by = f"{int(hour):02}:{int(minute):02}" if is_daily else "23:59"
    return deadline(replace(enrichment, publish_by=by), day)


def day_state(enrichment: Enrichment, day: Day, unseen: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the state of a day that was run, the reason, and what to do; empty if nothing is.

    `unseen` has the days whose published runs readers do not see, and why.
    """
    again = f"Run it again: `tidegate run {enrichment.name} --day {day.day}`."
    if day.state == PUBLISHED and day.day in unseen:
        return MISSING, unseen[day.day], again
    if day.state == WAITING and day.unwritten is not None:
        return day.state, day.reason, day.unwritten.next_step
    if day.state in FINE:
        return day.state, day.reason, ""
    if day.unwritten is None and day.record is not None:
        return day.state, day.reason, held_back.next_step(day.record)
    return day.state, day.reason, (day.unwritten.next_step if day.unwritten else "") or again
