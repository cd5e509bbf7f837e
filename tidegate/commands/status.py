"""`tidegate status`: prints the last days of all tables, what is wrong first; no call."""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jobs.declare.finding.discovery import declared_in, list_modules
from jobs.errors import DeclarationError, TidegateError
from jobs.schema.facts import Facts
from jobs.wording import counted, listed
from tidegate.commands.command import (
    FAILED,
    RIGHT,
    Command,
    add_json_object,
    add_package,
    named,
    print_json,
)
from tidegate.commands.lines import aligned, entry

if TYPE_CHECKING:
    from data_quality.report.days import Day
    from jobs.declare.enrichment import Enrichment

DAYS = 14
MISSING, WAITING, RUNNING, PUBLISHED = "missing", "waiting", "running", "published"
FINE = {PUBLISHED, WAITING, RUNNING}
FIGURES = ("rows", "calls", "answers_from_ledger", "dead_letters", "cost")
HEADINGS = ("table", "day", "state", "rows", "calls", "cost", "readers see", "published at")


@dataclass(frozen=True)
class DayStatus(Facts):
    """A day of a table; the figures are of its last run that wrote files."""

    day: str
    state: str  # of its last run; missing: none; waiting: none yet, and it is not due
    reason: str
    next_step: str  # empty if nothing is to do
    rows: int | None = None
    calls: int | None = None
    answers_from_ledger: int | None = None
    dead_letters: int | None = None
    cost: dict[str, float] = field(default_factory=dict)  # by currency
    version: int | None = None  # of the table, by the run that readers see; None: none is seen
    published_at: str | None = None  # ISO 8601, UTC


@dataclass(frozen=True)
class TableStatus(Facts):
    """The last days of a table."""

    enrichment: str
    table: str
    days: tuple[DayStatus, ...]  # oldest first
    published_day: str | None = None  # the newest that readers see, of these days
    error: str = ""  # why its records, or its declaration, cannot be read; empty: they can

    @property
    def last(self) -> DayStatus | None:
        return self.days[-1] if self.days else None

    @property
    def bad(self) -> list[DayStatus]:
        return [day for day in self.days if day.state not in FINE]

    @property
    def rank(self) -> tuple[int, str]:
        """Sorts tables: those without their last day, those without another, the others."""
        last = self.error or (self.last is not None and self.last.state not in FINE)
        return 0 if last else 1 if self.bad else 2, self.enrichment


@dataclass(frozen=True)
class Status(Facts):
    """The tables of a package, what is wrong first."""

    at: str
    tables: tuple[TableStatus, ...]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("enrichment", nargs="?", metavar="ENRICHMENT", help="by default all")
    add_package(parser)
    parser.add_argument(
        "--days", type=int, default=DAYS, metavar="N", help=f"the last ones ({DAYS})"
    )
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    if options.days < 1:
        raise DeclarationError(f"--days is {options.days}; it must be at least 1.")
    now = dt.datetime.now(dt.UTC)
    if options.enrichment:
        tables = [_status(named(options).enrichment, options.days, now)]
    else:
        tables = [*_all_tables(options.package, options.days, now)]
    found = Status(
        now.isoformat(timespec="seconds"), tuple(sorted(tables, key=lambda one: one.rank))
    )
    if options.json:
        print_json(found)
    else:
        for line in _lines(found, each_day=options.enrichment is not None):
            print(line)
    return FAILED if any(table.rank[0] == 0 for table in found.tables) else RIGHT


def _all_tables(package: str, days: int, now: dt.datetime) -> Iterator[TableStatus]:
    seen: list[Enrichment] = []
    for module in list_modules(package):
        try:
            found = declared_in(module)
        except DeclarationError as error:
            yield TableStatus(module, "", (), error=str(error))
            continue
        for _, enrichment in found:
            if not any(enrichment is other for other in seen):
                seen.append(enrichment)
                yield _status(enrichment, days, now)


def _status(enrichment: Enrichment, count: int, now: dt.datetime) -> TableStatus:
    from data_quality.report.days import days_of
    from jobs.commands.status import recent_runs

    name, table = enrichment.name, enrichment.output.path
    try:
        runs = recent_runs(enrichment, count, now)
    except TidegateError as error:
        return TableStatus(name, table, (), error=str(error))
    known = {day.day: day for day in days_of(runs.records, runs.ended)}
    days = [_day(enrichment, day, known.get(day), now) for day in runs.days]
    shown = [day.day for day in days if day.published_at is not None]
    return TableStatus(name, table, tuple(days), shown[-1] if shown else None)


