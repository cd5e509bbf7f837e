"""The nightly job of an enrichment and when it runs."""

import datetime as dt

import dagster as dg

from orchestration.declared import Declared


def nightly(declared: Declared) -> dg.Definitions:
    """A job that takes one day through everything, and, when times are declared, a schedule that asks for yesterday."""
    job = dg.define_asset_job(
        declared.job_name,
        selection=[declared.key, *(dg.AssetKey(summary.name) for summary in declared.enrichment.summaries)],
        description=f"Enriches one day of {declared.name}, checks it, publishes it and makes its summaries.",
        tags={"tidegate/enrichment": declared.name},
    )
    if declared.enrichment.schedule is None:
        return dg.Definitions(jobs=[job])

    @dg.schedule(
        name=f"{declared.job_name}_schedule",
        job=job,
        cron_schedule=declared.enrichment.schedule,
        execution_timezone="UTC",
        description=f"Asks for yesterday's {declared.name}.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return request_for_yesterday(declared, context.scheduled_execution_time)

    return dg.Definitions(jobs=[job], schedules=[schedule])


def request_for_yesterday(declared: Declared, now: dt.datetime) -> dg.RunRequest | dg.SkipReason:
    """The run of the day before `now` (UTC), once however often it is asked for; a reason when there is no such day."""
    yesterday = (now.astimezone(dt.UTC) - dt.timedelta(days=1)).date().isoformat()
    if declared.days.has_partition_key(yesterday):
        return dg.RunRequest(run_key=yesterday, partition_key=yesterday)
    until = f" until before {declared.enrichment.end}" if declared.enrichment.end else ""
    return dg.SkipReason(f"{declared.name} has the days from {declared.enrichment.start}{until}: {yesterday} is none.")
