"""Runs a day: preflight, enrich, write, count and judge. Publishes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.run.day_run import DayRun, Report, ignore_event
from jobs.run.engines.engine import LOCAL, LocalEngine, SparkEngine, chosen_engine, is_elsewhere
from jobs.run.engines.spark_session import session
from jobs.run.plan.options import RunOptions
from jobs.run.plan.preflight import preflight, require_new_run
from jobs.schema.records import DayRecord
from jobs.storage.urls import is_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay
    from jobs.run.changes.changed_rows import ChangedRows


def run_day(
    enrichment: Enrichment,
    day: str,
    run_id: str,
    *,
    rules: RunOptions | None = None,
    checks: str | None = None,
    compared: Path | None = None,
    engine: str | None = None,
    report: Report = ignore_event,
    clock: Callable[[], float] = time.monotonic,
) -> DayRecord:
    """Run a day up to its verdicts, and publish nothing.

    After an error the ledger has the answers so far, and the same call continues.

    Args:
        enrichment: The enrichment.
        day: The day.
        run_id: Names the run.
        rules: What the run may call.
        checks: The hook that judges the written files, module:function.
        compared: Folder in which the starter of this program left the changed rows that it found.
        engine: By default the environment's.
        report: Gets the run's events.
        clock: Seconds, monotonic.

    Returns:
        The saved record.

    Raises:
        DeclarationError: The declaration or its input is wrong; raised before Spark starts.
        RunStopped: A service is down or denies access, or the cap is used up.
        RowFailed: A row failed under the policy "fail".
        LedgerError: Answers cannot be stored.
    """
    rules = rules or RunOptions()
    on_store = is_url(enrichment.output.path) or is_url(enrichment.input.path)
    elsewhere = on_store and is_elsewhere(engine)
    input_day = preflight(enrichment, day, elsewhere=elsewhere, calls=rules.calls)
    require_new_run(enrichment, run_id)
    changed = None
    if enrichment.input.only_changed:
        changed = _changed_rows(
            enrichment, input_day, day, compared, ignore_ttl=rules.ignore_ttl, elsewhere=elsewhere
        )
        input_day = changed.input_day
    report({"kind": "started", "day": day, "run_id": run_id, "rows_total": input_day.rows})
    name = f"{enrichment.name} {day}"
    is_local = chosen_engine(engine) == LOCAL
    return DayRun(
        LocalEngine(name) if is_local else SparkEngine(session(name)),
        enrichment, input_day, day, run_id, clock, changed=changed, rules=rules, checks=checks,
        report=report,
    ).run()  # fmt: skip


def _changed_rows(
    enrichment: Enrichment,
    input_day: InputDay,
    day: str,
    compared: Path | None,
    *,
    ignore_ttl: bool,
    elsewhere: bool,
) -> ChangedRows:
    """Return the changed rows that this program's starter found, or else find them."""
    # they import deltalake, which definitions load without
    from jobs.run.changes.changed_rows import find_changes, taken_over

    found = None if compared is None else taken_over(compared / day, input_day)
    if found is not None:
        return found
    stage = SparkEngine(session(f"{enrichment.name} {day}")).stage() if elsewhere else None
    return find_changes(enrichment, input_day, day, ignore_ttl=ignore_ttl, stage=stage)


def run_batch(
    enrichment: Enrichment,
    rows: InputDay,
    day: str,
    run_id: str,
    *,
    spark: SparkSession,
    checks: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> DayRecord:
    """Run the files of a micro-batch as `run_day` does; their preflight has passed.

    Args:
        enrichment: The enrichment.
        rows: The files: some of the day, so that its windows are not made.
        day: Their day.
        run_id: Names the run.
        spark: The session of the stream.
        checks: The hook that judges the written files, module:function.
        clock: Seconds, monotonic.
    """
    return DayRun(
        SparkEngine(spark), enrichment, rows, day, run_id, clock, whole_day=False, checks=checks
    ).run()
