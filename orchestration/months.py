"""A month of an enrichment in one run and one Spark application: its days in order, each published by itself.

For long ranges of small days, where starting Spark takes longer than a day does.
"""

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import dagster as dg
from dagster import MAX_RUNTIME_SECONDS_TAG

from jobs.errors import DayTaken, DeclarationError
from jobs.process.spark_submit import ProgramResult
from jobs.run.enrich_day import run_id_of
from jobs.schema import DayRecord
from jobs.tables import run_records
from jobs.tables.leases import WAIT, Lease, leased
from jobs.wording import counted
from orchestration import metadata, modes
from orchestration.assets import CRASH, POOL
from orchestration.checks import check_evaluations, target_of
from orchestration.day_events import render_report, require_storing, run_again
from orchestration.day_status import ENRICHMENT
from orchestration.day_step import DayRun
from orchestration.declared import Declared
from orchestration.input_sensor import files_of
from orchestration.resources import SparkProgram

MONTH = "%Y-%m"
LONGEST = 86_400  # s; thirty days may take longer than the longest run of one day
NAMED = 3  # days that are not published, in the reason of the run


class Which(dg.Config):
    """again: the days that are up to date, too."""

    again: bool = False


def month_job(declared: Declared) -> dg.JobDefinition:
    """The job that runs the days of a month which are not up to date; one partition is one month."""

    @dg.op(name=f"enrich_month_of_{declared.name}", pool=POOL, out=dg.Out(dg.Nothing), retry_policy=CRASH)
    def enrich_month(context: dg.OpExecutionContext, config: Which, spark: SparkProgram) -> None:
        days = days_to_run(declared, context.partition_key, context.run_id, again=config.again)
        say = context.log.info
        say(f"{counted(len(days), 'day')} of {context.partition_key} to run.")
        if days:
            MonthRun(context, declared, days).carry_out(spark)

    @dg.job(
        name=f"{declared.name}_month",
        description=(
            f"Enriches the days of a month of {declared.name} in one Spark application, one after the other; those "
            "that are published as they are declared and delivered now stay. Each day is checked and published by "
            "itself: one that is not published makes the run red at its end, and leaves the others."
        ),
        partitions_def=months(declared),
        tags={ENRICHMENT: declared.name, MAX_RUNTIME_SECONDS_TAG: str(LONGEST)},
    )
    def job() -> None:
        enrich_month()

    return job


def months(declared: Declared) -> dg.MonthlyPartitionsDefinition:
    """Every month that has a day of the enrichment, the one that is not over too."""
    end = declared.enrichment.end
    last = dt.date.fromisoformat(end) - dt.timedelta(days=1) if end else None
    return dg.MonthlyPartitionsDefinition(
        start_date=declared.enrichment.start[:7],
        end_date=f"{last.year + last.month // 12}-{last.month % 12 + 1:02}" if last else None,
        fmt=MONTH,
        end_offset=1,
    )


def days_of(declared: Declared, month: str) -> list[str]:
    """The days of the enrichment in that month, in order."""
    return [day for day in declared.days.get_partition_keys() if day.startswith(f"{month}-")]


def days_to_run(declared: Declared, month: str, run_id: str, *, again: bool) -> list[str]:
    """The days that are not up to date; with `again` all but those that an earlier try of this run of Dagster has
    published.
    """
    days = days_of(declared, month)
    if again:
        return [day for day in days if not has_published(declared, day, run_id)]
    return [day for day in days if not is_up_to_date(declared, day)]


def has_published(declared: Declared, day: str, run_id: str) -> bool:
    """Whether the run of Dagster has published the day, in whichever of its tries."""
    of_run = [record for record in run_records.load(declared.name, day) if record.facts.run_id.startswith(run_id)]
    return any(record.state == "published" for record in of_run)


