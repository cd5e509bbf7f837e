"""How commands that run days do so and tell of it: the checks of the nightly job, one line per day."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.enrich_day import STOPPED as STOPPED_BY_SERVICE
from jobs.enrich_day import WRONG as WRONG_DECLARATION
from jobs.nightly import DayOutcome, Quality
from jobs.spark_program import spark_submit_from_environment
from jobs.tables.leases import WAIT
from tidegate.commands.command import FAILED, RIGHT, STOPPED, WRONG, named

if TYPE_CHECKING:
    from jobs.commands.target import Target
    from jobs.declarations import Enrichment
    from jobs.schema import DayRecord

CLEAR = "\r\x1b[K"
REPORTS = Path("data/reports")


def target_of(options: argparse.Namespace) -> Target:
    """The enrichment that was named. Raises DeclarationError when none or several are called so."""
    return target(*named(options), wait=options.wait)


def target(reference: str, enrichment: Enrichment, *, wait: float) -> Target:
    """An enrichment whose days are run as the nightly job runs them."""
    from jobs.commands.target import Target

    watch = show_progress if sys.stderr.isatty() else None
    return Target(reference, enrichment, quality(), spark_submit_from_environment(), wait, watch)


def show_progress(event: dict[str, Any]) -> None:
    """One line of a terminal, again and again in its place."""
    from jobs.terminal import progress_line

    if event.get("kind") == "progress":
        print(f"{CLEAR}{progress_line(event)}", end="", file=sys.stderr, flush=True)


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=float, default=WAIT, metavar="S", help=f"for another run of the day that is ending ({WAIT:.0f})"
    )


def quality() -> Quality:
    def keep(record: DayRecord) -> None:
        from data_quality import verdict_store

        verdict_store.save(record)

    def render(enrichment: str) -> None:
        from data_quality import report
        from jobs import records

        report.render(enrichment, records.latest(enrichment), REPORTS / enrichment)

    return Quality("data_quality.day:check", keep, render)


def tell(outcomes: Iterable[DayOutcome]) -> int:
    """A line per day, as each is over. Returns the exit status: that of the last day."""
    status = RIGHT
    for outcome in outcomes:
        if sys.stderr.isatty():
            print(CLEAR, end="", file=sys.stderr, flush=True)
        print(line(outcome), flush=True)
        status = _status(outcome)
    return status


def line(outcome: DayOutcome) -> str:
    """One day in one line."""
    said = _counted(outcome.record) if outcome.is_published and outcome.record else outcome.reason
    return f"{outcome.day}  {outcome.state:<10}  {said}"


def _counted(record: DayRecord) -> str:
    figures = record.figures
    calls = sum(lookup.calls for lookup in figures.lookups)
    stored = sum(lookup.from_ledger for lookup in figures.lookups)
    letters = f", {record.dead_letters:,} dead letters" if record.dead_letters else ""
    return (
        f"{figures.rows_out:,} rows, {calls:,} calls, {stored:,} answers from the ledger{letters}; "
        f"version {record.published_version}"
    )


def _status(outcome: DayOutcome) -> int:
    if outcome.is_published:
        return RIGHT
    return {WRONG_DECLARATION: WRONG, STOPPED_BY_SERVICE: STOPPED}.get(outcome.code, FAILED)
