"""One day of one enrichment as Dagster runs it: enrich and check with Spark, then publish, or hold back and say why."""

import datetime as dt
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from jobs.errors import AccessRefused, BudgetExhausted, DayTaken, DeclarationError, RunStopped, TidegateError
from jobs.process.day_pipeline import kept, publish_or_hold_back
from jobs.process.spark_submit import ProgramResult
from jobs.schema import DayRecord
from jobs.tables import run_records
from jobs.tables.leases import Lease, leased
from orchestration import day_status, metadata, modes
from orchestration.checks import check_results, outputs_of_checks_not_run, withdraw_planned
from orchestration.day_events import DayEvents, mend, render_report, require_storing, run_again
from orchestration.deadlines import next_start
from orchestration.declared import Declared
from orchestration.modes import Mode
from orchestration.pipes import progress_line
from orchestration.resources import SparkProgram

Event = dg.AssetCheckResult | dg.MaterializeResult[None] | dg.Output[None]
CURES = {
    AccessRefused.state: "Once the service grants access again",
    BudgetExhausted.state: "Once the budget allows it",
}


def enrich_day(context: dg.AssetExecutionContext, declared: Declared, spark: SparkProgram) -> Iterator[Event]:
    """Enrich, check, publish, and only then materialize; what the checks say is told in every case.

    Raises:
        dagster.Failure: the day is not published; one sentence says why. Only a crash may be tried again by itself.
    """
    run = DayRun.of(context.op_execution_context, declared)  # with the other Dagster calls what it has deprecated
    with run.alone_with_its_day() as lease:
        stands = run.day_that_needs_no_replay()
        if stands is not None:
            run.observe("published", f"{run.day} has no dead letters: nothing was called.", "Nothing.")
            yield from run.materialized(stands, metadata.figures_metadata(stands))
            return
        run.observe("running", f"Spark {run.mode.verb} the day.", "Nothing.")
        ended = run.with_spark(spark, lease)
        if ended.record is None:
            raise run.unwritten(ended)
        try:
            record = run.publish_or_hold_back_day(ended.record, lease)
        except Exception:
            yield from check_results(declared, ended.record, run.events.report)
            raise
        reported = metadata.figures_metadata(record)
        for event in run.events.of_record(record, reported):
            context.log_event(event)
        if record.state == "published":
            yield from run.materialized(record, reported)
        else:
            yield from check_results(declared, record, run.events.report)
    if record.state != "published":
        raise run.failure(record.reason, mend(declared, record))
    render_report(declared.name)


