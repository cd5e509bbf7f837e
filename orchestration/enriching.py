"""One day of one enrichment as Dagster runs it: enrich and check with Spark, then publish, or hold back and say why."""

import datetime as dt
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from jobs import records
from jobs.errors import AccessRefused, BudgetSpent, DayTaken, RunStopped, TidegateError
from jobs.nightly import publish_or_hold_back
from jobs.schema import DayRecord
from jobs.spark_program import Ended
from jobs.tables.leases import Lease, leased
from orchestration import metadata, modes, standing
from orchestration.checks import check_results
from orchestration.dead_runs import sign
from orchestration.deadlines import next_start
from orchestration.declared import Declared
from orchestration.modes import Mode
from orchestration.pipes import progress_line
from orchestration.resources import SparkProgram

Event = dg.AssetCheckResult | dg.MaterializeResult[None]
REPORTS = Path("data/reports")
AGAIN = "materialize the day again; the days published before stay as they are."
MEND = f"Open the report, mend the cause, then {AGAIN}"
CURES = {
    AccessRefused.state: "Once the service grants access again",
    BudgetSpent.state: "Once the budget allows it",
}
IN_WORDS = {"running": "Running", "published": "Published"}  # every other state is told as "Not published"


def enrich_day(context: dg.AssetExecutionContext, declared: Declared, spark: SparkProgram) -> Iterator[Event]:
    """Enrich, check, publish, and only then materialize; what the checks say is told in every case.

    Raises:
        dagster.Failure: the day is not published; one sentence says why. Only a crash may be tried again by itself.
    """
    sign(context.instance, context.run)
    run = DayRun.of(context, declared)
    with run.alone_with_its_day() as lease:
        stands = run.day_that_needs_no_replay()
        if stands is not None:
            yield from check_results(declared, stands, run.report)
            run.observe("published", f"{run.day} has no dead letters: nothing was called.", "Nothing.")
            yield dg.MaterializeResult(metadata=run.metadata(stands))
            return
        run.observe("running", f"Spark {run.mode.verb} the day.", "Nothing.")
        ended = run.with_spark(spark, lease)
        yield from check_results(declared, ended.record, run.report)
        if ended.record is None:
            raise run.unwritten(ended)
        record = run.published_or_held_back(ended.record, lease)
        run.observe_record(record)
        if record.state == "published":
            yield dg.MaterializeResult(metadata=run.metadata(record))
    run.render_report()
    if record.state != "published":
        raise run.failure(record.reason, MEND)


