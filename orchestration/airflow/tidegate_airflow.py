"""Airflow DAGs of Tidegate's enrichments: a DAG per enrichment, with a run and a task per day.

Copy this file into Airflow's `plugins` folder; a DAG file is then

    from tidegate_airflow import dags_of

    globals().update(dags_of("/srv/tidegate/manifest.json"))

The command `tidegate manifest` writes the manifest. This file does not import Tidegate: a task
starts the command `tidegate` in the manifest's folder with the manifest's Python, and reads how the
day ended.
"""

import ctypes
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import (
    DAG,
    Asset,
    BaseOperator,
    BaseOperatorLink,
    ExceptionRetryPolicy,
    Param,
    PartitionedAtRuntime,
    RetryRule,
)
from airflow.sdk.definitions.deadline import (
    BaseDeadlineReference,
    DeadlineAlert,
    deadline_reference,
)
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.timetables.base import DagRunInfo, TimeRestriction
from airflow.timetables.trigger import CronPartitionTimetable

FORMAT = 1  # of the manifest, and of the results of `tidegate run --json`
RESULT = f'{{"format": {FORMAT}, "enrichment": '  # begins a result
DAY_LONG = dt.timedelta(days=1)
AFTER_A_CRASH = dt.timedelta(minutes=1)
# factors of the pause between looks at jobs of a vendor, as in `tidegate run --wait-for-jobs`
PAUSE_GROWS, PAUSE_GROWS_AT_MOST = 1.5, 20.0
GRACE = 4.0  # s between SIGTERM and SIGKILL; Airflow kills the task 5 s after SIGTERM
NOTHING_DONE = ("unchanged", "no input")
# ends of days that decide how the task of a refresh ends only if no day ended worse; mildest first
MILD = (*NOTHING_DONE, "waiting", "not started", "stopped: service", "crashed")
PR_SET_PDEATHSIG = 1
# names in the task's state, which clearing the task keeps
FIRST_START, PUBLISHED = "tidegate_first_start", "tidegate_published"
WIDTH = 100  # characters of a line of a log; the page cuts longer ones
CLEAR = "clear this task: stored answers are not paid for again."
STOPPED = {  # the end of a day whose task Airflow stopped
    "state": "stopped",
    "reason": "somebody marked or cleared this task, or its worker was stopped.",
    "next_step": f"If Airflow does not run the day again by itself, {CLEAR}",
}
RED_DAY = (
    "A day that is not published: the end of its task's log says why and what to do next; the "
    "button Report, under the task's Details, opens its report. Clear the task once the cause is "
    "mended: stored answers are not paid for again."
)


class LaterAgain(AirflowException):
    """A service is down, or another run has the day: a later try can succeed."""


class DayCrashed(AirflowException):
    """The day's process or its Spark was killed: another try may succeed."""


