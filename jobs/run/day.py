"""Runs a day: preflight, enrich, write, count and judge. Publishes nothing."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.errors import DeclarationError
from jobs.run.coordinator.run_leases import end_run
from jobs.run.engines.spark_failures import own_words
from jobs.run.engines.spark_session import session
from jobs.run.metrics.limiting_factor import with_limits
from jobs.run.metrics.progress import RunProgress
from jobs.run.plan.options import RunOptions
from jobs.run.plan.preflight import preflight, require_new_run
from jobs.schema.records import DayFacts, DayRecord
from jobs.storage.removal import remove_folder
from jobs.storage.urls import is_url
from jobs.tables.records import run_bills, run_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay
    from jobs.run.changes.changed_rows import ChangedRows
    from jobs.run.engines.engine import Engine
    from jobs.run.keys.vendor_jobs.waits import Waits
    from jobs.run.plan.planner import DayPlan
    from jobs.run.request_metrics import RequestMetricsCollector

Report = Callable[[dict[str, Any]], None]

WRONG_EXPECTATIONS = "declared_checks:wrong_expectations"  # in the package of the checks
ROWS_OF_ONE_TASK = 5_000  # of a micro-batch in a single file


def ignore_event(_event: dict[str, Any]) -> None:
    """Discards events of a run."""


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
    """Runs a day up to its verdicts, and publishes nothing.

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
    on_store = is_url(enrichment.output.path) or is_url(enrichment.input.path)
    elsewhere = on_store and _is_elsewhere(engine)
    calls = rules is None or rules.may_call or bool(rules.only)
    input_day = preflight(enrichment, day, elsewhere=elsewhere, calls=calls)
    require_new_run(enrichment, run_id)
    changed = None
    if enrichment.input.only_changed:
        # they import deltalake, which definitions load without
        from jobs.run.changes.changed_rows import (
            find_changes,
            taken_over,
        )
        from jobs.run.engines.engine import SparkEngine

        changed = taken_over(compared / day, input_day) if compared is not None else None
        if changed is None:
            ignore_ttl = rules is not None and rules.ignore_ttl
            stage = SparkEngine(session(f"{enrichment.name} {day}")).stage() if elsewhere else None
            changed = find_changes(enrichment, input_day, day, ignore_ttl=ignore_ttl, stage=stage)
    return run_files(
        enrichment,
        input_day if changed is None else changed.input_day,
        day,
        run_id,
        changed=changed,
        rules=rules,
        checks=checks,
        engine=engine,
        report=report,
        clock=clock,
    )


def run_files(
    enrichment: Enrichment,
    input_day: InputDay,
    day: str,
    run_id: str,
    *,
    spark: SparkSession | None = None,
    whole_day: bool = True,
    changed: ChangedRows | None = None,
    rules: RunOptions | None = None,
    checks: str | None = None,
    engine: str | None = None,
    report: Report = ignore_event,
    clock: Callable[[], float] = time.monotonic,
) -> DayRecord:
    """Runs these files of a day as `run_day` does; their preflight has passed.

    Args:
        enrichment: The enrichment.
        input_day: The files.
        day: Their day.
        run_id: Names the run.
        spark: By default the session of the process.
        whole_day: Whether these are all files of the day, so that its windows are made.
        changed: Set if the files are the changed rows of the day.
        rules: What the run may call.
        checks: The hook that judges the written files, module:function.
        engine: By default the environment's.
        report: Gets the run's events.
        clock: Seconds, monotonic.
    """
    # import Spark only after the declaration is checked
    from jobs.run.engines.engine import LOCAL, LocalEngine, SparkEngine, chosen_engine
    from jobs.run.keys.vendor_jobs.waits import WaitingDay, Waits
    from jobs.run.request_metrics import RequestMetricsCollector

    report({"kind": "started", "day": day, "run_id": run_id, "rows_total": input_day.rows})
    name = f"{enrichment.name} {day}"
    is_local = spark is None and chosen_engine(engine) == LOCAL
    return DayRun(
        LocalEngine(name) if is_local else SparkEngine(spark or session(name)),
        enrichment, input_day, day, run_id, whole_day=whole_day, changed=changed,
        rules=rules or RunOptions(), checks=checks, report=report, clock=clock,
        sent=RequestMetricsCollector(), waits=Waits(WaitingDay(enrichment.name, day)),
    ).run()  # fmt: skip


def require_expectations(enrichment: Enrichment, input_day: InputDay, checks: str | None) -> None:
    """Refuse expectations that cannot be evaluated, before any call. It waits for the import of
    Great Expectations.

    Raises:
        DeclarationError: One is unknown, or its arguments are wrong.
    """
    if checks and enrichment.expectations:
        find_wrong = named(f"{checks.rpartition('.')[0]}.{WRONG_EXPECTATIONS}")
        if wrong := find_wrong(enrichment.facts(), input_day.names):
            raise DeclarationError(f"{enrichment.name}: {wrong[0]}")


