"""Runs a day or a range of days in Dagster by the day pipeline, and reports its events."""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg
from dagster import MAX_RUNTIME_SECONDS_TAG

from data_quality.day_quality import DayQuality
from data_quality.next_step import next_step
from jobs.errors import TidegateError
from jobs.process.day_events import DayEvent, DayOutcome, DayStage, DaysWarning
from jobs.process.day_options import DayOptions
from jobs.process.day_pipeline import DayPipeline, now, run_ids
from jobs.run.terminal import progress_line
from jobs.schema.records import DayRecord
from jobs.tables.records import run_records
from jobs.wording import counted
from orchestration.common.modes import OTHERS, Mode, acceptance
from orchestration.common.next_steps import KILLED_RUN, after, run_again
from orchestration.common.progress_line import ProgressLog
from orchestration.common.states import CANCELLED, CRASHED, FAILED, PUBLISHED, RUNNING
from orchestration.dagster.assets import metadata
from orchestration.dagster.assets.checks import (
    check_evaluations,
    outputs_of_checks,
    withdraw_planned,
    withdraw_planned_by_ended_runs,
)
from orchestration.dagster.assets.day_config import MODE
from orchestration.dagster.assets.day_events import DATA_VERSION_TAG, DayEvents, data_version
from orchestration.dagster.assets.days_tally import DaysTally, Red
from orchestration.dagster.declared import Declared
from orchestration.dagster.resources import SparkProgram

Event = dg.MaterializeResult[None] | dg.Output[None]


def enrich_days(
    context: dg.AssetExecutionContext, declared: Declared, spark: SparkProgram, mode: Mode
) -> Iterator[Event]:
    """Enriches, checks and publishes the days of the run, and only then materializes each; its
    checks are reported in every case.

    Raises:
        dagster.Failure: A day is not published; a sentence says why. Only a crash is retried
            automatically.
    """
    # the other context makes Dagster call what it has deprecated
    run = DaysRun(context.op_execution_context, declared, spark, mode)
    if mode is not Mode.nightly or MODE in context.run.tags:  # Dagster copies tags to a retry
        context.instance.add_run_tags(context.run.run_id, {MODE: mode.name})
    run.withdraw_checks_of_ended_runs()
    try:
        yield from run.carry_out()
    finally:
        run.withdraw_planned_checks()