class ReportLink(BaseOperatorLink):
    """A link to the report of the day, next to the task's log."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002  # its parent's names
        return getattr(operator, "report", "")


class TidegateDay(BaseOperator):
    """Runs a day of an enrichment by Tidegate's command.

    Published: the task succeeds, with events of the table, its dead letters and its summaries. No
    input, or nothing to do in a replay, remap or refresh: skipped. Jobs of a vendor are open:
    deferred, as often as they are open, without a worker or a slot of the pool; the command asks
    the vendor again after poll_every, then less and less often. A service that is down, or another
    run of the day: retried every again_after_s until the next publish_by after the run began;
    without publish_by, failed. A crash: retried once. Anything else fails at once, with the reason.
    A refresh of several days ends as the worst of them; a day without input fails it if others are
    not without.

    Args:
        enrichment: Its entry in the manifest.
        manifest: The manifest: the folder and the Python of the command.
        env: Environment of the command, added to the worker's.
    """

    ui_color = "#d7ecf5"
    operator_extra_links = (ReportLink(),)

    def __init__(
        self,
        *,
        enrichment: Mapping[str, Any],
        manifest: Mapping[str, Any],
        env: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        again_after = dt.timedelta(seconds=manifest["again_after_s"])
        later = RetryRule(
            LaterAgain, retry_delay=again_after, reason="tried again until publish_by"
        )
        policy = {
            # publish_by and the count of crashes end it sooner
            "retries": DAY_LONG // again_after + 2,
            "retry_delay": min(again_after, AFTER_A_CRASH),
            "retry_policy": ExceptionRetryPolicy([later]),
        }
        # a refresh publishes days of all enrichments that use the lookup
        tables = [table for entry in manifest["enrichments"] for table in _tables(entry)]
        source = Asset(enrichment["input"])
        assets = {
            # Airflow refuses a second name for the path of a table that others publish
            "inlets": [next((table for table in tables if table.uri == source.uri), source)],
            "outlets": _tables(enrichment),
        }
        super().__init__(**{**policy, **assets, **kwargs})
        self.enrichment = dict(enrichment)
        self.tables = tables
        self.others = {entry["name"] for entry in manifest["enrichments"]} - {enrichment["name"]}
        self.package = manifest["package"]
        self.folder = manifest["folder"]
        self.python = manifest["python"]
        self.again_after = again_after
        self.env = dict(env or {})
        self.report = ""
        self.is_stopped = False  # by Airflow

    def execute(
        self,
        context: Any,
        event: Any = None,  # noqa: ARG002  # of the trigger
        looks: int = 0,
    ) -> None:
        """Run the day.

        Args:
            context: Of the task.
            event: Of the trigger, where the task was deferred.
            looks: How often the task was deferred.

        Raises:
            TaskDeferred: Jobs of a vendor are open.
            AirflowSkipException: There is no input, or nothing to do.
            LaterAgain: A service is down, or another run has the day.
            DayCrashed: The day's process or its Spark was killed.
            AirflowFailException: Any other end.
        """
        day = _named_day(context)
        began, store = context["dag_run"].start_date, context["task_state_store"]
        first_start = store.get(FIRST_START, began.isoformat())
        store.set(FIRST_START, first_start)
        command = self._command(context["params"], day, first_start)
        crashes = Crashes(store, began)
        crashes.begin()
        # a try that fails has no events, so a later try makes those of its days too
        published: dict[str, dict[str, Any]] = store.get(PUBLISHED, {})

        def keep(result: dict[str, Any]) -> None:
            name, its_day = result["enrichment"], result["day"] or day
            other = f"{name}_" if name in self.others else ""
            context["ti"].xcom_push(key=f"tidegate_{other}{its_day}", value=result)
            self.report = result.get("report") or self.report
            if result["state"] == "published":
                for table, extra in _extras(result).items():
                    published.setdefault(table, {})[its_day] = extra
                store.set(PUBLISHED, published)

        results, status = self._run(command, keep)
        red = _worst(results)
        unmade = [
            warning for result in results if result.get("unmade") for warning in result["warnings"]
        ]
        if red is None and status != 0 and not unmade:
            end = STOPPED if self.is_stopped else _silent_end(status)
            red = {"enrichment": self.enrichment["name"], "day": day, **end}
            results.append(red)
        if red is None or red["state"] != "crashed":
            crashes.end()
        self._log(results)
        nothing_done = all(result["state"] in NOTHING_DONE for result in results)
        if red is not None and not (nothing_done and published):
            self._raise(red, began, looks, nothing_done=nothing_done, last=crashes.is_last)
        if not published:
            raise AirflowSkipException("No day was run: the log above says why.")
        self._emit(context["outlet_events"], published)
        if unmade:
            raise AirflowFailException(f"The day is published, but {' '.join(unmade)}")
        store.delete(PUBLISHED)

    def on_kill(self) -> None:
        """End the command, which ends its Spark."""
        self.is_stopped = True
        process = getattr(self, "process", None)
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()

    def _command(self, params: Mapping[str, Any], day: str, first_start: str) -> list[str]:
        mode = params.get("mode") or "nightly"
        if mode not in self.enrichment["modes"]:
            raise AirflowFailException(
                f"mode is {mode!r}; it must be one of: {', '.join(self.enrichment['modes'])}."
            )
        name, reference = self.enrichment["name"], self.enrichment["reference"]
        words = {
            "nightly": ["run", reference, "--day", day],
            "replay": ["replay", reference, "--day", day],
            "remap": ["remap", name, "--from", day, "--to", day, "--package", self.package],
            "refresh": [
                "refresh",
                str(params.get("lookup")),
                "--where",
                str(params.get("where")),
                "--run",
                # a later try leaves out the answers that an earlier try paid for
                "--answered-before",
                first_start,
            ],
        }[mode]
        if mode == "refresh":
            if not params.get("lookup") or not params.get("where"):
                raise AirflowFailException(
                    'A refresh needs "lookup" and "where", such as "answer.temp_c = 0".'
                )
            words += ["--package", self.package]
            for option in ("answered_from", "answered_to"):
                if params.get(option):
                    words += [f"--{option.replace('_', '-')}", params[option]]
        return [self.python, "-m", "tidegate", *words, "--json"]

    def _run(
        self, command: Sequence[str], keep: Callable[[dict[str, Any]], None]
    ) -> tuple[list[dict[str, Any]], int]:
        self.log.info("%s: %s", self.folder, " ".join(command))
        self.process = subprocess.Popen(  # noqa: S603
            command, cwd=self.folder, env={**os.environ, **self.env}, text=True,
            errors="backslashreplace",  # a library of the user may write any bytes
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  # a task that is killed with -9 runs no on_kill
        )  # fmt: skip
        results = []
        for line in self.process.stdout or ():
            # a library of the user may have left its line unfinished
            before, begin, rest = line.partition(RESULT)
            if before.strip():
                self.log.info("%s", before.rstrip())
            if begin:
                results.append(json.loads(begin + rest))
                keep(results[-1])
        return results, self.process.wait()

    def _log(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Log how each day ended."""
        for result in results:
            log = self.log.info if result["state"] in ("published", "waiting") else self.log.warning
            for line in _lines(result):
                log("%s", line)
            for warning in result.get("warnings", ()):
                self.log.warning("%s: %s", result["day"], warning)

    def _emit(self, events: Any, published: Mapping[str, Mapping[str, Any]]) -> None:
        """Add an event for each published day, with its partition key; a refresh may have several.

        When a task ends, Airflow makes events for all of its outlets, so outlets without an event
        are removed.

        Args:
            events: Of the task's outlets.
            published: By table and day the event's extra.
        """
        tables = {table.name: table for table in (*self.tables, *self.outlets)}
        self.outlets: list[Any] = [tables[name] for name in published if name in tables]
        for outlet in self.outlets:
            days = published[outlet.name]
            several = {"days": len(days)}
            events[outlet].extra = next(iter(days.values())) if len(days) == 1 else several
            events[outlet].add_partitions(list(days))

    def _raise(
        self,
        red: Mapping[str, Any],
        began: dt.datetime,
        looks: int,
        *,
        nothing_done: bool,
        last: bool,
    ) -> None:
        """End the try as its worst day ended, with what Airflow or the reader does next.

        Args:
            red: The result of the worst day.
            began: When the run began.
            looks: How often the task was deferred.
            nothing_done: No day had anything to do.
            last: No try may crash any more.
        """
        self.report = red.get("report") or self.report
        match red["state"]:
            case "no input" | "unchanged" if nothing_done:
                raise AirflowSkipException(_text(red))
            case "stopped":  # the worker may have ended, and then another try can succeed
                raise DayCrashed(_text(red))
            case "crashed" if not last:
                self.log.warning("Airflow runs the day once more, in a minute or two.")
                raise DayCrashed(_text(red))
            case "waiting":
                pause = self._pause(looks)
                again_at = dt.datetime.now(dt.UTC) + pause
                self.log.info("Deferred; the vendor is asked again at %s UTC.", f"{again_at:%H:%M}")
                self.defer(
                    trigger=TimeDeltaTrigger(pause),
                    method_name="execute",
                    kwargs={"looks": looks + 1},
                )
            case "stopped: service" | "not started" if self._goes_on(began):
                again_at = dt.datetime.now(dt.UTC) + self.again_after
                until = f"{self.enrichment['publish_by']} {self.enrichment['zone']}"
                self.log.warning(
                    "Airflow runs the day again about %s UTC, and then until %s.",
                    f"{again_at:%H:%M}",
                    until,
                )
                raise LaterAgain(_text(red))
            case _:
                self.log.warning("In Airflow: once the cause is mended, %s", CLEAR)
                raise AirflowFailException(f"{_text(red)} In Airflow: {CLEAR}")

    def _pause(self, looks: int) -> dt.timedelta:
        if (first := self.enrichment.get("poll_every_s")) is None:  # an older manifest
            return self.again_after
        return dt.timedelta(seconds=first) * min(PAUSE_GROWS ** min(looks, 10), PAUSE_GROWS_AT_MOST)

    def _goes_on(self, began: dt.datetime) -> bool:
        """Return whether a run that began then is retried: until the next publish_by, which is the
        deadline of a nightly run. A backfill's deadline has passed when it begins, and its service
        may be down all the same.
        """
        publish_by = self.enrichment["publish_by"]
        if publish_by is None:
            return False
        zone = self.enrichment["zone"]
        today = began.astimezone(ZoneInfo(zone)).date()
        until = at_time(today, publish_by, zone)
        if until <= began:
            until = at_time(today + DAY_LONG, publish_by, zone)
        return dt.datetime.now(dt.UTC) + self.again_after < until


