"""Reports how a day ended for runs that ended without a report, such as killed runs."""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import suppress

import dagster as dg
from dagster import DagsterEvent, DagsterEventType, DagsterRunStatus, RunRecord, RunsFilter
from dagster._core.events import AssetObservationData
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES
from dagster._core.storage.tags import BACKFILL_ID_TAG, WILL_RETRY_TAG

from data_quality.day_quality import DayQuality
from jobs.errors import TidegateError
from jobs.process.publish_decision import or_warning, render_report
from jobs.schema.records import UnwrittenRun
from jobs.tables.records import run_records
from orchestration.common.states import CANCELLED, CRASHED, FAILED, PUBLISHED, RUNNING
from orchestration.dagster.assets.checks import withdraw_planned
from orchestration.dagster.assets.day_events import DayEvents
from orchestration.dagster.assets.day_status import (
    StatusEvent,
    days_of_run,
    latest_status,
    list_tries,
)
from orchestration.dagster.declared import Declared
from orchestration.dagster.errors import noting
from orchestration.dagster.next_steps import KILLED_RUN, run_again
from orchestration.dagster.sensors.external_publications import NOTHING_YET, publications_after

ENDED = [DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
NO_REPORT = "it ended without a report"
# Dagster's message if it knows no reason
SAYS_NOTHING = "This run has been marked as failed from outside"


def tell_silent_ends(
    instance: dg.DagsterInstance,
    all_declared: Sequence[Declared],
    since: dt.datetime,
    unread: list[str],
) -> list[str]:
    """Report each day that a run left as running or unreported, and that no later run reports.

    Returns the days, each with its enrichment. A day is reported once: afterwards it is no longer
    silent. Adds to `unread` what cannot be read.
    """
    ended = instance.get_run_records(RunsFilter(statuses=ENDED, updated_after=since))
    reported = []
    for declared in all_declared:
        with noting(unread, declared.name):
            reported += [
                f"{declared.name} {day}" for day in _report_ended(instance, declared, ended)
            ]
    return reported


def _report_ended(
    instance: dg.DagsterInstance, declared: Declared, ended: Sequence[RunRecord]
) -> list[str]:
    for run in ended:
        for day in days_of_run(declared, run.dagster_run):
            withdraw_planned(instance, declared, day, run.dagster_run.run_id)
    silent = [(run, day) for run in ended for day in _silent_days(instance, declared, run)]
    for run, day in silent:
        _tell(instance, declared, run, day)
    if silent:
        _render(declared)
    return [day for _, day in silent]


def _silent_days(
    instance: dg.DagsterInstance, declared: Declared, record: RunRecord
) -> Iterator[str]:
    run = record.dagster_run
    statuses = {day: latest_status(instance, declared, day) for day in days_of_run(declared, run)}
    days = {
        day: status
        for day, status in statuses.items()
        if status is not None and status.run_id == run.run_id
    }
    if days:
        silent = [day for day, status in days.items() if _is_unfinished(instance, run, status)]
    else:  # a run that reported nothing; of several days only the first that was left to it
        tries = list_tries(instance, run)
        left = [
            (day, status)
            for day, status in statuses.items()
            if status is None or status.state != PUBLISHED or status.run_id not in tries
        ]
        silent = [
            day
            for day, status in left[:1]
            if status is None or status.run_id in tries or _is_before(status, record)
            if not _has_given_reason(instance, run)
        ]
    yield from (day for day in silent if not _is_published_by(declared, day, run.run_id))


def _is_unfinished(instance: dg.DagsterInstance, run: dg.DagsterRun, status: StatusEvent) -> bool:
    return status.state == RUNNING or (
        status.state == CRASHED and not _is_started_again(instance, run)
    )


def _is_before(status: StatusEvent, record: RunRecord) -> bool:
    return status.at.timestamp() < record.create_timestamp.timestamp()


def _is_started_again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether Dagster retries the run. It retries no run of a backfill that has ended, as
    one of `dagster job backfill` has once its runs are queued.
    """
    if run.tags.get(WILL_RETRY_TAG) != "true":
        return False
    if (backfill_id := run.tags.get(BACKFILL_ID_TAG)) is None:
        return True
    backfill = instance.get_backfill(backfill_id)
    return backfill is not None and backfill.status not in BULK_ACTION_TERMINAL_STATUSES


def _has_given_reason(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether a step of ours gave a reason for the end, such as a refused replay."""
    failures = instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
    return any(
        failure.dagster_event and failure.dagster_event.step_failure_data.user_failure_data
        for failure in failures
    )


def _is_published_by(declared: Declared, day: str, run_id: str) -> bool:
    """Return whether this run published the day, which the sensor of publications reports."""
    try:
        found, _ = publications_after(declared.facts.table, NOTHING_YET)
    except TidegateError:  # a damaged table must not prevent the report
        return False
    return any(run.day == day and run.run_id.startswith(run_id) for run in found)


def _tell(instance: dg.DagsterInstance, declared: Declared, record: RunRecord, day: str) -> None:
    run = record.dagster_run
    again = f"To publish the day, {run_again(declared)}"
    if run.status == DagsterRunStatus.CANCELED:
        state, reason, next_step = CANCELLED, f"the run was cancelled; {NO_REPORT}.", again
    elif _is_started_again(instance, run):
        state, reason = CRASHED, _why(instance, run)
        next_step = KILLED_RUN
    else:
        state, reason, next_step = FAILED, _why(instance, run), again
    at = record.start_time or record.create_timestamp.timestamp()
    began = run_records.now(lambda: dt.datetime.fromtimestamp(at, dt.UTC))
    end = UnwrittenRun(
        declared.name, day, run.run_id, state, reason, next_step, began, run_records.now()
    )
    with suppress(OSError, TidegateError):  # a full disk must not prevent the report in Dagster
        run_records.save_unwritten(end, declared.facts.table)
    observation = AssetObservationData(
        DayEvents(declared, day, run.run_id).observation(state, reason, next_step)
    )
    event = DagsterEvent(
        DagsterEventType.ASSET_OBSERVATION.value,
        run.job_name,
        event_specific_data=observation,
        message=reason,
    )
    instance.report_dagster_event(event, run.run_id)


def _render(declared: Declared) -> None:
    warning = or_warning(
        lambda: render_report(DayQuality(), declared.name, declared.facts.table),
        "its report is not written",
    )
    if warning:
        dg.get_dagster_logger().warning(f"{declared.name}: {warning}")


def _why(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Return Dagster's reason for the run's end, as a single line."""
    failures = instance.all_logs(run.run_id, of_type=DagsterEventType.RUN_FAILURE)
    message = [
        failure.dagster_event.message
        for failure in failures
        if failure.dagster_event and failure.dagster_event.message
    ]
    lines = [
        line
        for line in "\n".join(message[-1:]).strip().splitlines()
        if line.strip() and not line.startswith(SAYS_NOTHING)
    ]
    return (
        "the run was killed, or broke off; "
        f"{NO_REPORT}{f' ({lines[0].rstrip(chr(46))})' if lines else ''}."
    )