@dataclass(frozen=True)
class DayRun:
    """One run of one day, and how it speaks to Dagster."""

    context: dg.AssetExecutionContext
    declared: Declared
    day: str
    run_id: str  # its own for every try, so that no two write into one folder
    mode: Mode

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, declared: Declared) -> "DayRun":
        tries = context.retry_number
        run_id = context.run.run_id
        mode = modes.BY_NAME[context.run.tags.get(modes.TAG, modes.NIGHTLY.name)]
        return cls(context, declared, context.partition_key, f"{run_id}-{tries}" if tries else run_id, mode)

    @property
    def log(self) -> Path:
        """Takes all that Spark prints."""
        return records.spark_log(self.declared.name, self.day, self.run_id)

    @property
    def report(self) -> str:
        return metadata.report_url(self.declared.name, self.day)

    def failure(self, reason: str, next_step: str, *, allow_retries: bool = False) -> dg.Failure:
        metadata = {"next_step": dg.MetadataValue.text(next_step), **self.links()}
        return dg.Failure(f"Not published: {reason}", metadata=metadata, allow_retries=allow_retries)

    def links(self) -> dict[str, dg.MetadataValue]:
        return {
            "report": dg.MetadataValue.url(self.report),
            "spark_log": dg.MetadataValue.url(metadata.log_url(self.declared.name, self.day, self.run_id)),
        }

    @contextmanager
    def alone_with_its_day(self) -> Iterator[Lease]:
        """Hold the lease of the day; a cancel, wherever it comes, is told and passed on as a failure."""
        try:
            with leased(self.declared.facts.table, self.day, self.run_id) as lease:
                yield lease
        except DayTaken as taken:
            next_step = "Wait for that run, or cancel it; then materialize the day again."
            self.observe("not started", str(taken), next_step)
            raise self.failure(str(taken), next_step) from taken
        except dg.DagsterExecutionInterruptedError as cancel:
            # passed on as it is, the policy for crashes would start the cancelled day anew
            state, reason, next_step = self._interrupted()
            self.observe(state, reason, next_step)
            raise self.failure(reason, next_step) from cancel

    def _interrupted(self) -> tuple[str, str, str]:
        """State, reason and next step of a run that was ended from outside: by a person, or by what killed its worker.

        Dagster starts a killed run again, once, but not always one of a backfill.
        """
        worker = multiprocessing.parent_process()
        if worker is None or os.getppid() == worker.pid:
            return "cancelled", "somebody cancelled the run; its Spark is ended.", f"To have the day, {AGAIN}"
        reason = "the process of the run was killed, as by a lack of memory; its Spark is ended."
        tags = self.context.run.tags
        if "dagster/backfill" in tags or "dagster/retry_number" in tags:
            return "failed", reason, f"To have the day, {AGAIN}"
        return standing.TRIED_AGAIN, reason, "Nothing: the run is started once more by itself."

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
        stands = records.load(self.declared.name, self.day)[-1]
        if stands.state != "published":
            raise self.failure(f"the last run was held back, and not for its dead letters: {stands.reason}", MEND)
        return stands

    def with_spark(self, spark: SparkProgram, lease: Lease) -> Ended:
        return spark.run(
            self.context,
            self.declared.reference,
            day=self.day,
            run_id=self.run_id,
            log=self.log,
            options=self.mode.options,
            lease=lease,
            while_running=self.observe_progress,
        )

    def published_or_held_back(self, record: DayRecord, lease: Lease) -> DayRecord:
        from data_quality import verdict_store

        refused = modes.acceptance(self.mode, self.declared.enrichment, self.day)(record)
        if refused:
            verdict_store.save(record)
            return records.hold_back(record, refused)
        return publish_or_hold_back(record, verdict_store.save, lease)

    def unwritten(self, ended: Ended) -> dg.Failure:
        """The failure of a run that left no files to publish, told on the asset's page too."""
        next_step = self._after(ended)
        again = ended.crashed and self.context.retry_number == 0
        self.observe(standing.TRIED_AGAIN if again else ended.state, ended.reason, next_step)
        self.render_report()
        return self.failure(ended.reason, next_step, allow_retries=ended.crashed)

    def _after(self, ended: Ended) -> str:
        if ended.crashed and self.context.retry_number == 0:
            return "Nothing: it is tried once more by itself."
        if ended.state != RunStopped.state:
            return f"{CURES.get(ended.state, 'Once that is mended')}, {AGAIN}"
        start = next_start(self.declared, self.day, dt.datetime.now(dt.UTC))
        if start is None:
            return (
                f"Once the service answers again, {AGAIN} It is not started by itself: its deadline is over, or none."
            )
        until = f"{self.declared.enrichment.publish_by} UTC"
        return f"Nothing: it is started again by itself about {start:%H:%M} UTC, and so on until {until}."

    def cause(self, state: str, reason: str) -> str:
        """The same words for all days that fail for the same reason: whoever is told once per cause counts by it."""
        services = [lookup.service_name for lookup in self.declared.enrichment.lookups]
        for service in services:
            if state.startswith("stopped") and reason.startswith((f"{service} ", f"{service}:")):
                return f"{service} {state}"  # whoever asks it
        return f"{self.declared.name} {state}: {reason.replace(self.day, '<day>')}"

    def observe_progress(self) -> None:
        """How far Spark is; nothing as long as it has not begun."""
        with suppress(FileNotFoundError):
            event = json.loads(records.progress_file(self.declared.name, self.day).read_text())
            if event["kind"] == "progress":
                line = progress_line(event)
                self.observe("running", f"{line}.", "Nothing.", {"progress": dg.MetadataValue.md(line)})

    def observe(self, state: str, reason: str, next_step: str, more: Mapping[str, Any] | None = None) -> None:
        """Dagster shows no metadata of a failed step and leaves the last success standing: this stands beside it."""
        self.context.log_event(
            dg.AssetObservation(
                asset_key=self.declared.key,
                partition=self.day,
                description=f"{IN_WORDS.get(state, f'Not published ({state})')}: {reason}",
                metadata={
                    "state": state,
                    "reason": dg.MetadataValue.md(reason),
                    "next_step": dg.MetadataValue.md(next_step),
                    "cause": self.cause(state, reason),
                    "readers_see": metadata.readers_see(self.declared.facts, self.day),
                    **self.links(),
                    **(more or {}),
                },
            )
        )

    def observe_record(self, record: DayRecord) -> None:
        """What came of the day, what was read for it, and how many of its rows are dead letters."""
        if record.state == "published":
            checks = len(record.verdicts)
            self.observe("published", f"{checks} checks ran on {record.figures.rows_out:,} rows.", "Nothing.")
        else:
            red = [verdict.check for verdict in record.verdicts if verdict.holds_back]
            cause = f"{self.declared.name} held back: {', '.join(red) or record.reason}"
            self.observe("held back", record.reason, MEND, {"cause": cause})
        self.context.log_event(
            dg.AssetObservation(
                asset_key=self.declared.raw_key,
                partition=self.day,
                metadata={"dagster/row_count": record.figures.rows_in, "files": len(record.facts.input_files)},
            )
        )
        if record.state == "published" and self.declared.has_dead_letters:
            self.context.log_event(
                dg.AssetMaterialization(
                    asset_key=self.declared.dead_letters_key,
                    partition=self.day,
                    description=f"{record.dead_letters:,} of {record.figures.rows_out:,} rows.",
                    metadata={"dagster/row_count": record.dead_letters, "path": self.declared.dead_letters_table},
                )
            )

    def metadata(self, record: DayRecord) -> dict[str, Any]:
        return {
            "state": "published",
            "readers_see": metadata.readers_see(self.declared.facts, self.day),
            **metadata.published_metadata(self.declared, record),
            **metadata.figures_metadata(record),
            **self.links(),
        }

    def render_report(self) -> None:
        """The page of every day of the enrichment and its index, from all records there are."""
        from data_quality import report

        report.render(self.declared.name, records.latest(self.declared.name), REPORTS / self.declared.name)
