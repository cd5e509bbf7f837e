"""`tidegate show`: prints an enrichment as declared, or a day: its runs, checks and lookups."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from data_quality.day_quality import REPORTS
from data_quality.report.day_runs import RunLine
from data_quality.report.days import list_days
from jobs.commands.status import runs_of_day, unseen_days
from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.process.day_events import PUBLISHED
from jobs.schema.facts import Facts
from jobs.schema.records import LookupMetrics, Verdict
from jobs.wording import priced
from orchestration.common.table_status import day_state
from tidegate.commands.command import (
    Command,
    add_day,
    add_enrichment,
    add_json_object,
    named,
    named_day,
    print_found,
)
from tidegate.commands.lines import aligned, entry
from tidegate.commands.ls import Declared, describe
from tidegate.commands.status import still_seen

RUNS = ("run", "started", "state", "rows", "calls", "from ledger", "letters", "cost")
LOOKUPS = ("lookup", "outcomes", "calls", "retried", "p50 ms", "p99 ms", "limited by")
SHORT = 12  # characters of a run's id; `diff` takes them too
ORDER = ("failed", "not_run", "passed")  # of checks


@dataclass(frozen=True)
class ShownDay(Facts):
    """A day: its runs, and the figures and checks of the last run that wrote files."""

    enrichment: str
    day: str
    state: str
    reason: str
    next_step: str
    runs: tuple[Any, ...]  # oldest first
    lookups: tuple[Any, ...]
    checks: tuple[Any, ...]  # without the rows of the evidence, which may be personal
    report: str | None  # None: a later run writes it, as after a kill of the first
    version: int | None = None  # of the table, that readers see; None: they see none
    published_at: str | None = None


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    add_day(parser)
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    found = named(options)
    day = named_day(options, found.enrichment)
    if day is None:
        declared = describe(found)
        return print_found(options, declared, _declared(declared))
    shown = show_day(found.enrichment, day)
    return print_found(options, shown, _day(shown))


def show_day(enrichment: Enrichment, day: str) -> ShownDay:
    """Return a day by its records. Raises DeclarationError if no run of it is recorded."""
    records, unwritten = runs_of_day(enrichment, day)
    days = list_days(records, unwritten)
    if not days:
        raise DeclarationError(
            f"{enrichment.name}: no run of {day} is recorded. Run it: `tidegate run "
            f"{enrichment.name} --day {day}`."
        )
    (found,) = days
    unseen = unseen_days(enrichment, records)
    seen = None if day in unseen else found.shown
    lookups = found.record.figures.lookups if found.record else ()
    report = REPORTS / enrichment.name / day / "index.html"
    checks = sorted(found.verdicts, key=lambda verdict: ORDER.index(verdict.status))
    return ShownDay(
        enrichment.name,
        day,
        *day_state(enrichment, found, unseen),
        found.runs,
        tuple(lookups),
        tuple(_without_rows(verdict) for verdict in checks),
        str(report) if report.exists() else None,
        *((seen.published_version, seen.published_at) if seen else ()),
    )


def _without_rows(verdict: Verdict) -> Mapping[str, Any]:
    names = ("check", "status", "severity", "sentence", "unexpected_count", "element_count")
    return {name: getattr(verdict, name) for name in names}


def _declared(found: Declared) -> Iterator[str]:
    yield f"{found.enrichment}  {found.reference}"
    fields = {
        "about": found.description, "owners": ", ".join(found.owners), "runbook": found.runbook,
        "input": found.input, "table": found.table, "ledger": found.ledger or "none",
        "schedule": found.schedule and f"{found.schedule} {found.zone}",
        "publish by": found.publish_by, "personal": ", ".join(found.personal),
    }  # fmt: skip
    for name, text in fields.items():
        if text:
            yield from entry(f"{name:12}", text, 2)
    for lookup in found.lookups:
        yield f"lookup {lookup.lookup}  {lookup.kind}, {lookup.service}"
        keys = ", ".join(f"{part} = {sql}" for part, sql in lookup.keys.items())
        yield from entry(f"{'keys':12}", keys, 2)
        if lookup.when:
            yield from entry(f"{'when':12}", lookup.when, 2)
        yield from entry(f"{'returns':12}", lookup.returns, 2)
    yield f"tidegate status {found.enrichment} prints its last days."


def _day(found: ShownDay) -> Iterator[str]:
    yield f"{found.enrichment}  {found.day}  {found.state}"
    yield from entry("", found.reason, 2)
    if found.state != PUBLISHED:
        yield from entry("", still_seen(found.version, found.published_at), 2)
    if found.next_step:
        yield from entry("next: ", found.next_step, 2)
    yield ""
    yield from aligned([RUNS, *map(_run_line, found.runs)], right=(3, 4, 5, 6))
    if found.lookups:
        yield ""
        yield from aligned([LOOKUPS, *map(_lookup_line, found.lookups)], right=(2, 3, 4, 5))
    if found.checks:
        yield ""
    for check in found.checks:
        sentence = check["sentence"].removeprefix("not run: ")
        status = check["status"].replace("_", " ")
        yield from entry(f"{status:8}", f"{check['check']}: {sentence}", 2)
    if found.report:
        yield f"report: {found.report}"


def _run_line(run: RunLine) -> tuple[str, ...]:
    counts = (run.rows, run.calls, run.from_ledger, run.dead_letters)
    return (
        run.run_id[:SHORT],
        run.started_at[:16].replace("T", " "),
        run.state,
        *("" if count is None else f"{count:,}" for count in counts),
        priced(run.costs),
    )


def _lookup_line(figures: LookupMetrics) -> tuple[str, ...]:
    counts = ((outcome, count) for outcome, count in figures.outcomes.items() if count)
    outcomes = " ".join(f"{count:,} {outcome}" for outcome, count in counts)
    times = (figures.latency_p50_ms, figures.latency_p99_ms)
    return (
        figures.name, outcomes, f"{figures.calls:,}", f"{figures.retried:,}",
        *("" if time is None else f"{time:,.0f}" for time in times), figures.limited_by,
    )  # fmt: skip


COMMAND = Command(_add_arguments, _run)
