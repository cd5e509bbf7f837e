"""The nightly job of an enrichment, and the schedule that requests it."""

import datetime as dt

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from orchestration.common.deadlines import yesterday
from orchestration.common.modes import OTHERS, Mode
from orchestration.dagster.assets.day_status import ENRICHMENT
from orchestration.dagster.declared import Declared

Job = UnresolvedAssetJobDefinition
PUBLISHED_IN_TIME = "published_in_time"
NIGHT_FIRST = {"dagster/priority": "10"}  # before days of a backfill, which have priority 0


def day_job(declared: Declared) -> Job:
    enrichment = declared.enrichment
    beside = [
        *(window.name for window in enrichment.windows),
        *(summary.name for summary in enrichment.summaries),
    ]
    assets: dg.AssetSelection = dg.AssetSelection.assets(
        declared.key, *map(declared.beside, beside)
    )
    if declared.enrichment.publish_by is not None:
        # its sensor evaluates it
        assets -= dg.AssetSelection.checks(dg.AssetCheckKey(declared.key, PUBLISHED_IN_TIME))
    op = declared.key.to_python_identifier()
    modes = "".join(
        f"\n- `ops: {{{op}: {{config: {{mode: {mode.name}}}}}}}` {mode.value.description}"
        for mode in OTHERS
        if enrichment.ledger
    )
    return dg.define_asset_job(
        declared.job_name,
        selection=assets,
        description=(
            f"A run of {declared.name} {Mode.nightly.value.description}"
            + (f" Other modes, by Add config under Materialize:\n{modes}" if modes else "")
        ),
        tags={ENRICHMENT: declared.name},
    )


def nightly_schedule(declared: Declared, cron: str, job: Job) -> dg.ScheduleDefinition:
    """Return a schedule that requests yesterday, the hour before, or all named partitions at the
    times of `cron`, in the time zone.
    """
    every = declared.enrichment.input.every
    asked = {"day": "yesterday", "hour": "the hour before"}.get(str(every), "all its partitions")

    @dg.schedule(
        name=f"{declared.job_name}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone=declared.enrichment.zone,
        description=f"Asks for {declared.name} of {asked}.",
    )
    def schedule(
        context: dg.ScheduleEvaluationContext,
    ) -> dg.RunRequest | list[dg.RunRequest] | dg.SkipReason:
        if not isinstance(every, str):
            # each tick requests the same names again; with its offset, when clocks go back too
            tick = f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M%z}"
            return [
                dg.RunRequest(f"{name} {tick}", partition_key=name, tags=NIGHT_FIRST)
                for name in every
            ]
        return request_for_yesterday(declared, context.scheduled_execution_time)

    return schedule


def request_for_yesterday(declared: Declared, now: dt.datetime) -> dg.RunRequest | dg.SkipReason:
    """Request the run of the day before `now`, once per day; return a reason if there is no such
    day.
    """
    day = yesterday(declared.enrichment, now)
    if declared.days.has_partition_key(day):
        return dg.RunRequest(run_key=day, partition_key=day, tags=NIGHT_FIRST)
    until = f" until before {declared.enrichment.end}" if declared.enrichment.end else ""
    every = declared.enrichment.input.every
    return dg.SkipReason(
        f"{declared.name} has the {every}s from {declared.enrichment.start}{until}, and not {day}."
    )