class DaysRun:
    """A run of one or several days, and its reports to Dagster.

    For a single day the step yields the materialization. For several days it logs a materialization
    for each, because Dagster applies what a step yields to all its days alike. The results of
    checks are logged.
    """

    def __init__(
        self, context: dg.OpExecutionContext, declared: Declared, spark: SparkProgram, mode: Mode
    ) -> None:
        tries = context.retry_number
        self._context = context
        self._declared = declared
        self._mode = mode
        # each try has its own run id, and so its own folder
        self._run_id = f"{context.run_id}-{tries}" if tries else context.run_id
        self._run_ids: dict[str, str] = {}  # of each day that is run: made from it if several are
        self._days = list(context.partition_keys)
        self._several = len(self._days) > 1
        self._tell_every = spark.tell_every
        self._began = now()
        self._at_work = ""  # the running day
        self._judged: DayRecord | None = None  # its record, once its files are checked
        self._tally = DaysTally(self._days)
        self._log_progress = ProgressLog(context.log.info)
        self._pipeline = DayPipeline(
            reference=declared.reference,
            enrichment=declared.enrichment,
            quality=DayQuality(spark.checks),
            submit=spark.submit(),
            wait=spark.wait,
            advise=self._advised,
        )

    def carry_out(self) -> Iterator[Event]:
        """Runs the days. Raises dagster.Failure if any is not published or not summarized."""
        try:
            yield from self._settle_before_run()
            yield from self._run(self._days_to_run())
        except dg.DagsterExecutionInterruptedError as cancel:
            self._tell_interrupted()
            # if it were raised unchanged, the policy for crashes would restart the cancelled days
            raise self._failure() from cancel
        except Exception:
            if self._judged is not None:
                self._tell_checks(self._judged)
            raise
        if self._tally.is_red:
            raise self._failure()
        yield from outputs_of_checks(self._context)

    def _failure(self) -> dg.Failure:
        links = {} if self._several else self._events(self._days[0]).links()
        return self._tally.failure(links)

    def withdraw_planned_checks(self) -> None:
        for day in self._days:
            withdraw_planned(self._context.instance, self._declared, day, self._context.run_id)

    def withdraw_checks_of_ended_runs(self) -> None:
        for day in self._days:
            withdraw_planned_by_ended_runs(self._context.instance, self._declared, day)

    def _events(self, day: str) -> DayEvents:
        return DayEvents(self._declared, day, self._run_ids.get(day, self._run_id))

    # -- the days to run ---------------------------------------------------------------------------
    def _settle_before_run(self) -> Iterator[Event]:
        """Materializes days that a replay leaves unchanged, without dead letters; marks days that
        cannot be replayed or remapped as red.
        """
        if self._mode not in OTHERS:
            return
        for day in self._days:
            stands = self._published_without_dead_letters(day)
            if stands is not None:
                self._observe(
                    day, PUBLISHED, f"{day} has no dead letters: nothing was called.", "Nothing."
                )
                yield from self._materialized(stands, metadata.figures_metadata(stands))

    def _published_without_dead_letters(self, day: str) -> DayRecord | None:
        """Returns the record of a published day that has nothing to replay; None for a day to run,
        and for one that it marks as red because it cannot be run.
        """
        if self._declared.enrichment.ledger is None:
            self._tally.red[day] = Red(
                "the enrichment keeps no ledger: every row would be called.", "Run the nightly job."
            )
            return None
        if self._mode is not Mode.replay:
            return None
        from jobs.commands.replaying.replay import last_run, prepare

        try:
            if prepare(self._declared.enrichment, day):
                return None
        except TidegateError as error:
            self._tally.red[day] = Red(
                str(error), f"Run the job {self._declared.job_name} for the day."
            )
            return None
        stands = last_run(self._declared.enrichment, day)
        assert stands is not None  # otherwise there was nothing to replay
        if stands.state == PUBLISHED:
            return stands
        reason = f"the last run was held back, and not for its dead letters: {stands.reason}"
        self._tally.red[day] = Red(reason, next_step(stands))
        return None

    def _days_to_run(self) -> list[str]:
        """Returns the remaining days, without those that an earlier try of this run published: of
        these it makes the windows and summaries again, because that try may have failed at them.
        """
        days = self._tally.left
        if not self._several:
            return days
        # a re-execution has its own run id, and its first run as root
        tries = {self._context.run_id, self._context.run.root_run_id or self._context.run_id}
        for day in days:
            if self._is_published_by(tries, day):
                self._tally.published.append(day)
                self._summarize_again(day)
        days = self._tally.left
        self._context.log.info("%s of %s to run.", counted(len(days), "day"), len(self._days))
        self._allow_time_for(len(days))
        return days

    def _is_published_by(self, runs: set[str], day: str) -> bool:
        return any(
            record.state == PUBLISHED and record.facts.run_id.startswith(tuple(runs))
            for record in run_records.load(self._declared.name, day)
        )

    def _summarize_again(self, day: str) -> None:
        from jobs.tables.records.published_runs import last_published

        table = self._declared.enrichment.output.path
        record = last_published(self._declared.name, day, table=table)  # of a later run, if any
        if record is not None:
            outcome = DayOutcome(day, record.facts.run_id, PUBLISHED, "", record)
            self._tell_summaries(self._pipeline.summarized(outcome))

    def _allow_time_for(self, days: int) -> None:
        """Multiplies the run's time limit, which Dagster enforces, by the number of days."""
        longest = self._context.instance.run_monitoring_max_runtime_seconds  # 0: no limit
        if longest and MAX_RUNTIME_SECONDS_TAG not in self._context.run.tags:
            tags = {MAX_RUNTIME_SECONDS_TAG: str(longest * max(1, days))}
            self._context.instance.add_run_tags(self._context.run_id, tags)

    def _run(self, days: list[str]) -> Iterator[Event]:
        self._run_ids = run_ids(self._run_id, days)
        options = DayOptions(
            self._mode.value.options, acceptance(self._mode), summaries=self._several
        )
        tell_at = time.monotonic() + self._tell_every
        try:
            with contextlib.closing(
                self._pipeline.run(days, options, run_id=self._run_id)
            ) as events:
                for event in events:
                    yield from self._tell(event)
                    if (
                        isinstance(event, DayStage)
                        and event.kind == "progress"
                        and time.monotonic() >= tell_at
                    ):
                        tell_at = time.monotonic() + self._tell_every
                        line = progress_line(event.facts)
                        self._observe(
                            event.day, RUNNING, f"{line}.", "Nothing.", {"progress": line}
                        )
        except TidegateError as error:  # before Spark starts: of verdicts, reports or a store
            for day in self._tally.left:
                outcome = self._advised(
                    DayOutcome(day, self._events(day).run_id, FAILED, str(error))
                )
                yield from self._tell(self._pipeline.record(outcome, self._began))

    # -- reports to Dagster ------------------------------------------------------------------------
    def _tell(self, event: DayEvent) -> Iterator[Event]:
        match event:
            case DayStage():
                self._tell_stage(event)
            case DayOutcome(record=DayRecord() as record):
                yield from self._tell_written(event, record)
            case DayOutcome():
                self._tell_unwritten(event)
            case DaysWarning():
                self._context.log.warning(event.sentence)

    def _tell_stage(self, stage: DayStage) -> None:
        if stage.day != self._at_work:
            self._at_work = stage.day
            self._observe(stage.day, RUNNING, f"Spark {self._mode.value.verb} the day.", "Nothing.")
        if stage.kind == "progress":
            self._log_progress(stage.day, stage.facts)
        if stage.kind == "deciding":
            self._judged = stage.facts["record"]

    def _tell_written(self, outcome: DayOutcome, record: DayRecord) -> Iterator[Event]:
        self._at_work, self._judged = "", None
        figures = metadata.figures_metadata(record)
        for event in self._events(outcome.day).report_record(record, figures):
            self._context.log_event(event)
        if outcome.is_published:
            yield from self._materialized(record, figures)
        else:
            self._tally.red[outcome.day] = Red(record.reason, next_step(record))
            self._tell_checks(record)
        self._tell_summaries(outcome)
        self._warn(outcome)

    def _tell_summaries(self, outcome: DayOutcome) -> None:
        for summary, rows in outcome.summaries.items():
            self._context.log_event(
                dg.AssetMaterialization(
                    self._declared.beside(summary),
                    partition=outcome.day,
                    metadata={"dagster/row_count": rows},
                )
            )
        self._tally.unmade += [
            (f"{summary} of {outcome.day}", why) for summary, why in outcome.unmade
        ]

    def _materialized(self, record: DayRecord, figures: Mapping[str, Any]) -> Iterator[Event]:
        """Materializes the day, then reports its check results, which Dagster assigns to it."""
        day = record.facts.day
        self._tally.published.append(day)
        values = self._events(day).published(record, figures)
        if self._several:
            tags = {DATA_VERSION_TAG: data_version(record).value}
            self._context.log_event(
                dg.AssetMaterialization(
                    self._declared.key, partition=day, metadata=values, tags=tags
                )
            )
        else:
            yield dg.MaterializeResult(metadata=values, data_version=data_version(record))
        self._tell_checks(record)

    def _tell_checks(self, record: DayRecord) -> None:
        report = self._events(record.facts.day).report
        for evaluation in check_evaluations(self._context.instance, self._declared, record, report):
            self._context.log_event(evaluation)  # type: ignore[arg-type]  # it takes an evaluation, too

    def _tell_unwritten(self, outcome: DayOutcome) -> None:
        if self._judged is not None:  # it could not be published
            self._tell_checks(self._judged)
        self._at_work, self._judged = "", None
        self._tally.crashed |= outcome.crashed
        progress = {"progress": progress_line(outcome.progress)} if outcome.progress else {}
        self._observe(outcome.day, outcome.state, outcome.reason, outcome.next_step, progress)
        self._tally.red[outcome.day] = Red(outcome.reason, outcome.next_step)
        self._warn(outcome)

    def _advised(self, outcome: DayOutcome) -> DayOutcome:
        if outcome.crashed and self._context.retry_number == 0:
            return replace(
                outcome, state=CRASHED, next_step="Nothing: it is retried automatically once."
            )
        return replace(
            outcome, next_step=after(self._declared.enrichment, outcome.day, outcome.state)
        )

    def _warn(self, outcome: DayOutcome) -> None:
        for warning in outcome.warnings:
            self._context.log.warning("%s: %s", outcome.day, warning)

    def _observe(
        self, day: str, state: str, reason: str, after: str, more: Mapping[str, Any] | None = None
    ) -> None:
        self._context.log_event(self._events(day).word(state, reason, after, more))

    def _tell_interrupted(self) -> None:
        """Reports for the running day, or for the next, that the run was ended from outside."""
        day = self._at_work or next(iter(self._tally.left), None)
        if day is None:
            return
        state, reason, next_step = self._interruption()
        outcome = DayOutcome(day, self._events(day).run_id, state, reason, next_step=next_step)
        self._tell_unwritten(self._pipeline.record(outcome, self._began))
        self._pipeline.render()

    def _interruption(self) -> tuple[str, str, str]:
        """Returns state, reason and next step of a run that was ended from outside: by a person, or
        by whatever killed its worker.

        Dagster restarts a killed run once, but not always a run of a backfill.
        """
        worker = multiprocessing.parent_process()
        again = f"To publish the day, {run_again(self._declared.enrichment)}"
        if worker is None or os.getppid() == worker.pid:
            return (
                CANCELLED,
                "somebody cancelled the run; its Spark application was stopped.",
                again,
            )
        reason = (
            "the process of the run was killed, as by a lack of memory; its Spark application "
            "was stopped."
        )
        tags = self._context.run.tags
        if "dagster/backfill" in tags or "dagster/retry_number" in tags:
            return FAILED, reason, again
        return CRASHED, reason, KILLED_RUN
