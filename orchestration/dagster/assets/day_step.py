"""Runs the days of a Dagster run by the day pipeline."""

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import dagster as dg
from dagster import MAX_RUNTIME_SECONDS_TAG

from data_quality.next_step import next_step
from jobs.declare.enrichment import Enrichment
from jobs.declare.values.calendar import name_unit
from jobs.errors import TidegateError
from jobs.process.day_events import DayResult
from jobs.process.day_options import DayOptions
from jobs.process.process_guard import GONE_WITHIN
from jobs.schema.records import DayRecord
from jobs.tables.records import run_records
from jobs.wording import counted
from orchestration.common.modes import OTHERS, Mode, acceptance
from orchestration.common.states import CANCELLED, CRASHED, FAILED, PUBLISHED
from orchestration.dagster.assets.checks import outputs_of_checks, withdraw_planned
from orchestration.dagster.assets.day_config import MODE
from orchestration.dagster.assets.day_status import list_tries
from orchestration.dagster.assets.days_reporter import DaysReporter, Event
from orchestration.dagster.assets.days_tally import Red
from orchestration.dagster.declared import Declared
from orchestration.dagster.next_steps import KILLED_RUN, run_again, step_after
from orchestration.dagster.resources import SparkProgram


def enrich_days(
    context: dg.AssetExecutionContext, declared: Declared, spark: SparkProgram, mode: Mode
) -> Iterator[Event]:
    """Enrich, check and publish the days of the run. Materialize each published day; report the
    checks of every day.

    Raises:
        dagster.Failure: A day is not published; a sentence says why. Only a crash is retried
            automatically.
    """
    instance, days, named = context.instance, context.partition_keys, context.run.tags.get(MODE)
    # 0.1.0 took the mode from the tag, and had no config
    if named not in (None, mode.name) and not context.run.run_config.get("ops"):
        raise dg.Failure(
            f"Not run: the tag {MODE} is {named}, and no config has a mode, so the run would call "
            f"as every night. Give it the config {{ops: {{{declared.key.to_python_identifier()}: "
            f"{{config: {{mode: {named}}}}}}}}}.",
            allow_retries=False,
        )
    # the other context makes Dagster call what it has deprecated
    step = _DayStep(context.op_execution_context, declared, spark, mode)
    if mode is not Mode.nightly or named:  # Dagster copies tags to a retry
        instance.add_run_tags(context.run.run_id, {MODE: mode.name})
    try:
        yield from step.run()
    finally:
        for day in days:
            withdraw_planned(instance, declared, day, context.run.run_id)


class _DayStep:
    def __init__(
        self, context: dg.OpExecutionContext, declared: Declared, spark: SparkProgram, mode: Mode
    ) -> None:
        tries = context.retry_number
        self._context = context
        self._declared = declared
        self._mode = mode
        # each try has another run id, and so another folder
        self._run_id = f"{context.run_id}-{tries}" if tries else context.run_id
        self._began = run_records.now()
        self._reporter = DaysReporter(
            context, declared, self._run_id, verb=mode.value.verb, tell_every=spark.tell_every
        )
        self._pipeline = replace(spark.pipeline(declared), advise=self._advise)

    def run(self) -> Iterator[Event]:
        """Run the days. Raises dagster.Failure if any is not published or not summarized."""
        tally = self._reporter.tally
        try:
            yield from self._run_days()
        except TidegateError as error:  # of verdicts, reports, a store or a disk
            if not tally.left:
                raise
            self._end_early(FAILED, str(error))
        except dg.DagsterExecutionInterruptedError as cancel:
            self._end_early(*interruption(self._context, self._declared))
            # if it were raised unchanged, the policy for crashes would restart the cancelled days
            raise self._reporter.failure() from cancel
        except Exception:
            self._reporter.report_checks()
            raise
        if tally.is_red:
            raise self._reporter.failure()
        yield from outputs_of_checks(self._context)

    def _run_days(self) -> Iterator[Event]:
        context, tally = self._context, self._reporter.tally
        several = len(tally.days) > 1
        chosen = choose_days(
            self._declared, self._mode, tally.days, list_tries(context.instance, context.run)
        )
        tally.red |= chosen.refused
        for record in chosen.unchanged.values():
            yield from self._reporter.report_unchanged(record)
        for day in chosen.published_before:
            tally.published.append(day)
            self._summarize_again(day)
        days = chosen.to_run
        if several:
            context.log.info(
                "%s of %s to run.", counted(len(days), name_unit(days)), len(tally.days)
            )
            self._allow_time_for(len(days))
        options = DayOptions(self._mode.value.options, acceptance(self._mode), summaries=several)
        with contextlib.closing(self._pipeline.run(days, options, run_id=self._run_id)) as events:
            for event in events:
                yield from self._reporter.report(event)

    def _summarize_again(self, day: str) -> None:
        """Make windows and summaries of a day that an earlier try published, because that try may
        have failed at them.
        """
        from jobs.tables.records.published_runs import last_published

        table = self._declared.enrichment.output.path
        try:
            record = last_published(self._declared.name, day, table=table)  # of a later run, if any
        except TidegateError as error:
            self._reporter.tally.unmade.append((f"windows and summaries of {day}", str(error)))
            return
        if record is not None:
            result = DayResult(day, record.facts.run_id, PUBLISHED, "", record)
            self._reporter.report_summaries(self._pipeline.summarized(result))

    def _allow_time_for(self, days: int) -> None:
        """Multiply the run's time limit, which Dagster enforces, by the number of days."""
        longest = self._context.instance.run_monitoring_max_runtime_seconds  # 0: no limit
        if longest and MAX_RUNTIME_SECONDS_TAG not in self._context.run.tags:
            tags = {MAX_RUNTIME_SECONDS_TAG: str(longest * max(1, days))}
            self._context.instance.add_run_tags(self._context.run_id, tags)

    def _end_early(self, state: str, reason: str, next_step: str = "") -> None:
        """Report of the running day, or of the next, why the run ended before it was through."""
        if (unfinished := self._reporter.unfinished_day()) is None:
            return
        next_step = next_step or step_after(self._declared, unfinished.day, state)
        result = DayResult(unfinished.day, unfinished.run_id, state, reason, next_step=next_step)
        self._reporter.report_unwritten(self._pipeline.record(result, self._began))
        self._pipeline.render()

    def _advise(self, result: DayResult) -> DayResult:
        if result.crashed and self._context.retry_number == 0:
            return replace(
                result, state=CRASHED, next_step="Nothing: it is retried automatically once."
            )
        return replace(result, next_step=step_after(self._declared, result.day, result.state))