@dataclass(frozen=True)
class DayRun:
    """One run of one day, and how it speaks to Dagster."""

    context: dg.OpExecutionContext
    declared: Declared
    day: str
    run_id: str  # its own for every try, so that no two write into one folder
    mode: Mode
    began: str = field(default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"))

    @classmethod
    def of(cls, context: dg.OpExecutionContext, declared: Declared) -> "DayRun":
        tries = context.retry_number
        run_id = context.run.run_id
        mode = modes.BY_NAME[context.run.tags.get(modes.TAG, modes.NIGHTLY.name)]
        return cls(context, declared, context.partition_key, f"{run_id}-{tries}" if tries else run_id, mode)

    @property
    def events(self) -> DayEvents:
        return DayEvents(self.declared, self.day, self.run_id)

    def materialized(self, record: DayRecord, reported: Mapping[str, Any]) -> Iterator[Event]:
        """The materialization of a published day, then its check results: Dagster takes them for those of the last
        materialization that it has. told: the day's figures.
        """
        yield dg.MaterializeResult(metadata=self.events.published(record, reported))
        yield from check_results(self.declared, record, self.events.report)
        yield from outputs_of_checks_not_run(self.context, self.declared, record)
        self.withdraw_planned_checks()

    def withdraw_planned_checks(self) -> None:
        withdraw_planned(self.context.instance, self.declared, self.day, self.context.run_id)

    def failure(self, reason: str, next_step: str, *, allow_retries: bool = False) -> dg.Failure:
        self.withdraw_planned_checks()
        render_report(self.declared.name)
        metadata = {"next_step": dg.MetadataValue.text(next_step), **self.events.links()}
        return dg.Failure(f"Not published: {reason}", metadata=metadata, allow_retries=allow_retries)

    @contextmanager
    def alone_with_its_day(self) -> Iterator[Lease]:
        """Hold the lease of the day; a cancel, wherever it comes, is told and passed on as a failure."""
        try:
            require_storing(self.declared.name)
            with leased(self.declared.facts.table, self.day, self.run_id) as lease:
                yield lease
        except DayTaken as taken:
            next_step = "Wait for that run, or cancel it; then materialize the day again."
            self.observe("not started", str(taken), next_step)
            raise self.failure(str(taken), next_step) from taken
        except DeclarationError as error:  # as where the table's folder may not be written
            next_step = f"Once that is mended, {run_again(self.declared)}"
            self.observe("failed", str(error), next_step)
            raise self.failure(str(error), next_step) from error
        except dg.DagsterExecutionInterruptedError as cancel:
            # passed on as it is, the policy for crashes would start the cancelled day anew
            raise self.failure(*self.report_interrupted()) from cancel

    def report_interrupted(self) -> tuple[str, str]:
        """Tell that the run was ended from outside. Returns reason and next step."""
        state, reason, next_step = self._interrupted()
        self.observe(state, reason, next_step)
        return reason, next_step

    def _interrupted(self) -> tuple[str, str, str]:
        """State, reason and next step of a run that was ended from outside: by a person, or by what killed its worker.

        Dagster starts a killed run again, once, but not always one of a backfill.
        """
        worker = multiprocessing.parent_process()
        if worker is None or os.getppid() == worker.pid:
            return (
                "cancelled",
                "somebody cancelled the run; its Spark application was stopped.",
                f"To have the day, {run_again(self.declared)}",
            )
        reason = "the process of the run was killed, as by a lack of memory; its Spark application was stopped."
        tags = self.context.run.tags
        if "dagster/backfill" in tags or "dagster/retry_number" in tags:
            return "failed", reason, f"To have the day, {run_again(self.declared)}"
        return day_status.TRIED_AGAIN, reason, "Nothing: the run is started once more by itself."

    def day_that_needs_no_replay(self) -> DayRecord | None:
        """The published day, where a replay is asked for and there are no dead letters; None to run the day."""
        if self.mode not in (modes.REPLAY, modes.REMAP):
            return None
        if self.declared.enrichment.ledger is None:
            raise self.failure("the enrichment keeps no ledger: every row would be called.", "Run the nightly job.")
        if self.mode is not modes.REPLAY:
            return None
        from jobs.commands.replay import prepare

        try:
            if prepare(self.declared.enrichment, self.day):
                return None
        except TidegateError as error:
            raise self.failure(str(error), f"Run the job {self.declared.job_name} for the day.") from error
        stands = run_records.load(self.declared.name, self.day)[-1]
        if stands.state != "published":
            raise self.failure(
                f"the last run was held back, and not for its dead letters: {stands.reason}",
                mend(self.declared, stands),
            )
        return stands

    def with_spark(self, spark: SparkProgram, lease: Lease) -> ProgramResult:
        return spark.run(
            self.context,
            self.declared.reference,
            day=self.day,
            run_id=self.run_id,
            log=self.events.log,
            options=self.mode.options,
            lease=lease,
            while_running=self.observe_progress,
        )

    def publish_or_hold_back_day(self, record: DayRecord, lease: Lease) -> DayRecord:
        from data_quality import verdict_store

        refused = modes.acceptance(self.mode, self.declared.enrichment, self.day)(record)
        if refused:
            return run_records.hold_back(kept(record, verdict_store.save), refused)
        return publish_or_hold_back(record, verdict_store.save, lease)

    def unwritten(self, ended: ProgramResult) -> dg.Failure:
        """The failure of a run that left no files to publish, told on the asset's page too."""
        return self.failure(ended.reason, self.report_unwritten(ended), allow_retries=ended.crashed)

    def report_unwritten(self, ended: ProgramResult) -> str:
        """The same on the asset's page alone. Returns the next step."""
        next_step = self._after(ended)
        retried_once = ended.crashed and self.context.retry_number == 0
        far = {"progress": ended.progress} if ended.progress else {}
        self.observe(day_status.TRIED_AGAIN if retried_once else ended.state, ended.reason, next_step, far)
        return next_step

    def _after(self, ended: ProgramResult) -> str:
        if ended.crashed and self.context.retry_number == 0:
            return "Nothing: it is retried automatically once."
        if ended.state != RunStopped.state:
            return f"{CURES.get(ended.state, 'Once that is mended')}, {run_again(self.declared)}"
        start = next_start(self.declared, self.day, dt.datetime.now(dt.UTC))
        if start is None:
            return (
                f"Once the service answers again, {run_again(self.declared)} "
                "It is not started by itself: its deadline has passed, or it has none."
            )
        until = f"{self.declared.enrichment.publish_by} UTC"
        return f"Nothing: it is started again by itself about {start:%H:%M} UTC, and so on until {until}."

    def observe_progress(self) -> None:
        """How far Spark is; nothing as long as it has not begun."""
        with suppress(FileNotFoundError):
            event = json.loads(run_records.progress_file(self.declared.name, self.day).read_text())
            if event["kind"] == "progress":
                line = progress_line(event)
                self.observe("running", f"{line}.", "Nothing.", {"progress": line})

    def observe(self, state: str, reason: str, next_step: str, more: Mapping[str, Any] | None = None) -> None:
        if state not in day_status.NO_END:
            self.events.save_unwritten(state, reason, next_step, self.began)
        self.context.log_event(self.events.word(state, reason, next_step, more))
