"""A day that a service stopped is started again by itself, until its deadline."""

import datetime as dt
from collections.abc import Callable, Sequence

import dagster as dg

from jobs.errors import RunStopped
from orchestration.common.deadlines import day_awaited, next_start
from orchestration.dagster.assets.day_status import latest_status, unfinished_runs
from orchestration.dagster.declared import Declared, shared_name
from orchestration.dagster.schedules import Job

LOOK_EVERY = 60  # s
Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def restart_sensor(all_declared: Sequence[Declared], jobs: Sequence[Job], now: Clock = utc_now) -> dg.SensorDefinition:
    """One sensor for all enrichments. A day stopped by credentials or budget, cancelled or held back, waits for
    somebody.
    """

    @dg.sensor(
        name=shared_name(all_declared, "starts_stopped_days_again"),
        jobs=jobs,
        minimum_interval_seconds=LOOK_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Starts yesterday again when a service that was down had stopped it, every quarter of an hour until the "
            "day's publish_by. Days stopped by credentials or budget, cancelled or held back are left to a person."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        requests = [again for declared in all_declared if (again := _again(context.instance, declared, now()))]
        return dg.SensorResult(requests, skip_reason=None if requests else "No day waits for a service.")

    return sensor


def _again(instance: dg.DagsterInstance, declared: Declared, now: dt.datetime) -> dg.RunRequest | None:
    day = day_awaited(declared.enrichment, now)
    word = latest_status(instance, declared, day) if day else None
    if day is None or word is None or word.state != RunStopped.state:
        return None
    start = next_start(declared.enrichment, day, word.at)
    if start is None or now < start or unfinished_runs(instance, declared, day):
        return None
    return dg.RunRequest(
        run_key=f"{declared.name} {day} after {word.run_id}",  # a run that was stopped is followed by one run
        job_name=declared.job_name,
        partition_key=day,
        tags={"tidegate/again_after": word.run_id},
    )
