"""A run's result as plain JSON, for an orchestrator that starts `tidegate run --json`."""

from typing import Any

from data_quality.next_step import next_step
from jobs.errors import AccessRefused, BudgetExhausted, DeclarationError, RunStopped, RunWaits
from jobs.process.day_events import DayResult
from jobs.schema.records import DayRecord
from orchestration.common.report_server import log_url, report_url
from orchestration.common.states import (
    CRASHED,
    FAILED,
    HELD_BACK,
    NO_INPUT,
    NOT_STARTED,
    PUBLISHED,
    UNCHANGED,
    WRONG,
)

FORMAT = 1  # of a result and of the manifest
EXIT_CODES = {
    PUBLISHED: 0,
    UNCHANGED: 0,
    FAILED: 1,
    WRONG: 2,
    RunStopped.state: 3,
    HELD_BACK: 4,
    NO_INPUT: 5,
    CRASHED: 6,
    AccessRefused.state: 7,
    BudgetExhausted.state: 8,
    NOT_STARTED: 9,
    RunWaits.state: RunWaits.status,
}


def day_state(ended: DayResult) -> str:
    if ended.state != FAILED:
        return ended.state
    if ended.crashed:
        return CRASHED
    return WRONG if ended.code == DeclarationError.status else FAILED


def describe_result(enrichment: str, ended: DayResult) -> dict[str, Any]:
    """Return the result of a day's run as JSON for the process that started it."""
    state = day_state(ended)
    has_page = state != NOT_STARTED
    step = ended.next_step
    if state == HELD_BACK and ended.record is not None:
        step = next_step(ended.record)
    return {
        **result(enrichment, ended.day, state, ended.reason),
        "next_step": step,
        "run_id": ended.run_id,
        "report": report_url(enrichment, ended.day) if has_page else None,
        "spark_log": log_url(enrichment, ended.day, ended.run_id) if has_page else None,
        "figures": None if ended.record is None else figures(ended.record),
        "summaries": dict(ended.summaries),
        "unmade": [summary for summary, _ in ended.unmade],
        "warnings": [*ended.warnings, *ended.unmade_summaries],
    }


def result(enrichment: str, day: str | None, state: str, reason: str) -> dict[str, Any]:
    """Return a result without a run; the day is None if it is unknown."""
    return {
        "format": FORMAT,
        "enrichment": enrichment,
        "day": day,
        "state": state,
        "reason": reason,
    }


def figures(record: DayRecord) -> dict[str, Any]:
    """Return a written day's counts. cost: by currency. changes: None if all rows are called."""
    lookups = record.figures.lookups
    return {
        "rows": record.figures.rows_out,
        "calls": record.figures.calls,
        "jobs": record.figures.jobs,
        "answers_from_ledger": sum(lookup.from_ledger for lookup in lookups),
        "dead_letters": record.dead_letters,
        "cost": {currency: float(cost) for currency, cost in record.figures.cost.items()},
        "version": record.published_version,
        "job_s": round(record.figures.job_s, 3),
        "changes": None if record.facts.changes is None else record.facts.changes.counts,
    }
