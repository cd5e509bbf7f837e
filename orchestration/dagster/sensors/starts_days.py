"""Starts days automatically, after a service's outage, refreshed answers, or changed files."""

import datetime as dt
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter

from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import RunStopped, RunWaits, TidegateError
from jobs.tables.records import run_records
from orchestration.common.deadlines import AGAIN_AFTER, day_awaited, next_start
from orchestration.common.modes import Mode
from orchestration.dagster.assets.day_config import MODE, config_of_mode
from orchestration.dagster.assets.day_status import StatusEvent, latest_status, unfinished_runs
from orchestration.dagster.declared import Declared, shared_name
from orchestration.dagster.errors import noting
from orchestration.dagster.maintenance import DAYS_TO_RUN, REFRESH
from orchestration.dagster.schedules import Job
from orchestration.dagster.sensors.input_files import DAYS, QUIET, InputScan

LOOK_EVERY = 60  # s
LOOK_BACK = dt.timedelta(days=1)  # for runs of the refresh job
# in the cursor: the runs of the refresh job whose days were requested, and the days that waited
ASKED, WAITED = "refreshed", "waited"
Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def starts_days(
    all_declared: Sequence[Declared], jobs: Sequence[Job], now: Clock = utc_now
) -> dg.SensorDefinition:
    """Return the sensor for all enrichments. A day stopped by credentials or budget, cancelled or
    held back, waits for a person. An input that an asset of the project writes is not scanned for
    files: Dagster tracks it.
    """
    readers: defaultdict[dg.AssetKey, list[Declared]] = defaultdict(list)
    for declared in all_declared:
        if not declared.input_is_foreign:
            readers[declared.raw_key].append(declared)

    @dg.sensor(
        name=shared_name(all_declared, "starts_days"),
        jobs=jobs,
        minimum_interval_seconds=LOOK_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Starts yesterday again when a service that was down had stopped it, every quarter of "
            "an hour until the day's publish_by; days that wait for jobs of a vendor, once the "
            "vendor says that all are over; days whose answers were refreshed; days whose input "
            f"files are new or changed, if among the last {DAYS} (files count once they are "
            f"{QUIET:.0f} s old; a new enrichment is left alone until somebody, or its schedule, "
            "has run a day of it). Days stopped by credentials or budget, cancelled or held back "
            "are left to a person."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _look(context, all_declared, readers, now())

    return sensor


def _look(
    context: dg.SensorEvaluationContext,
    all_declared: Sequence[Declared],
    readers: Mapping[dg.AssetKey, Sequence[Declared]],
    at: dt.datetime,
) -> dg.SensorResult:
    cursor, unread = json.loads(context.cursor or "{}"), list[str]()
    requests = [
        again for declared in all_declared if (again := _again(context.instance, declared, at))
    ]
    slow, waited = set[str](), cursor.get(WAITED, {})
    for declared in all_declared:
        with noting(unread, declared.name):
            days = _waiting(declared, waited.get(declared.name, ()))
            waited[declared.name] = [*days]
            requests += _waited(context.instance, declared, days, at, slow)
    refreshes = _refreshes(context.instance, all_declared, at)
    for run in refreshes:
        if run.run_id not in cursor.get(ASKED, ()):
            requests += _refreshed(all_declared, run)
    seen, events = {}, []
    for key, of_it in readers.items():
        name = key.to_user_string()
        seen[name] = cursor.get(name, {})
        look = InputScan(context.instance, of_it, seen[name], at)
        with noting(unread, name):
            look.at_days()
            requests += look.requests
            events += look.events
            seen[name] = look.seen
    for message in unread:
        context.log.warning(message)
    reason = (
        None if requests else "No day waits for a service, has refreshed answers, or new files."
    )
    after = json.dumps({ASKED: [run.run_id for run in refreshes], WAITED: waited, **seen})
    return dg.SensorResult(requests, reason, after, asset_events=events)


def _again(
    instance: dg.DagsterInstance, declared: Declared, now: dt.datetime
) -> dg.RunRequest | None:
    day = day_awaited(declared.enrichment, now)
    status = latest_status(instance, declared, day) if day else None
    if day is None or status is None or status.state != RunStopped.state:
        return None
    start = next_start(declared.enrichment, day, status.at)
    if start is None or now < start or unfinished_runs(instance, declared, day):
        return None
    return _after(instance, declared, status)


def _after(instance: dg.DagsterInstance, declared: Declared, status: StatusEvent) -> dg.RunRequest:
    """Request a run that goes on in the same mode: another may call for expired answers, too."""
    run = instance.get_run_by_id(status.run_id)
    mode = run.tags.get(MODE) if run else None
    return dg.RunRequest(
        # a single run follows a stopped run
        run_key=f"{declared.name} {status.day} after {status.run_id}",
        job_name=declared.job_name,
        partition_key=status.day,
        run_config=config_of_mode(declared, Mode[mode]) if mode else None,
        tags={"tidegate/again_after": status.run_id},
    )


def _waiting(declared: Declared, before: Sequence[str]) -> dict[str, bool]:
    """Return the days that wait, with whether all their keys are submitted.

    Args:
        declared: Their enrichment.
        before: Days that waited at the last look. If their lookup has another request since then,
            the ledger does not name them any more.
    """
    from jobs.run.keys.vendor_jobs.waiting_days import days_waiting  # imports aiohttp

    named = days_waiting(declared.enrichment)
    still = (day for day in before if day not in named and run_records.waiting(declared.name, day))
    return named | dict.fromkeys(still, True)


def _waited(
    instance: dg.DagsterInstance,
    declared: Declared,
    days: Mapping[str, bool],
    now: dt.datetime,
    slow: set[str],
) -> Iterator[dg.RunRequest]:
    """Yield the days whose jobs of vendors are over. Asks the vendors; the run reads the results.

    A vendor that takes no more jobs is left alone for a while, as a service that is down. Adds
    vendors that do not answer to `slow`, and asks those no more: Dagster ends a look after a
    minute.
    """
    from jobs.run.keys.vendor_jobs.waiting_days import QUICK, look_again  # imports aiohttp

    lookups = declared.enrichment.lookups
    vendors = {lookup.service_name for lookup in lookups if isinstance(lookup, JobLookup)}
    for day, are_submitted in days.items():
        if vendors & slow:
            return
        status = latest_status(instance, declared, day)
        has_partition = declared.days.has_partition_key(day)  # `start` or `end` may have changed
        if status is None or status.state != RunWaits.state or not has_partition:
            continue
        is_early = not are_submitted and now < status.at + AGAIN_AFTER
        if is_early or unfinished_runs(instance, declared, day):
            continue
        began = time.monotonic()
        try:
            waits = look_again(declared.enrichment, day, stores=False)
        except TidegateError:  # the run says so
            waits = ""
        if time.monotonic() - began >= QUICK:
            slow |= vendors
        if not waits:
            yield _after(instance, declared, status)


def _refreshes(
    instance: dg.DagsterInstance, all_declared: Sequence[Declared], now: dt.datetime
) -> Sequence[dg.DagsterRun]:
    of_job = RunsFilter(
        job_name=shared_name(all_declared, REFRESH),
        statuses=[DagsterRunStatus.SUCCESS],
        updated_after=now - LOOK_BACK,
    )
    return instance.get_runs(of_job)


def _refreshed(all_declared: Sequence[Declared], run: dg.DagsterRun) -> Iterator[dg.RunRequest]:
    """Yield the days that use the answers it has marked, each once."""
    by_name = {declared.name: declared for declared in all_declared}
    for enrichment, days in json.loads(run.tags.get(DAYS_TO_RUN, "{}")).items():
        declared = by_name.get(enrichment)
        for day in days:
            # Dagster refuses all requests of a look if any has an unknown partition
            if declared is None or not declared.days.has_partition_key(day):
                continue
            yield dg.RunRequest(
                f"{run.run_id} {enrichment} {day}",
                job_name=declared.job_name,
                partition_key=day,
                run_config=config_of_mode(declared, Mode.refreshed),
            )