class Crashes:
    """Counts in Airflow how many tries of a task crashed since its run began.

    A killed try reports nothing, so each try counts as crashed until it ends otherwise. Clearing
    the task starts the run and the count again.
    """

    MOST = 2  # tries that may crash

    def __init__(self, store: Any, began: dt.datetime) -> None:
        self._store = store
        self._key = f"tidegate_crashes_since_{began.isoformat()}"
        self._before = int(store.get(self._key, 0))

    def begin(self) -> None:
        """Count this try. Raises AirflowFailException when enough tries have crashed."""
        if self._before >= self.MOST:
            raise AirflowFailException(
                f"{self.MOST} tries ended before their day: killed, perhaps because memory ran "
                "out, or at the task's execution_timeout. Their logs end there. Once the cause is "
                f"mended, {CLEAR}"
            )
        self._store.set(self._key, self._before + 1)

    def end(self) -> None:
        """Remove this try from the count, because it has not crashed."""
        self._store.set(self._key, self._before)

    @property
    def is_last(self) -> bool:
        return self._before + 1 >= self.MOST


@deadline_reference
class PublishBy(BaseDeadlineReference):
    """publish_by on the day after the partition's; None if it passed before the run was made."""

    required_kwargs = frozenset({"dag_id", "run_id"})

    def __init__(self, publish_by: str = "00:00", zone: str = "UTC") -> None:
        self.publish_by, self.zone = publish_by, zone

    def serialize_reference(self) -> dict[str, Any]:
        return {**super().serialize_reference(), "publish_by": self.publish_by, "zone": self.zone}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> "PublishBy":
        return cls(reference_data["publish_by"], reference_data["zone"])

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str) -> dt.datetime | None:
        from airflow.models import DagRun  # the scheduler has it; a task need not
        from sqlalchemy import select

        of_run = select(DagRun.partition_key).where(
            DagRun.dag_id == dag_id, DagRun.run_id == run_id
        )
        day = session.scalar(of_run)
        if not day:
            return None
        until = at_time(dt.date.fromisoformat(day) + DAY_LONG, self.publish_by, self.zone)
        return until if until > dt.datetime.now(dt.UTC) else None