@dataclass(frozen=True)
class DayRun:
    """A run of files of a day: what its steps share. The fields are those of `run_files`."""

    engine: Engine
    enrichment: Enrichment
    input_day: InputDay
    day: str
    run_id: str
    whole_day: bool
    changed: ChangedRows | None
    rules: RunOptions
    checks: str | None
    report: Report
    clock: Callable[[], float]
    sent: RequestMetricsCollector  # of its tasks
    waits: Waits  # for jobs of vendors

    def run(self) -> DayRecord:
        """Writes, counts and judges the files. Returns the saved record."""
        started_at, began = _now(), self.clock()
        on_store = self._writes_on_store()
        require_expectations(self.enrichment, self.input_day, self.checks)
        importing = _import_meanwhile(self.checks)
        try:
            with RunProgress(self.engine.coordinator, self.input_day.rows, self.report) as progress:
                plan = self._planned(started_at, progress, on_store=on_store)
                bill = run_records.bill_of(self.run_id, self.enrichment.name, self.day)
                try:
                    facts = self._written(plan, progress, importing)
                finally:
                    is_settled = bill is None or end_run(bill)
        except Exception as error:
            raise own_words(error) from error
        facts = self._with_derived_rows(facts, on_store=on_store)
        record = self._counted(plan, facts, job_s=self.clock() - began)
        record = replace(record, figures=with_limits(record.figures, progress.load()))
        self._show("written", record)
        if self.checks:
            record = self._judged(plan, record, self.checks)
        # before it is reported, because the receiver decides about the day at once
        run_records.save(record)
        run_bills.end(bill if is_settled else None)  # otherwise calls may still be in flight
        if self.checks:
            self._show("checked", record)
        return record

    def _writes_on_store(self) -> bool:
        """Whether tasks write on the store that the table is on.

        Raises:
            DeclarationError: They do not see a place that they need.
        """
        if not self.engine.is_elsewhere:
            return False
        from jobs.run.plan.shared_places import require_shared_places

        on_store = is_url(self.enrichment.output.path) and self.whole_day
        if on_store:
            require_new_run(self.enrichment, self.run_id, on_store=True)
        require_shared_places(self.engine, self.enrichment, self.input_day, on_store=on_store)
        return on_store

    def _planned(self, started_at: str, progress: RunProgress, *, on_store: bool) -> DayPlan:
        from jobs.run.plan.planner import RunOfDay, plan_day

        files, rows = len(self.input_day.files), self.input_day.rows
        in_one_task = not self.whole_day and files == 1 and rows <= ROWS_OF_ONE_TASK
        run = RunOfDay(
            self.day, self.run_id, started_at, self.rules, progress.number,
            in_one_task=in_one_task, on_store=on_store,
        )  # fmt: skip
        plan = plan_day(self.engine, self.enrichment, self.input_day, run)
        if not (plan.tasks.may_call or self.rules.only):
            return plan
        meters = run_bills.begin(plan.facts, plan.tasks.lookups)
        return replace(plan, tasks=replace(plan.tasks, meters=meters))

    def _is_here(self, plan: DayPlan, *, calls: bool) -> bool:
        """Whether this process runs the rows, with or without calls."""
        from jobs.run.engines.driver_task import is_for_driver
        from jobs.run.engines.engine import SparkEngine

        if not isinstance(self.engine, SparkEngine):
            return True
        # a micro-batch of a stream goes through Spark's workers
        return self.whole_day and is_for_driver(
            self.engine.spark, plan.tasks, rows=self.input_day.rows, calls=calls
        )

    def _written(
        self, plan: DayPlan, progress: RunProgress, importing: threading.Thread
    ) -> DayFacts:
        from jobs.run.enrich import write_out
        from jobs.run.keys.ledger_session import prepare_ledger

        here = self._is_here(plan, calls=True)
        if here:
            # an import stops the clocks of calls in this process for tenths of a second
            importing.join()
        with prepare_ledger(
            plan.rows, plan.tasks, scratch=_scratch(plan.facts), day=self.input_day, here=here,
            asking=progress.prefetching_keys, sent=self.sent, only=self.rules.only,
            waits=self.waits,
        ) as run:  # fmt: skip
            rows_here = self._is_here(plan, calls=False) if run.all_known else here
            written = write_out(plan.rows, run.plan, plan.facts.folder, self.sent, here=rows_here)
        return replace(
            plan.facts,
            files=written.files,
            written=written.facts if is_url(plan.facts.folder) else (),
            shares_given=written.shares_given,
            attempts=written.attempts,
            asked_by=run.asked_by,
            given_up=run.given_up,
            finished_at=_now(),
        )

    def _with_derived_rows(self, facts: DayFacts, *, on_store: bool) -> DayFacts:
        """Have tasks write windows, rows that stay, and on a store or of a large day the rows of
        the tables beside the published one, which publishing then only commits.
        """
        from jobs.run.engines.engine import ROWS_IN_DRIVER, SparkEngine
        from jobs.run.windows.window_rows import write_windows
        from jobs.tables.delivery import write_beside

        if self.whole_day and isinstance(self.engine, SparkEngine):
            facts = write_windows(self.engine, facts)
        if self.changed is not None:
            from jobs.run.changes.changed_rows import with_kept_rows

            facts = with_kept_rows(facts, self.changed, self.engine.file_stage([facts.folder]))
        rows = self.input_day.rows
        if on_store or rows > ROWS_IN_DRIVER:
            facts = write_beside(facts, self.engine.file_stage(facts.files, rows).run)
        return facts

    def _counted(self, plan: DayPlan, facts: DayFacts, *, job_s: float) -> DayRecord:
        from jobs.run.metrics import run_metrics as metrics

        rows_in, lookups = self.input_day.rows, facts.declared.lookups
        stage = self.engine.file_stage(facts.files, rows_in)
        figures = metrics.count(
            facts.files, facts.declared, rows_in=rows_in, job_s=job_s, stage=stage
        )
        figures = self.sent.in_figures(metrics.with_stored(figures, plan.tasks), facts.declared)
        figures = run_bills.with_bill(figures, plan.tasks.meters, lookups)
        if self.waits.done:
            from jobs.run.keys.vendor_jobs.job_bills import with_job_bills

            figures = with_job_bills(figures, self.waits.done)
        return DayRecord(
            facts,
            run_bills.with_saved(figures, lookups, partial(_latest_first, self.enrichment.name)),
            warnings=(
                *facts.given_up,
                *run_bills.unknown_uses(figures),
                *(() if self.changed else metrics.unanswered(figures, facts.declared)),
            ),
        )

    def _judged(self, plan: DayPlan, record: DayRecord, checks: str) -> DayRecord:
        """Returns the record with the verdicts; the checks read the rows' stored answers."""
        from jobs.input.keys.arrow_expressions import evaluate
        from jobs.run.engines.engine import ROWS_IN_DRIVER, SparkEngine
        from jobs.run.engines.stages import SparkStage
        from jobs.run.written_answers import StoredAnswers

        facts, rows = record.facts, record.figures.rows_out
        spark = self.engine.spark if isinstance(self.engine, SparkEngine) else None
        ledgers = zip(plan.tasks.lookups, plan.tasks.ledgers, strict=True)
        kept = {lookup.name: (lookup, ledger) for lookup, ledger in ledgers if ledger is not None}
        stored = StoredAnswers(kept, facts.run_id, facts.started_at)
        more: dict[str, Any] = {}
        if isinstance(stage := self.engine.file_stage(facts.files, rows), SparkStage):
            more["tasks"] = stage
        if rows > ROWS_IN_DRIVER:
            more["scratch"] = _scratch(facts)
        try:
            judged = named(checks)(spark, facts, record.figures, stored, evaluate, **more)
        finally:
            if more:
                remove_folder(_scratch(facts))
        return replace(record, verdicts=tuple(judged.verdicts), pictures=judged.pictures)

    def _show(self, kind: str, record: DayRecord) -> None:
        if self.report is not ignore_event:
            self.report({"kind": kind, "record": json.loads(record.to_json())})


def _scratch(facts: DayFacts) -> str:
    """Returns the folder of a run's files that no reader needs; `vacuum` knows it too."""
    from jobs.tables.old_files import KEYS

    return f"{facts.folder}{KEYS}"


def _is_elsewhere(engine: str | None) -> bool:
    # imports Spark; only a store needs it this early
    from jobs.run.engines.engine import is_elsewhere

    return is_elsewhere(engine)


def _latest_first(enrichment: str) -> list[DayRecord]:
    return sorted(run_records.load(enrichment), key=lambda record: record.order, reverse=True)


def _now(now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)) -> str:
    return now().isoformat(timespec="milliseconds")


def _import_meanwhile(checks: str | None) -> threading.Thread:
    """Imports the slow checks while Spark works; an error is raised where they are used."""
    module = (checks or "").partition(":")[0]
    importing = threading.Thread(
        target=_import, args=(module,), name="tidegate-checks", daemon=True
    )
    importing.start()
    return importing


def _import(module: str) -> None:
    with contextlib.suppress(Exception):
        if module:
            importlib.import_module(module)


def named(reference: str) -> Any:
    """Returns the object `module:name`. Raises DeclarationError if it does not exist."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(
            f"{reference!r} names nothing that can be loaded: {error}"
        ) from error
