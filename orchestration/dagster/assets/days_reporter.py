"""Reports the events of the day pipeline to Dagster."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from data_quality.next_step import next_step
from jobs.process.day_events import DayEvent, DayResult, DayStage, DaysWarning
from jobs.run.terminal import progress_line
from jobs.schema.records import DayRecord
from orchestration.common.progress_log import ProgressLog
from orchestration.common.report_server import report_url
from orchestration.common.states import PUBLISHED, RUNNING
from orchestration.dagster.assets import metadata
from orchestration.dagster.assets.checks import check_evaluations
from orchestration.dagster.assets.day_events import DATA_VERSION_TAG, DayEvents, data_version
from orchestration.dagster.assets.days_tally import DaysTally, Red
from orchestration.dagster.declared import Declared

Event = dg.MaterializeResult[None] | dg.Output[None]


class DaysReporter:
    """Reports the days of a run to Dagster, and keeps the tally of their results.

    For a single day it yields the materialization. For several days it logs a materialization for
    each, because Dagster applies what a step yields to all its days alike. The results of checks
    are logged.

    Args:
        context: Of the step.
        declared: The enrichment.
        run_id: Of this try of the run.
        verb: What the run does with a day.
        tell_every: s between two observations of a running day.
    """

    def __init__(
        self,
        context: dg.OpExecutionContext,
        declared: Declared,
        run_id: str,
        *,
        verb: str,
        tell_every: float,
    ) -> None:
        self._context = context
        self._declared = declared
        self._run_id = run_id
        self._verb = verb
        self._tell_every = tell_every
        self._tell_at = time.monotonic() + tell_every
        self._running: DayStage | None = None  # the last stage of the running day
        self._judged: DayRecord | None = None  # its record, once its files are checked
        self._log_progress = ProgressLog(context.log.info)
        self.tally = DaysTally(list(context.partition_keys))
        self._has_several_days = len(self.tally.days) > 1

    def report(self, event: DayEvent) -> Iterator[Event]:
        match event:
            case DayStage():
                self._report_stage(event)
            case DayResult(record=DayRecord() as record):
                yield from self._report_written(event, record)
            case DayResult():
                self.report_unwritten(event)
            case DaysWarning():
                self._context.log.warning(event.sentence)

    def report_unchanged(self, record: DayRecord) -> Iterator[Event]:
        """Materialize a published day whose replay had nothing to do."""
        day = record.facts.day
        reason = f"{day} has no dead letters: nothing was called."
        self._observe(self._events(day, record.facts.run_id), PUBLISHED, reason, "Nothing.")
        yield from self._materialize(record, metadata.figures_metadata(record))

    def report_summaries(self, result: DayResult) -> None:
        for summary, rows in result.summaries.items():
            self._context.log_event(
                dg.AssetMaterialization(
                    self._declared.beside(summary),
                    partition=result.day,
                    metadata={"dagster/row_count": rows},
                )
            )
        self.tally.unmade += [(f"{summary} of {result.day}", why) for summary, why in result.unmade]

    def report_unwritten(self, result: DayResult) -> None:
        self.report_checks()  # of a day that could not be published
        self._running = None
        self.tally.crashed |= result.crashed
        self.tally.red[result.day] = Red(result.reason, result.next_step)
        progress = {"progress": progress_line(result.progress)} if result.progress else {}
        events = self._events(result.day, result.run_id)
        self._observe(events, result.state, result.reason, result.next_step, progress)
        self._warn(result)

    def report_checks(self) -> None:
        """Report the checks of the running day, if they have run."""
        if self._judged is not None:
            self._log_checks(self._judged)
        self._judged = None

    def unfinished_day(self) -> DayStage | None:
        """Return the running day, or else the next; None after the last."""
        following = (DayStage(day, self._run_id, "next") for day in self.tally.left)
        return self._running or next(following, None)

    def failure(self) -> dg.Failure:
        day = self._events(self.tally.days[0], self._run_id)
        return self.tally.failure({} if self._has_several_days else day.links())

    def _events(self, day: str, run_id: str) -> DayEvents:
        return DayEvents(self._declared, day, run_id)

    def _report_stage(self, stage: DayStage) -> None:
        events = self._events(stage.day, stage.run_id)
        if self._running is None or stage.day != self._running.day:
            self._observe(events, RUNNING, f"The run {self._verb} the day.", "Nothing.")
        self._running = stage
        if stage.kind == "deciding":
            self._judged = stage.facts["record"]
        if stage.kind == "progress":
            self._log_progress(stage.day, stage.facts)
            if time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + self._tell_every
                line = progress_line(stage.facts)
                self._observe(events, RUNNING, f"{line}.", "Nothing.", {"progress": line})

    def _report_written(self, result: DayResult, record: DayRecord) -> Iterator[Event]:
        self._running = self._judged = None
        figures = metadata.figures_metadata(record)
        for event in self._events(result.day, result.run_id).report_record(record, figures):
            self._context.log_event(event)
        if result.is_published:
            yield from self._materialize(record, figures)
        else:
            self.tally.red[result.day] = Red(record.reason, next_step(record))
            self._log_checks(record)
        self.report_summaries(result)
        self._warn(result)

    def _materialize(self, record: DayRecord, figures: Mapping[str, Any]) -> Iterator[Event]:
        """Materialize the day, then report its check results, which Dagster assigns to it."""
        day = record.facts.day
        self.tally.published.append(day)
        values = self._events(day, record.facts.run_id).published(record, figures)
        version = data_version(record)
        if self._has_several_days:
            self._context.log_event(
                dg.AssetMaterialization(
                    self._declared.key,
                    partition=day,
                    metadata=values,
                    tags={DATA_VERSION_TAG: version.value},
                )
            )
        else:
            yield dg.MaterializeResult(metadata=values, data_version=version)
        self._log_checks(record)

    def _log_checks(self, record: DayRecord) -> None:
        report = report_url(self._declared.name, record.facts.day)
        for evaluation in check_evaluations(self._context.instance, self._declared, record, report):
            self._context.log_event(evaluation)  # type: ignore[arg-type]  # it takes an evaluation, too

    def _warn(self, result: DayResult) -> None:
        for warning in result.warnings:
            self._context.log.warning("%s: %s", result.day, warning)

    def _observe(
        self,
        events: DayEvents,
        state: str,
        reason: str,
        after: str,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self._context.log_event(events.observation(state, reason, after, more))