def interruption(context: dg.OpExecutionContext, declared: Declared) -> tuple[str, str, str]:
    """Return state, reason and next step of a run that was ended from outside: by a person, or by
    whatever killed its worker.

    Dagster restarts a killed run once. If it does not, as in a backfill that has ended, the sensor
    of silent ends corrects this.
    """
    worker = multiprocessing.parent_process()
    again = f"To publish the day, {run_again(declared)}"
    if worker is not None:
        # the threads of a killed worker end one after the other, each with a SIGTERM for us
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        worker.join(GONE_WITHIN)
    if worker is None or worker.is_alive():
        return CANCELLED, "somebody cancelled the run; its program was stopped.", again
    reason = (
        "the process of the run was killed, perhaps because memory ran out; its program was "
        "stopped."
    )
    if "dagster/retry_number" in context.run.tags:
        return FAILED, reason, again
    return CRASHED, reason, KILLED_RUN


@dataclass(frozen=True)
class ChosenDays:
    """The days of a run, divided by what the run does with them.

    Attributes:
        to_run: Days for the pipeline.
        published_before: Days that an earlier try of the run published.
        unchanged: Records of published days, which have no dead letters to replay.
        refused: Days that cannot be replayed or remapped, and why.
    """

    to_run: list[str] = field(default_factory=list)
    published_before: list[str] = field(default_factory=list)
    unchanged: dict[str, DayRecord] = field(default_factory=dict)
    refused: dict[str, Red] = field(default_factory=dict)


def choose_days(declared: Declared, mode: Mode, days: Sequence[str], tries: set[str]) -> ChosenDays:
    """Divide the days of a run by what the run does with them.

    Of several days those that are published by one of `tries`, the ids of the run and of the runs
    that it repeats, are not run again.
    """
    chosen = ChosenDays()
    for day in days:
        try:
            if len(days) > 1 and _is_published_by(tries, declared.name, day):
                chosen.published_before.append(day)
            elif mode in OTHERS:
                _choose_by_answers(chosen, declared.enrichment, day, mode)
            else:
                chosen.to_run.append(day)
        except TidegateError as error:
            chosen.refused[day] = Red(str(error), f"Run the job {declared.job_name} for the day.")
    return chosen


def _is_published_by(tries: set[str], enrichment: str, day: str) -> bool:
    return any(
        record.state == PUBLISHED and record.facts.run_id.startswith(tuple(tries))
        for record in run_records.load(enrichment, day)
    )


def _choose_by_answers(chosen: ChosenDays, enrichment: Enrichment, day: str, mode: Mode) -> None:
    """Choose a day that is replayed or remapped. Raises TidegateError if it cannot be replayed."""
    from jobs.commands.replaying.remap import published_days
    from jobs.commands.replaying.replay import last_run, prepare

    if enrichment.ledger is None:
        chosen.refused[day] = Red(
            "the enrichment keeps no ledger: every row would be called.", "Run the nightly job."
        )
        return
    if mode is Mode.remap and not published_days(enrichment, day, day):
        chosen.refused[day] = Red(
            "readers see no row of the day, whose stored answers could be mapped anew.",
            "Run the nightly job, which asks for the answers.",
        )
        return
    has_letters = mode is Mode.remap or prepare(enrichment, day)
    record = None if has_letters else last_run(enrichment, day)
    if record is None:
        chosen.to_run.append(day)
    elif record.state == PUBLISHED:
        chosen.unchanged[day] = record
    else:
        reason = f"the last run was held back, and not for its dead letters: {record.reason}"
        chosen.refused[day] = Red(reason, next_step(record))