class DayBefore(CronPartitionTimetable):
    """A run a day, for the day before.

    With `run_offset=-1` Airflow goes back to the time of the schedule before. Where clocks skip
    that time, as 02:15 on the last Sunday of March, this is on the day of the run itself: the day
    would be run before its end, and the day before it never.
    """

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        run = super().next_dagrun_info_v2(
            last_dagrun_info=last_dagrun_info, restriction=restriction
        )
        if run is None or run.partition_key is None:
            return run
        day = dt.date.fromisoformat(run.partition_key) - DAY_LONG
        minute, hour = map(int, self.summary.split()[:2])
        # the date that a backfill of the day has: Airflow continues after the run with the last
        # date, and would make this run again after a backfill with a later date
        at = self.localize_partition_datetime(dt.datetime.combine(day, dt.time(hour, minute)))
        return run._replace(partition_date=at, partition_key=day.isoformat())


class TidegatePlugin(AirflowPlugin):
    """Registers the deadline's reference and the timetable, so that the scheduler finds them."""

    name = "tidegate"
    deadline_references = [PublishBy]  # noqa: RUF012  # as Airflow has it
    timetables = [DayBefore]  # noqa: RUF012


def dags_of(
    manifest: str | Path,
    *,
    pool: str = "spark",
    env: Mapping[str, str] | None = None,
    on_late: Any = None,
    **dag_arguments: Any,
) -> dict[str, DAG]:
    """Make a DAG for each enrichment of the manifest, by name.

    Args:
        manifest: The file that `tidegate manifest` wrote.
        pool: Pool of the tasks; its slots are the Sparks that may run at once. It must exist.
        env: Environment of the command, such as addresses of services. Airflow shows the code of
            a DAG file, so secrets belong in the worker's environment.
        on_late: A callback (airflow.sdk.AsyncCallback or SyncCallback) for days that are not
            published by publish_by.
        dag_arguments: Further arguments of every DAG, such as default_args or max_active_runs.

    Returns:
        The DAGs, as globals() of a DAG file takes them.

    Raises:
        ValueError: The manifest is of another format, or a schedule has no run, or several, for a
            day.
    """
    content = json.loads(Path(manifest).read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise ValueError(
            f"{manifest}: format is {content.get('format')!r}; this tidegate_airflow.py reads "
            f"{FORMAT}. Copy the file of the Tidegate that wrote the manifest."
        )
    dags = {}
    for entry in content["enrichments"]:
        with DAG(
            entry["name"],
            schedule=_timetable(entry),
            **{**_arguments(entry, on_late), **dag_arguments},
        ) as dag:
            owner = ", ".join(entry["owners"]) or "airflow"
            TidegateDay(
                task_id="day", enrichment=entry, manifest=content, env=env, pool=pool, owner=owner
            )
        dags[dag.dag_id] = dag
    return dags


def _arguments(entry: Mapping[str, Any], on_late: Any) -> dict[str, Any]:
    deadline = None
    if on_late is not None and entry["publish_by"] is not None:
        deadline = DeadlineAlert(
            PublishBy(entry["publish_by"], entry["zone"]), dt.timedelta(0), on_late
        )
    start, end = _first_and_last(entry)
    links = {"Report of all days": entry.get("report"), "Runbook": entry["runbook"]}
    linked = " &nbsp; ".join(f"[{name}]({url})" for name, url in links.items() if url)
    return {
        "start_date": start,
        "end_date": end,
        "catchup": False,
        "description": entry["description"],
        "doc_md": f"{entry['description']}\n\n{linked}\n\n{RED_DAY}",
        "tags": ["tidegate"],
        "params": _params(entry),
        "deadline": deadline,
    }


def _first_and_last(entry: Mapping[str, Any]) -> tuple[dt.datetime, dt.datetime | None]:
    """Return from when to when runs are made.

    A scheduled run is for the day or hour before it, so the first run comes a day or hour after
    `start` begins, and the last run a day or hour after the last partition before `end`, which is
    on `end`.
    """
    zone, first = entry["zone"], dt.date.fromisoformat(entry["start"])
    last = None if entry["end"] is None else dt.date.fromisoformat(entry["end"])
    if entry["schedule"] is not None and entry.get("every", "day") == "hour":
        end = None if last is None else _first_hour(last, zone) + dt.timedelta(minutes=59)
        return _first_hour(first, zone) + dt.timedelta(hours=1), end
    if entry["schedule"] is not None:
        first += DAY_LONG
    return at_time(first, "00:00", zone), None if last is None else at_time(last, "23:59", zone)


def _first_hour(day: dt.date, zone: str) -> dt.datetime:
    """Return when the first hour of UTC in a day begins: some zones begin days at half past."""
    begin = at_time(day, "00:00", zone)
    hour = begin.replace(minute=0)
    return hour if hour == begin else hour + dt.timedelta(hours=1)


def _timetable(entry: Mapping[str, Any]) -> CronPartitionTimetable | PartitionedAtRuntime:
    """Return the timetable: a run a day for the day before, or a run an hour; without a schedule,
    runs that are triggered with a partition key. Raises ValueError if the cron has another number
    of runs.
    """
    cron = entry["schedule"]
    if cron is None:
        return PartitionedAtRuntime()
    every = entry.get("every", "day")
    if not isinstance(every, str):
        raise ValueError(  # noqa: TRY004  # of the declaration, not of a type
            f"{entry['name']}: schedule is {cron!r}, and its partitions have names, which no "
            "timetable of Airflow asks for; leave the schedule out, and trigger runs with a "
            "partition key."
        )
    minute, hour, *days = cron.split()
    if not (
        minute.isdigit()
        and (hour == "*" if every == "hour" else hour.isdigit())
        and days == ["*", "*", "*"]
    ):
        once = "an hour, such as 5 * * * *" if every == "hour" else "a day, such as 15 2 * * *"
        raise ValueError(
            f"{entry['name']}: schedule is {cron!r}; each run is of the {every} before it, so it "
            f"must be one time {once}. A {every} that a service stopped is tried again without "
            "another time."
        )
    if every == "hour":
        return CronPartitionTimetable(
            cron, timezone="UTC", run_offset=-1, key_format="%Y-%m-%dT%HZ"
        )
    return DayBefore(cron, timezone=entry["zone"], key_format="%Y-%m-%d")


def _params(entry: Mapping[str, Any]) -> dict[str, Param]:
    text = ["null", "string"]
    modes = (
        "nightly: as every night. replay: calls again for the day's dead letters. remap: publishes "
        "stored responses again, without a call. refresh: calls again for stored answers."
    )
    return {
        "day": Param(None, "As 2013-01-10, where no partition key is given.", type=text),
        "mode": Param("nightly", modes, enum=entry["modes"]),
        "lookup": Param(None, "Of a refresh: whose answers.", enum=[None, *entry["lookups"]]),
        "where": Param(
            None, 'Of a refresh: which answers, such as "answer.temp_c = 0".', type=text
        ),
        "answered_from": Param(None, "Of a refresh: first day of the answers.", type=text),
        "answered_to": Param(None, "Of a refresh: last day of the answers.", type=text),
    }


def at_time(day: dt.date, time: str, zone: str) -> dt.datetime:
    """Return HH:MM of a day in the time zone, in UTC."""
    return dt.datetime.combine(day, dt.time.fromisoformat(time), ZoneInfo(zone)).astimezone(dt.UTC)


def _named_day(context: Any) -> str:
    """Return the day of a run. Raises AirflowFailException without a day, or for two."""
    days = {context["dag_run"].partition_key, context["params"].get("day")} - {None, ""}
    if len(days) != 1:
        which = f"Two days are named, {' and '.join(sorted(days))}" if days else "No day is named"
        raise AirflowFailException(
            f'{which}: give a partition key, or {{"day": "2013-01-10"}} as conf.'
        )
    (day,) = days
    return str(day)


def _worst(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the result that decides how the task ends; None if all days are published."""
    red = [result for result in results if result["state"] != "published"]
    ranks = {state: rank for rank, state in enumerate(MILD)}
    return max(red, key=lambda result: ranks.get(result["state"], len(MILD)), default=None)


def _tables(enrichment: Mapping[str, Any]) -> list[Asset]:
    """Return the assets of an entry of the manifest: its table, summaries and dead letters."""
    tables = {enrichment["name"]: enrichment["table"], **enrichment["summaries"]}
    if enrichment["dead_letters"]:
        tables[f"{enrichment['name']}__dead_letters"] = enrichment["dead_letters"]
    return [Asset(name=name, uri=uri) for name, uri in tables.items()]


def _extras(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by table the extra of a published day's event."""
    name, figures = result["enrichment"], result["figures"]
    return {
        **{table: {"rows": rows} for table, rows in result["summaries"].items()},
        name: {key: figures[key] for key in ("rows", "calls", "cost", "version")},
        f"{name}__dead_letters": {"rows": figures["dead_letters"]},
    }


def _silent_end(status: int) -> dict[str, str]:
    """Return the state and reason of a day whose command ended without a result."""
    if status >= 0:
        reason = f"the command ended with status {status}; the log above has all that it printed."
        return {"state": "failed", "reason": reason}
    by = f"signal {-status} ({signal.strsignal(-status)})"
    memory = ", perhaps because memory ran out" if -status == signal.SIGKILL else ""
    return {"state": "crashed", "reason": f"the command was ended by {by}{memory}."}


def _text(result: Mapping[str, Any]) -> str:
    return " ".join(_lines(result))


def _lines(result: Mapping[str, Any]) -> list[str]:
    """Return the end of a day in lines that the page shows whole: reason, next step, report."""
    figures, reason = result.get("figures"), result["reason"]
    if not reason and figures:
        asked = (
            f"{figures['jobs']:,} jobs" if figures.get("jobs") else f"{figures['calls']:,} calls"
        )
        reason = f"{figures['rows']:,} rows, {asked}; version {figures['version']}."
    name = result.get("enrichment") or ""
    of_day = f"{name} {result['day'] or ''}".strip() if ":" not in name else result["day"]
    parts = [f"{of_day}: {result['state']}: {reason}" if of_day else f"{result['state']}: {reason}"]
    parts += [
        f"{label}: {result[key]}"
        for label, key in (("Next", "next_step"), ("Report", "report"))
        if result.get(key)
    ]
    wrapped = (
        textwrap.wrap(part, WIDTH, break_long_words=False, break_on_hyphens=False) for part in parts
    )
    return [line for lines in wrapped for line in lines]


def _die_with_parent() -> None:
    """Have the kernel send the command SIGTERM when the task's process ends; only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