def is_up_to_date(declared: Declared, day: str) -> bool:
    """Whether the day is published as it is declared now, from the files that there are now."""
    done = [record for record in run_records.load(declared.name, day) if record.state == "published"]
    if not done or done[-1].facts.declared.fingerprint != declared.facts.fingerprint:
        return False
    files = files_of(declared, day)
    return files is None or files.newest <= dt.datetime.fromisoformat(done[-1].facts.started_at).timestamp()


class MonthRun:
    """One run of the days of a month, and how each of them is told to Dagster."""

    def __init__(self, context: dg.OpExecutionContext, declared: Declared, days: Sequence[str]) -> None:
        tries = context.retry_number
        self._context = context
        self._declared = declared
        self._run_id = f"{context.run_id}-{tries}" if tries else context.run_id
        self._runs = {day: DayRun(context, declared, day, run_id_of(self._run_id, day), modes.NIGHTLY) for day in days}
        self._leases: dict[str, Lease] = {}
        self._begun: set[str] = set()
        self._published: list[str] = []
        self._red: dict[str, str] = {}  # day -> why it is not published
        self._said_why = False  # whether Spark's last word was of a day that it did not write
        self._unsummarized: dict[str, str] = {}  # summary and day -> why it is not made

    def carry_out(self, spark: SparkProgram) -> None:
        """Run the days. Raises dagster.Failure, naming them, when some are not published or not summarized; the others
        are.
        """
        with ExitStack() as held:
            try:
                self._take(held)
                ended = self._with_spark(spark) if self._leases else None
            except dg.DagsterExecutionInterruptedError as cancel:
                raise self._cancelled() from cancel
        early = ended if ended is not None and self._left() else None
        if early is not None:
            self._broken_off(early)
        if self._red or self._unsummarized:
            raise self._failure(early=early is not None, allow_retries=early is not None and early.crashed)
        render_report(self._declared.name)

    def _take(self, held: ExitStack) -> None:
        """Every day that nobody else is running, for as long as the run lasts: its Spark holds them too. All days that
        are taken are waited for no longer than one.
        """
        until = time.monotonic() + WAIT
        for day, run in self._runs.items():
            wait = max(0.0, until - time.monotonic())
            try:
                require_storing(self._declared.name)
                self._leases[day] = held.enter_context(leased(self._declared.facts.table, day, run.run_id, wait=wait))
            except DayTaken as taken:
                run.observe(
                    "not started", str(taken), f"Wait for that run, or cancel it; then {run_again(self._declared)}"
                )
                self._red[day] = str(taken)
            except DeclarationError as error:
                run.observe("failed", str(error), f"Once that is mended, {run_again(self._declared)}")
                self._red[day] = str(error)

    def _with_spark(self, spark: SparkProgram) -> ProgramResult:
        return spark.run_days(
            self._context,
            self._declared.reference,
            days=list(self._leases),
            run_id=self._run_id,
            log=self._runs[next(iter(self._leases))].events.log,
            leases=list(self._leases.values()),
            hear=self._hear,
            while_running=self._tell_progress,
        )

    def _tell_progress(self) -> None:
        for day in self._left():
            if day in self._begun:
                self._runs[day].observe_progress()

    def _hear(self, message: Mapping[str, Any]) -> None:
        """What the Spark program says of a day; before the next day begins it waits for what becomes of this one."""
        match message:
            case {"kind": "started", "day": day}:
                self._begin(day)
            case {"kind": "checked", "record": values}:
                record = DayRecord.from_dict(values)
                self._decide(record.facts.day, ProgramResult(0, record, ""))
            case {"kind": "stopped" | "failed", "day": day, "reason": reason, **rest}:
                progress = str(rest.get("progress", ""))
                self._decide(day, ProgramResult(1, None, reason, str(rest.get("state", "failed")), progress))

    def _begin(self, day: str) -> None:
        self._begun.add(day)
        self._link_log(day)
        self._runs[day].observe("running", "Spark enriches and checks the day.", "Nothing.")

    def _link_log(self, day: str) -> None:
        """One Spark, one log: every day links it, also one that ends before it begins, as without input."""
        first, own = self._runs[next(iter(self._leases))].events.log, self._runs[day].events.log
        if own != first:
            own.parent.mkdir(parents=True, exist_ok=True)
            own.unlink(missing_ok=True)
            own.symlink_to(first.resolve())

    def _decide(self, day: str, ended: ProgramResult) -> None:
        run = self._runs[day]
        self._said_why = ended.record is None
        if ended.record is None:
            self._link_log(day)
            run.report_unwritten(ended)
            self._red[day] = ended.reason
            return
        record = run.publish_or_hold_back_day(ended.record, self._leases[day])
        reported = metadata.figures_metadata(record)
        for event in run.events.of_record(record, reported):
            self._context.log_event(event)
        if record.state == "published":
            self._context.log_event(
                dg.AssetMaterialization(
                    self._declared.key, partition=day, metadata=run.events.published(record, reported)
                )
            )
        self._log_checks(record, run.events.report)
        if record.state != "published":
            self._red[day] = record.reason
            return
        self._published.append(day)
        self._summarize(day)

    def _log_checks(self, record: DayRecord, report: str) -> None:
        """The results of the day's checks, after its materialization: each names the last one that Dagster has."""
        target = target_of(self._context.instance, self._declared, record.facts.day)
        for evaluation in check_evaluations(self._declared, record, report, target):
            self._context.log_event(evaluation)  # type: ignore[arg-type]  # it takes one; its type does not say so

    def _summarize(self, day: str) -> None:
        from jobs.tables.summaries import summarize

        for summary in self._declared.enrichment.summaries:
            try:
                rows = summarize(self._declared.enrichment, summary, day)
            except Exception as error:  # noqa: BLE001  # whatever a query says: the day is published, the next one waits
                self._unsummarized[f"{summary.name} of {day}"] = " ".join(str(error).split())
                continue
            self._context.log_event(
                dg.AssetMaterialization(dg.AssetKey(summary.name), partition=day, metadata={"dagster/row_count": rows})
            )

    def _left(self) -> list[str]:
        """The days that no word came of."""
        return [day for day in self._leases if day not in self._red and day not in self._published]

    def _broken_off(self, ended: ProgramResult) -> None:
        """Spark ended before the last day: by a stop that was told, or by a crash in a day or between two."""
        day = self._left()[0]
        if day in self._begun:
            self._runs[day].report_unwritten(ended)
            self._red[day] = ended.reason
        elif ended.crashed or not self._said_why:
            self._red[day] = ended.reason

    def _cancelled(self) -> dg.Failure:
        over = {*self._published, *self._red}
        day = next((day for day in self._runs if day not in over), None)
        if day is not None:
            self._red[day], _ = self._runs[day].report_interrupted()
        return self._failure(early=day is not None, allow_retries=False)

    def _failure(self, *, early: bool, allow_retries: bool) -> dg.Failure:
        """early: something ended the run before its last day was over; it comes first."""
        render_report(self._declared.name)
        left = self._left()
        red = list(self._red.items())
        red = red[-1:] + red[:-1] if early else red
        named = " ".join(f"{day}: {why.rstrip('.')}." for day, why in red[:NAMED])
        more = f" {len(red) - NAMED} more." if len(red) > NAMED else ""
        unpublished = f" Not published: {named}{more}" if red else ""
        rest = f" {counted(len(left), 'day was', 'days were')} not begun." if left else ""
        unmade = "".join(
            f" Not made: {what}: {why.rstrip('.')}." for what, why in list(self._unsummarized.items())[:NAMED]
        )
        next_step = (
            "Mend the cause of each day, which its Events tell, then run the month again: it runs what is missing. "
            "A summary that was not made is materialized by itself."
        )
        return dg.Failure(
            f"{len(self._published)} of {len(self._runs)} days published.{unpublished}{rest}{unmade}",
            metadata={"next_step": dg.MetadataValue.text(next_step)},
            allow_retries=allow_retries,
        )
