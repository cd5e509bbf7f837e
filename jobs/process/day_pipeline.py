"""Runs days for their readers: Spark enriches and checks them; they are published or held back.

The commands and Dagster run every day through here: a single day, or several in a Spark
application, published in their order. The run's events are plain data. Checks and reports come from
outside, as `Quality`.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from jobs.declare.enrichment import Enrichment, Summary
from jobs.declare.published.windows import Window
from jobs.errors import DayTaken, DeclarationError, RunStopped, RunWaits, TidegateError
from jobs.process.before_spark import BeforeSpark
from jobs.process.day_events import (
    FAILED,
    NOT_STARTED,
    ONCE,
    DayEvent,
    DayResult,
    DayStage,
    DaysWarning,
)
from jobs.process.day_options import DayOptions
from jobs.process.program_end import ProgramResult, ended
from jobs.process.program_thread import WaitForEnd
from jobs.process.publish_decision import (
    Quality,
    kept,
    or_warning,
    publish_or_hold_back,
    render_report,
)
from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import LOCAL
from jobs.run.enrich_day import SETTLED, WAITING, day_run_id
from jobs.schema.records import DayRecord, UnwrittenRun
from jobs.tables.leases.day_leases import WAIT, Lease, leased
from jobs.tables.records import run_records
from jobs.tables.records.killed_runs import remove_files_of_killed
from jobs.wording import one_line

LOOK_EVERY = 0.05  # s between two looks at the events of the Spark program
LAST_WORDS = ("checked", "stopped", "failed", SETTLED)  # kinds of the program's last event of a day


@dataclass(frozen=True, kw_only=True)
class DayPipeline:
    """Runs the days of an enrichment.

    Args:
        reference: module:name, by which the Spark program finds the enrichment.
        wait: How long to wait for other runs of the days that are ending, in s; for all days
            together.
        advise: Completes the result of a day that was not written: `next_step`, and the state if
            it differs.
    """

    reference: str
    enrichment: Enrichment
    quality: Quality
    submit: SparkSubmit
    wait: float = WAIT
    advise: Callable[[DayResult], DayResult] | None = None

    def run(
        self, days: Sequence[str], options: DayOptions | None = None, *, run_id: str = ""
    ) -> Generator[DayEvent]:
        """Run the days in a Spark application, in order. A failed day does not affect the others.

        Whatever ends the application (a service that is down, a crash) ends the run: later days
        have no result. After a kill at any moment readers keep what they had, and the same command
        takes the answers so far from the ledger. Closing the iterator ends Spark.

        Args:
            days: The days.
            options: How they are run.
            run_id: By default a new id; of several days each gets an id made from it.

        Raises:
            DeclarationError: The verdicts or the report could not be stored; nothing was started.
        """
        if not days:
            return
        run = _Run(self, days, options or DayOptions(), run_id or uuid.uuid4().hex)
        yield from run.events()
        if run.changed_records and (why := self.render()):
            yield DaysWarning(days[-1], why)

    def require_ready(self) -> None:
        """Raise DeclarationError if the verdicts or the report cannot be stored."""
        name = self.enrichment.name
        if why := self.quality.unready(self.enrichment.facts()):
            raise DeclarationError(f"{name}: {why} Nothing was called.")

    def record(self, result: DayResult, began: str, files_version: str = "") -> DayResult:
        """Record the end of a run without files, for the report; warn if it cannot.

        Args:
            result: How it ended.
            began: When it began, ISO 8601.
            files_version: Of the input's files when it began, if known.
        """
        run = UnwrittenRun(
            self.enrichment.name,
            result.day,
            result.run_id,
            result.state,
            result.reason,
            result.next_step,
            began,
            run_records.now(),
            files_version=files_version,
        )
        return self.saved(run, result)

    def saved(self, run: UnwrittenRun, result: DayResult) -> DayResult:
        """Save how a run of this result ended; warn if it cannot."""
        table = self.enrichment.output.path
        warning = or_warning(
            lambda: run_records.save_unwritten(run, table), "how it ended is not kept"
        )
        return replace(result, warnings=(*result.warnings, warning)) if warning else result

    def summarized(self, result: DayResult, *, anew: bool = True) -> DayResult:
        """Make windows and summaries of a published day. Returns its result with them, and with
        those that failed.

        anew: Also the summaries that were made since the day was published.
        """
        from jobs.tables.derived.summaries import is_made, summarize
        from jobs.tables.derived.window_tables import publish_windows

        enrichment, record = self.enrichment, result.record
        assert record is not None  # it is published
        made, unmade = {}, []
        tables: list[Window | Summary] = [*enrichment.windows, *enrichment.summaries]
        for summary in tables:
            try:
                if isinstance(summary, Window):
                    made[summary.name] = publish_windows(enrichment, summary, record)
                elif anew or not is_made(enrichment, summary, record):
                    made[summary.name] = summarize(enrichment, summary, result.day)
            except Exception as error:  # noqa: BLE001  # no error of a query may stop the next day
                unmade.append((summary.name, one_line(str(error))))
        return replace(result, summaries=made, unmade=tuple(unmade))

    def render(self) -> str:
        """Render the report. Returns why it could not be written, in a sentence; else empty."""
        name, table = self.enrichment.name, self.enrichment.output.path
        return or_warning(
            lambda: render_report(self.quality, name, table), "its report is not written"
        )


class _Run:
    def __init__(
        self, pipeline: DayPipeline, days: Sequence[str], options: DayOptions, run_id: str
    ) -> None:
        self._pipeline = pipeline
        self._name = pipeline.enrichment.name
        self._options = options
        self._run_id = run_id
        self._ids = run_ids(run_id, days)
        self._leases: dict[str, Lease] = {}
        self._progress: dict[str, Mapping[str, Any]] = {}  # the last progress of each day
        self._code: int | None = None  # exit status of the Spark program
        self._cap_left = dict(options.cap_left)
        self._began = run_records.now()
        self._unchanged_waits: set[str] = set()  # days that wait, and whose record says why
        ignore_ttl, elsewhere = "--ignore-ttl" in options.program, pipeline.submit.is_elsewhere
        self._checks_before = BeforeSpark(
            pipeline.enrichment, ignore_ttl=ignore_ttl, elsewhere=elsewhere
        )

    @property
    def changed_records(self) -> bool:
        """Whether the run changed any record, so that the report is rendered."""
        return len(self._unchanged_waits) < len(self._ids)

    def events(self) -> Iterator[DayEvent]:
        with contextlib.ExitStack() as held:
            refused = self._lease(held)
            if not self._options.until_red:
                yield from refused
            if self._leases:
                self._clean_up_earlier_runs()
            yield from self._unchanged()
            yield from self._waiting()
            if self._leases:
                self._pipeline.require_ready()
            is_red = False
            for event in chain(self._run_jobs(), self._run_program(self._pipeline.submit)):
                is_red |= isinstance(event, DayResult) and _is_red(event)
                yield event
            if self._options.until_red and not is_red:
                yield from refused

    def _clean_up_earlier_runs(self) -> None:
        """Fetch records of other machines, and remove what killed runs of these days left."""
        table = self._pipeline.enrichment.output.path
        run_records.fetch(self._name, table)
        for lease in self._leases.values():
            remove_files_of_killed(self._name, table, lease)

    def _lease(self, held: contextlib.ExitStack) -> list[DayResult]:
        """Lease every free day until the end; return the results of the others."""
        refused = []
        until = time.monotonic() + self._pipeline.wait
        for day, run_id in self._ids.items():
            wait = max(0.0, until - time.monotonic())
            try:
                self._leases[day] = held.enter_context(
                    leased(self._pipeline.enrichment.output.path, day, run_id, wait=wait)
                )
            except (DayTaken, DeclarationError, RunStopped) as error:  # as of a read-only folder
                result = DayResult(day, run_id, error.state, str(error), code=error.status)
                refused.append(self._record_end(result))
            if refused and self._options.until_red:
                break
        return refused

    def _unchanged(self) -> Iterator[DayResult]:
        """Yield results of unchanged tables without days; Spark is not started for them."""
        for day in [*self._leases]:
            record = self._checks_before.unchanged_record(day)
            if record is not None:
                del self._leases[day]  # no longer run, but held until the end
                result = DayResult(day, self._ids[day], record.state, "", record)
                if self._options.summaries:  # a run that was killed left them to this one
                    result = self._pipeline.summarized(result, anew=False)
                yield result

    def _waiting(self) -> Iterator[DayResult]:
        """Yield results of days whose jobs are open; Spark is not started for them."""
        for day in [*self._leases] if "--no-calls" not in self._options.program else ():
            state, code = RunWaits.state, WAITING
            try:
                has_cap = self._cap_left.get(day) != 0
                reason = self._checks_before.waits_for(day, may_submit=has_cap)
            except TidegateError as error:
                reason, state, code = str(error), error.state, error.status
            if reason:
                del self._leases[day]  # no longer run, but held until the end
                result = DayResult(day, self._ids[day], state, reason, code=code)
                before = run_records.waiting(self._name, day) if code == WAITING else None
                if before is not None:
                    yield self._renew_wait(result, before)
                else:
                    yield self._record_end(result)

    def _renew_wait(self, result: DayResult, before: UnwrittenRun) -> DayResult:
        """Renew the reason of the run since which the day waits, in place of a further record."""
        result = self._with_next_step(result)
        if before.reason == result.reason:
            self._unchanged_waits.add(result.day)
            return result
        run = replace(before, reason=result.reason, ended_at=run_records.now())
        return self._pipeline.saved(run, result)

    def _run_jobs(self) -> Iterator[DayEvent]:
        """Submit and read jobs of vendors without Spark. Yields the results of days that wait,
        or that end otherwise; Spark is not started for them.
        """
        submit = self._pipeline.submit
        without = submit.engine == LOCAL or submit.is_elsewhere
        if without or "--no-calls" in self._options.program or not self._checks_before.has_jobs:
            return
        settled = []
        for event in self._run_program(replace(submit, engine=LOCAL), "--jobs-only"):
            if isinstance(event, DayStage) and event.kind == SETTLED:
                settled.append(event.day)
                if (left := event.facts.get("cap_left")) is not None:
                    self._cap_left[event.day] = left
            yield event
        # the others are no longer run, but held until the end
        self._leases = {day: self._leases[day] for day in settled}
        self._code = None

    def _run_program(self, submit: SparkSubmit, *more: str) -> Iterator[DayEvent]:
        """Run the days by the program. more: its options."""
        if not (days := list(self._leases)):
            return
        log = self._log(days[0])
        for day in days:
            run_records.progress_file(self._name, day).unlink(missing_ok=True)  # of an earlier run
        yield DayStage(
            days[0],
            self._ids[days[0]],
            "starting",
            {"log": str(log), "engine": submit.engine, "jobs_only": bool(more)},
        )
        self._checks_before.list_files(days)
        is_short = self._checks_before.is_short(days)
        submit = submit.for_short_run() if is_short else submit
        if not is_short or len(days) > 1 or self._checks_before.runs_code_of_users:
            submit = replace(submit, in_process=False)
        with (
            self._checks_before.handed_over() as handed_over,
            submit.started(
                self._pipeline.reference,
                days=days,
                run_id=self._run_id,
                log=log,
                options=[*self._program_options(), *handed_over, *more],
                leases=list(self._leases.values()),
            ) as wait,
        ):
            yield from self._results(days, wait, log)

    def _results(self, days: Sequence[str], wait: WaitForEnd, log: Path) -> Iterator[DayEvent]:
        """Yield the events of the running program, and decide about each day that it checked."""
        named_cause = False  # whether Spark's last event was about a day that it did not write
        for day in days:
            yield from self._stages(day, wait)
            event = run_records.read_progress(self._name, day)
            if event.get("kind") not in LAST_WORDS:
                program = ended(self._code or 0, log)
                if event or program.crashed or not named_cause:
                    yield self._crash_result(day, program)
                return
            if event["kind"] == SETTLED:
                continue
            if event["kind"] == "checked":
                yield (deciding := self._begin_deciding(day))
                result = self._decide(deciding.facts["record"])
            else:
                result = self._stop_result(day, event)
            yield result
            named_cause = result.record is None
            if self._options.until_red and _is_red(result):
                return

    def _program_options(self) -> list[str]:
        several = ["--in-turn"] if len(self._ids) > 1 else []
        until_red = ["--until-red"] if self._options.until_red and several else []
        return [
            "--checks",
            self._pipeline.quality.checks,
            *several,
            *until_red,
            *(["--cap-left", json.dumps(self._cap_left)] if self._cap_left else []),
            *self._options.program,
        ]

    def _stages(self, day: str, wait: WaitForEnd) -> Iterator[DayStage]:
        """Yield Spark's events of the day as they come, up to the day's last or Spark's end."""
        last: dict[str, Any] = {}
        while True:
            if self._code is None:
                self._code = wait(LOOK_EVERY)
            event = run_records.read_progress(self._name, day)
            if event and event != last:
                if not last:
                    self._link_log(day)
                last = event
                yield from self._progress_event(
                    day, event if event["kind"] == "progress" else event.get("progress")
                )
                if event["kind"] != "progress":
                    yield DayStage(day, self._ids[day], event["kind"], event)
            if event.get("kind") in LAST_WORDS or self._code is not None:
                return

    def _progress_event(self, day: str, progress: Mapping[str, Any] | None) -> Iterator[DayStage]:
        if progress and progress != self._progress.get(day):
            self._progress[day] = progress
            yield DayStage(day, self._ids[day], "progress", progress)

    def _log(self, day: str) -> Path:
        return run_records.run_log(self._name, day, self._ids[day])

    def _link_log(self, day: str) -> None:
        """Link the log of a later day to that of the first, because the days share a Spark."""
        first, log = self._log(next(iter(self._leases))), self._log(day)
        if log != first:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.unlink(missing_ok=True)
            log.symlink_to(first.resolve())

    def _begin_deciding(self, day: str) -> DayStage:
        record = run_records.of_run(self._name, day, self._ids[day])
        assert record is not None  # Spark saves it before it reports the day as checked
        facts = {"record": record, "held_back": bool(record.red)}
        return DayStage(day, self._ids[day], "deciding", facts)

    def _decide(self, record: DayRecord) -> DayResult:
        day, keep = record.facts.day, self._pipeline.quality.keep
        try:
            if refused := self._options.accept(record) if self._options.accept else "":
                record = run_records.hold_back(kept(record, keep), refused)
            else:
                record = publish_or_hold_back(record, keep, self._leases[day])
        except TidegateError as error:  # of a disk, a store or a catalog; other days may succeed
            result = DayResult(day, self._ids[day], FAILED, str(error), code=TidegateError.status)
            result = self._record_end(result)
            if len(self._ids) > 1 and not run_records.has_end(self._name, day, self._ids[day]):
                raise  # the program would wait for a decision for ever
            return result
        result = DayResult(
            day, self._ids[day], record.state, record.reason, record, warnings=record.warnings
        )
        if result.is_published and self._options.summaries:
            return self._pipeline.summarized(result)
        return result

    def _stop_result(self, day: str, event: Mapping[str, Any]) -> DayResult:
        state, code = event.get("state", FAILED), event.get("status", TidegateError.status)
        result = DayResult(
            day, self._ids[day], state, event["reason"], code=code,
            progress=self._progress.get(day), cap_left=event.get("cap_left"),
        )  # fmt: skip
        return self._record_end(result)

    def _crash_result(self, day: str, program: ProgramResult) -> DayResult:
        """Return the result of a day whose program ended before its last event: by a crash, or
        before it could report anything.
        """
        self._link_log(day)
        result = DayResult(
            day, self._ids[day], FAILED, program.reason, code=program.code,
            crashed=program.crashed, progress=self._progress.get(day),
        )  # fmt: skip
        return self._record_end(result)

    def _record_end(self, result: DayResult) -> DayResult:
        result = self._with_next_step(result)
        if result.state == NOT_STARTED:
            return result
        version = self._checks_before.files_version(result.day)
        return self._pipeline.record(result, self._began, version)

    def _with_next_step(self, result: DayResult) -> DayResult:
        advise = self._pipeline.advise
        return (
            advise(result) if advise else replace(result, next_step=self._default_next_step(result))
        )

    def _default_next_step(self, result: DayResult) -> str:
        when = ONCE.get(result.state, ONCE[FAILED])
        return f"{when}, run the day again: `tidegate run {self._name} --day {result.day}`."


def _is_red(result: DayResult) -> bool:
    return not result.is_published and result.code != WAITING


def run_ids(run_id: str, days: Sequence[str]) -> dict[str, str]:
    """Return the run id of each day; several days each get a separate id."""
    return {day: day_run_id(run_id, day) if len(days) > 1 else run_id for day in days}
