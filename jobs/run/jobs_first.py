"""Submits and reads a day's jobs before Spark is needed: in this process, without any row."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.run.checks_hook import require_expectations
from jobs.run.engines.engine import SPARK, LocalEngine
from jobs.run.keys.preparation import settle_jobs
from jobs.run.keys.vendor_jobs.waits import WaitingDay, Waits
from jobs.run.plan.options import RunOptions
from jobs.run.plan.planner import RunOfDay, plan_day
from jobs.run.plan.preflight import preflight
from jobs.tables.records import run_bills, run_records


def settle_day(
    enrichment: Enrichment,
    day: str,
    run_id: str,
    rules: RunOptions,
    *,
    checks: str | None,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> float | None:
    """Submit and read the jobs of lookups whose keys read no answers. Does nothing if only Spark
    can find the keys.

    Returns what is left of the cap, if jobs used some of it.

    Raises:
        RunWaits: Jobs are open.
        DeclarationError: The declaration or its input is wrong, or the vendor refused a job.
        TidegateError: As `settle_by_jobs` does.
    """
    # Spark runs the rows
    input_day = preflight(enrichment, day, engine=SPARK, calls=rules.calls)
    require_expectations(enrichment, input_day, checks)
    without_spark = replace(enrichment, windows=(), expectations=())
    started_at = run_records.now(now)
    run = RunOfDay(day, run_id, started_at, rules, progress=0)
    try:
        plan = plan_day(LocalEngine(enrichment.name), without_spark, input_day, run)
    except DeclarationError:  # the Spark program runs the day, or reports it
        return None
    run_bills.begin(plan.facts, plan.tasks.lookups)  # `costs` finds the jobs by it
    waits = Waits(WaitingDay(enrichment.name, day))
    return settle_jobs(plan.rows, plan.tasks, input_day, waits)
