"""A run of files of a day: writes, counts and judges them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from jobs.run.checks_hook import import_meanwhile, named, require_expectations
from jobs.run.coordinator.run_leases import end_run
from jobs.run.engines.engine import ROWS_IN_DRIVER, SparkEngine
from jobs.run.engines.spark_failures import task_error
from jobs.run.engines.stages import SparkStage
from jobs.run.keys.vendor_jobs.waits import WaitingDay, Waits
from jobs.run.metrics.limiting_factor import with_limits
from jobs.run.metrics.progress import RunProgress
from jobs.run.plan.options import RunOptions
from jobs.run.plan.preflight import require_new_run
from jobs.schema.records import DayFacts, DayRecord, RunBill
from jobs.storage.removal import remove_folder
from jobs.storage.urls import is_url
from jobs.storage.work_folders import KEYS
from jobs.tables.records import run_bills, run_records

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay
    from jobs.run.changes.changed_rows import ChangedRows
    from jobs.run.engines.engine import Engine
    from jobs.run.plan.planner import DayPlan
    from jobs.task.output_files import TaskResult

Report = Callable[[dict[str, Any]], None]

ROWS_OF_ONE_TASK = 5_000  # of a micro-batch in a single file


def ignore_event(_event: dict[str, Any]) -> None:
    """Discard events of a run."""


@dataclass(frozen=True)
class DayRun:
    """A run of files of a day, whose preflight has passed: what its steps share.

    Attributes:
        engine: Runs the tasks.
        enrichment: The enrichment.
        input_day: The files.
        day: Their day.
        run_id: Names the run.
        clock: Seconds, monotonic.
        whole_day: Whether these are all files of the day, so that its windows are made.
        changed: Set if the files are the changed rows of the day.
        rules: What the run may call.
        checks: The hook that judges the written files, module:function.
        report: Gets the run's events.
        sent: What its tasks counted.
    """

    engine: Engine
    enrichment: Enrichment
    input_day: InputDay
    day: str
    run_id: str
    clock: Callable[[], float]
    whole_day: bool = True
    changed: ChangedRows | None = None
    rules: RunOptions = field(default_factory=RunOptions)
    checks: str | None = None
    report: Report = ignore_event
    sent: list[TaskResult] = field(default_factory=list)

    @cached_property
    def waits(self) -> Waits:
        """The jobs of vendors for which the day waits."""
        return Waits(WaitingDay(self.enrichment.name, self.day))

    @property
    def _is_validated(self) -> bool:
        """Whether Great Expectations runs the checks.

        The local engine refuses the user's expectations, and the import takes longer than a small
        day. On the few hundred rows of a micro-batch, the validation takes five times as long as
        the checks.
        """
        if not isinstance(self.engine, SparkEngine):
            return False
        return self.whole_day or bool(self.enrichment.expectations)

    def run(self) -> DayRecord:
        """Write, count and judge the files. Returns the record."""
        # a run that ends before leaves the jobs of the day to the record of the next run
        with self.waits.ended():
            record, bill = self._judged()
        # before it is reported, because the receiver decides about the day at once
        if self.rules.has_record:
            run_records.save(record)
        run_bills.end(bill)
        if self.checks:
            self._report_record("checked", record)
        return record

    def _judged(self) -> tuple[DayRecord, RunBill | None]:
        """Return the record, and the bill that it makes obsolete: none while calls may still be in
        flight.
        """
        started_at, began = run_records.now(), self.clock()
        on_store = self._writes_on_store()
        require_expectations(self.enrichment, self.input_day, self.checks, self.engine.spark)
        importing = import_meanwhile(self.checks, validate=self._is_validated)
        try:
            with RunProgress(self.engine.coordinator, self.input_day.rows, self.report) as progress:
                plan = self._plan(started_at, progress, on_store=on_store)
                bill = run_records.bill_of(self.run_id, self.enrichment.name, self.day)
                try:
                    facts = self._write(plan, progress, importing)
                finally:
                    is_settled = bill is None or end_run(bill)
        except Exception as error:
            raise task_error(error) from error
        facts = self._with_derived_rows(facts, on_store=on_store)
        record = self._count(plan, facts, job_s=self.clock() - began)
        record = replace(record, figures=with_limits(record.figures, progress.load()))
        self._report_record("written", record)
        if self.checks:
            record = self._judge(plan, record, self.checks)
        return record, bill if is_settled else None

    def _writes_on_store(self) -> bool:
        """Return whether tasks write on the store that has the table.

        Raises:
            DeclarationError: They do not see a place that they need.
        """
        if not self.engine.is_elsewhere:
            return False
        from jobs.run.plan.shared_places import require_shared_places

        on_store = is_url(self.enrichment.output.path)
        if on_store:
            require_new_run(self.enrichment, self.run_id, on_store=True)
        require_shared_places(self.engine, self.enrichment, self.input_day)
        return on_store

    def _plan(self, started_at: str, progress: RunProgress, *, on_store: bool) -> DayPlan:
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
        meters = run_bills.begin(plan.facts, plan.tasks.lookups, elsewhere=self.engine.is_elsewhere)
        return replace(plan, tasks=replace(plan.tasks, meters=meters))

    def _is_here(self, plan: DayPlan, *, calls: bool) -> bool:
        """Return whether this process runs the rows, with or without calls."""
        from jobs.run.engines.driver_task import is_for_driver

        if not isinstance(self.engine, SparkEngine):
            return True
        # a micro-batch of a stream goes through Spark's workers
        return self.whole_day and is_for_driver(
            self.engine.spark, plan.tasks, rows=self.input_day.rows, calls=calls
        )

    def _write(self, plan: DayPlan, progress: RunProgress, importing: threading.Thread) -> DayFacts:
        from jobs.run.enrich import write_out
        from jobs.run.keys.preparation import prepare_keys

        here = self._is_here(plan, calls=True)
        if here:
            # an import stops the clocks of calls in this process for tenths of a second
            importing.join()
        with prepare_keys(
            plan.rows, plan.tasks, scratch=f"{plan.facts.folder}{KEYS}", day=self.input_day,
            here=here, asking=progress.prefetching_keys, sent=self.sent, only=self.rules.only,
            waits=self.waits,
        ) as run:  # fmt: skip
            rows_here = self._is_here(plan, calls=False) if run.all_known else here
            folder = plan.facts.rows_folder
            written = write_out(plan.rows, run.plan, folder, self.sent, here=rows_here)
        return replace(
            plan.facts,
            files=written.files,
            written=written.facts if is_url(plan.facts.folder) else (),
            shares_given=written.shares_given,
            attempts=written.attempts,
            asked_by=run.asked_by,
            given_up=run.given_up,
            finished_at=run_records.now(),
        )

    def _with_derived_rows(self, facts: DayFacts, *, on_store: bool) -> DayFacts:
        """Have tasks write the windows and the rows that stay. On a store, or for a large day, they
        also write the rows of the tables beside the published one, which publishing then only
        commits.
        """
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

    def _count(self, plan: DayPlan, facts: DayFacts, *, job_s: float) -> DayRecord:
        from jobs.run.metrics import run_metrics as metrics
        from jobs.run.request_metrics import add_requests

        rows_in, lookups = self.input_day.rows, facts.declared.lookups
        stage = self.engine.file_stage(facts.files, rows_in)
        figures = metrics.count(
            facts.files, facts.declared, rows_in=rows_in, job_s=job_s, stage=stage
        )
        figures = metrics.with_stored(figures, plan.tasks)
        figures = add_requests(figures, facts.declared, self.sent)
        figures = run_bills.with_bill(figures, plan.tasks.meters, lookups)
        if self.waits.done:
            from jobs.run.keys.vendor_jobs.job_bills import with_job_bills

            figures = with_job_bills(figures, self.waits.done, self.waits.settled_keys)
        return DayRecord(
            facts,
            run_bills.with_saved(figures, lookups, partial(run_records.load, self.enrichment.name)),
            warnings=(
                *facts.given_up,
                *run_bills.unknown_uses(figures),
                *(() if self.changed else metrics.unanswered(figures, facts.declared)),
            ),
        )

    def _judge(self, plan: DayPlan, record: DayRecord, checks: str) -> DayRecord:
        """Return the record with the verdicts; the checks read the rows' stored answers."""
        from jobs.input.keys.arrow_expressions import evaluate
        from jobs.run.written_answers import StoredAnswers

        facts, rows = record.facts, record.figures.rows_out
        ledgers = zip(plan.tasks.lookups, plan.tasks.ledgers, strict=True)
        kept = {lookup.name: (lookup, ledger) for lookup, ledger in ledgers if ledger is not None}
        stored = StoredAnswers(kept, facts.run_id, facts.started_at)
        stage = self.engine.file_stage(facts.files, rows)
        tasks = stage if isinstance(stage, SparkStage) else None
        scratch = f"{facts.folder}{KEYS}" if rows > ROWS_IN_DRIVER else None
        try:
            judged = named(checks)(
                self.engine.spark, facts, record.figures, stored, evaluate, tasks=tasks,
                scratch=scratch, whole_day=self.whole_day, validate=self._is_validated,
            )  # fmt: skip
        finally:
            if scratch:
                remove_folder(scratch)
        return replace(record, verdicts=tuple(judged.verdicts), pictures=judged.pictures)

    def _report_record(self, kind: str, record: DayRecord) -> None:
        if self.report is not ignore_event:
            self.report({"kind": kind, "record": json.loads(record.to_json())})
