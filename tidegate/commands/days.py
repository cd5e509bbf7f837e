"""How commands that run days do so and tell of it: the checks of the nightly job, one line per day."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.declare.discovery import beside
from jobs.declare.table_conflicts import find_conflict
from jobs.errors import DeclarationError, TidegateError
from jobs.process.day_pipeline import DayOutcome, Quality
from jobs.process.spark_submit import spark_submit_from_environment
from jobs.run.enrich_day import STOPPED as STOPPED_BY_SERVICE
from jobs.run.enrich_day import WRONG as WRONG_DECLARATION
from jobs.tables.leases import WAIT
from jobs.wording import counted
from tidegate.commands.command import FAILED, RIGHT, STOPPED, WRONG, named
from tidegate.commands.stages import CLEAR, Stages

if TYPE_CHECKING:
    from jobs.commands.target import Target
    from jobs.declare.enrichment import Enrichment
    from jobs.schema import DayRecord

REPORTS = Path("data/reports")


def target_of(options: argparse.Namespace) -> Target:
    """The enrichment that was named. Raises DeclarationError when none or several are called so, and when another one
    of the package has its name, or writes into its tables.
    """
    found = named(options)
    if message := find_conflict(found, beside(found)):
        raise DeclarationError(message)
    return target(*found, wait=options.wait)


def target(reference: str, enrichment: Enrichment, *, wait: float) -> Target:
    """An enrichment whose days are run as the nightly job runs them."""
    from jobs.commands.target import Target

    stages = Stages(in_place=sys.stderr.isatty())
    return Target(reference, enrichment, quality(), spark_submit_from_environment(), wait, stages.show)


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=float, default=WAIT, metavar="S", help=f"for another run of the day that is ending ({WAIT:.0f})"
    )


def quality() -> Quality:
    def keep(record: DayRecord) -> None:
        from data_quality import verdict_store

        try:
            verdict_store.save(record)
        except verdict_store.VerdictsRefused as error:
            raise TidegateError(str(error)) from error

    def ready(enrichment: str) -> None:
        from data_quality import report, verdict_store

        try:
            verdict_store.require()
            report.require(REPORTS / enrichment)
        except verdict_store.VerdictsRefused as error:
            raise DeclarationError(f"{enrichment}: {error} Nothing was called.") from error
        except OSError as error:
            raise DeclarationError(
                f"{enrichment}: its report cannot be written: {error}. Nothing was called."
            ) from error

    def render(enrichment: str) -> None:
        from data_quality import report
        from jobs.tables import run_records

        report.render(
            enrichment, run_records.latest(enrichment), REPORTS / enrichment, run_records.unwritten(enrichment)
        )

    return Quality("data_quality.day:check", keep, render, ready)


def tell(outcomes: Iterable[DayOutcome]) -> int:
    """A line per day, as each is over. Returns the exit status: that of the last day."""
    status = RIGHT
    for outcome in outcomes:
        if sys.stderr.isatty():
            print(CLEAR, end="", file=sys.stderr, flush=True)
        print(line(outcome), flush=True)
        for warning in outcome.warnings:
            print(f"{outcome.day}  warning     {warning}", flush=True)
        status = _status(outcome)
    return status


def line(outcome: DayOutcome) -> str:
    """One day in one line."""
    if outcome.record is None:
        message = outcome.reason
    else:
        message = _counted(outcome.record) if outcome.is_published else _held_back(outcome.record)
    return f"{outcome.day}  {outcome.state:<10}  {message}"


def _held_back(record: DayRecord) -> str:
    """Why, where more is said, and what asks again also for stored answers that do not fit: a run takes them as they
    are.
    """
    declared = record.facts.declared
    message = f"{record.reason.rstrip('.')}. See {REPORTS / declared.enrichment / record.facts.day / 'index.html'}"
    if declared.ledger is None or not record.dead_letters:
        return message
    letters = counted(record.dead_letters, "dead letter")
    return f"{message}; once the cause is mended, tidegate replay asks again for {letters} and nothing else"


def _counted(record: DayRecord) -> str:
    figures = record.figures
    calls = sum(lookup.calls for lookup in figures.lookups)
    stored = sum(lookup.from_ledger for lookup in figures.lookups)
    letters = f", {counted(record.dead_letters, 'dead letter')}" if record.dead_letters else ""
    return (
        f"{counted(figures.rows_out, 'row')}, {counted(calls, 'call')}, {counted(stored, 'answer')} from the "
        f"ledger{letters}; version {record.published_version}"
    )


def _status(outcome: DayOutcome) -> int:
    if outcome.is_published:
        return RIGHT
    return {WRONG_DECLARATION: WRONG, STOPPED_BY_SERVICE: STOPPED}.get(outcome.code, FAILED)