def _day(enrichment: Enrichment, name: str, day: Day | None, now: dt.datetime) -> DayStatus:
    from orchestration.common.day_results import figures

    if day is None:
        due = _due(enrichment, name)
        waits = due is not None and now < due
        reason = f"it is due by {due:%Y-%m-%d %H:%M} UTC" if waits else "no run of it is recorded"
        step = "" if waits else f"Run it: `tidegate run {enrichment.name} --day {name}`."
        return DayStatus(name, WAITING if waits else MISSING, reason, step)
    found = DayStatus(name, day.state, day.reason, next_step(enrichment, day))
    if day.shown is not None:
        shown = day.shown
        found = replace(found, version=shown.published_version, published_at=shown.published_at)
    counts = {} if day.record is None else figures(day.record)
    return replace(found, **{name: counts[name] for name in FIGURES if name in counts})


def _due(enrichment: Enrichment, day: str) -> dt.datetime | None:
    """Return when a day is wanted: by `publish_by`, else when the schedule starts its run."""
    from orchestration.common.deadlines import deadline

    by = enrichment.publish_by
    minute, hour = (enrichment.schedule or "* *").split()[:2]
    if by is None and minute.isdigit() and hour.isdigit():
        by = f"{hour:0>2}:{minute:0>2}"
    if by is None or enrichment.input.every != "day":
        return None
    return deadline(replace(enrichment, publish_by=by), day)


def next_step(enrichment: Enrichment, day: Day) -> str:
    """Return what to do about a day; empty if nothing is to do."""
    from data_quality.next_step import next_step as next_step_of

    if day.state in FINE:
        return ""
    if day.unwritten is None and day.record is not None:
        return next_step_of(day.record)
    again = f"Run it again: `tidegate run {enrichment.name} --day {day.day}`."
    return (day.unwritten.next_step if day.unwritten else "") or again


def _lines(found: Status, *, each_day: bool) -> Iterator[str]:
    for table in found.tables:
        yield from _wrong(table)
    rows = []
    for table in found.tables:
        if each_day:
            shown = [day if day.published_at else None for day in table.days]
            rows += [_row(table, *day) for day in zip(table.days, shown, strict=True)][::-1]
        elif table.last is not None:
            seen = (day for day in table.days if day.day == table.published_day)
            rows.append(_row(table, table.last, next(seen, None)))
    if rows:
        yield from aligned([HEADINGS, *rows], right=(3, 4))
    idle = [table.enrichment for table in found.tables if not table.days and not table.error]
    if idle:
        yield f"No run yet: {listed(idle, 10)}."


def _wrong(table: TableStatus) -> Iterator[str]:
    if table.error:
        yield f"{table.enrichment}  WRONG"
        yield from entry("", table.error, 2)
        yield ""
    for day in reversed(table.bad):
        if day.state != MISSING or day is table.last:
            yield f"{table.enrichment}  {day.day}  {day.state.upper()}"
            yield from entry("", day.reason, 2)
            yield from entry("next: ", day.next_step, 2)
            yield ""
    missing = [day for day in table.bad if day.state == MISSING and day is not table.last]
    if missing:
        count = counted(len(missing), "day")
        yield f"{table.enrichment}  {count} of the last {len(table.days)} MISSING"
        yield from entry("", listed(_spans(table.days), 10), 2)
        yield ""


def _spans(days: Sequence[DayStatus]) -> list[str]:
    """Return the missing days before the last, those in a row as `2013-01-08 to 2013-01-10`."""
    spans = []
    for is_missing, group in itertools.groupby(days[:-1], lambda day: day.state == MISSING):
        names = [day.day for day in group]
        if is_missing:
            spans.append(names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}")
    return spans


def _row(table: TableStatus, day: DayStatus, shown: DayStatus | None) -> Sequence[str]:
    version = "" if shown is None or shown.version is None else f", version {shown.version}"
    return (
        table.enrichment,
        day.day,
        day.state,
        "" if day.rows is None else f"{day.rows:,}",
        "" if day.calls is None else f"{day.calls:,}",
        ", ".join(f"{money:,.4f} {currency}" for currency, money in day.cost.items()),
        f"{shown.day}{version}" if shown else "nothing",
        ((shown and shown.published_at) or "")[:16].replace("T", " "),
    )


COMMAND = Command(
    "status",
    "the last days of every table: what is wrong and what to do first; rows, calls, cost",
    _add_arguments,
    _run,
)
