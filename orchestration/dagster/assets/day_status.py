"""The status of a day: the last observation of it that a run reported to Dagster."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, EventLogRecord, RunsFilter
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
    RESUME_RETRY_TAG,
    RETRY_NUMBER_TAG,
)

from jobs.declare.values.calendar import day_begin
from jobs.tables.records import run_records
from jobs.tables.records.killed_runs import as_published
from orchestration.common.states import NOT_STARTED
from orchestration.dagster.declared import Declared

UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
PAGE = 100
ENRICHMENT = "tidegate/enrichment"  # tag of a run, by its job


@dataclass(frozen=True)
class StatusEvent:
    """A single observation of a day.

    Attributes:
        number: The place of the observation in Dagster's log.
        cause: A text that is equal for days that fail for the same reason.
    """

    number: int
    at: dt.datetime
    run_id: str
    enrichment: str
    day: str
    state: str
    reason: str
    cause: str
    next_step: str
    readers_see: str


def latest_status(instance: DagsterInstance, declared: Declared, day: str) -> StatusEvent | None:
    """Return the day's last observation with a state; None if no run reported any.

    A run that found the day taken by another run says nothing of how the day is.
    """
    of_day = dg.AssetRecordsFilter(declared.key, asset_partitions=[day])
    found = instance.fetch_observations(of_day, limit=PAGE).records
    events = (_status_event(record, declared) for record in found)
    # a run that reads the table observes the day too, and tells no state
    return next((event for event in events if event.state not in ("", NOT_STARTED)), None)


def status_events(
    instance: DagsterInstance, declared: Declared, number: int
) -> Iterator[StatusEvent]:
    """Yield all observations with a state of any day after `number`, oldest first."""
    more = True
    while more:
        after = dg.AssetRecordsFilter(declared.key, after_storage_id=number)
        found = instance.fetch_observations(after, limit=PAGE, ascending=True)
        for record in found.records:
            number = record.storage_id
            event = _status_event(record, declared)
            if event.state:
                yield event
        more = found.has_more


def last_number(instance: DagsterInstance, declared: Declared) -> int:
    """Return the number of the last observation of any day; 0 without any."""
    found = instance.fetch_observations(declared.key, limit=1).records
    return found[0].storage_id if found else 0


def published_times(declared: Declared, day: str) -> list[dt.datetime]:
    """Return the times at which runs of Dagster or of a command published the day; a kill after the
    commit leaves a record as written. Raises TidegateError.
    """
    name, table = declared.name, declared.enrichment.output.path
    records = [
        record
        for record in run_records.load(name, day)
        if not run_records.has_end(name, day, record.facts.run_id)  # which failed after its commit
    ]
    times = [
        time
        for record in as_published(records, table)
        for time in (record.first_published_at, record.published_at)
        if time
    ]
    return [dt.datetime.fromisoformat(time) for time in times]


def unfinished_runs(instance: DagsterInstance, declared: Declared, day: str) -> list[dg.DagsterRun]:
    """Return the runs that wait or are at work for this day, alone or with other days."""
    return _runs(instance, declared, day, RunsFilter(statuses=UNFINISHED))


def failed_runs(instance: DagsterInstance, declared: Declared, day: str) -> list[dg.DagsterRun]:
    """Return the runs of this day that failed since the day began, the last first."""
    since = day_begin(day, declared.enrichment.zone)
    return _runs(
        instance,
        declared,
        day,
        RunsFilter(statuses=[DagsterRunStatus.FAILURE], created_after=since),
    )


def is_left_over(
    instance: DagsterInstance, declared: Declared, day: str, since: dt.datetime
) -> bool:
    """Return whether a run of several days with this one ended without success since a moment:
    days that it did not begin are left to a person.
    """
    ended = [DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
    runs = _runs(instance, declared, day, RunsFilter(statuses=ended, created_after=since))
    return any(len(days_of_run(declared, run)) > 1 for run in runs)


def days_of_run(declared: Declared, run: dg.DagsterRun) -> list[str]:
    """Return the days of a run of this enrichment: a single day, a range, or none."""
    if run.tags.get(ENRICHMENT) != declared.name and declared.key not in (
        run.asset_selection or ()
    ):
        return []
    day = run.tags.get(PARTITION_NAME_TAG, "")
    first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG, day)
    last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG, day)
    if not all(map(declared.days.has_partition_key, (first, last))):
        return []
    # Dagster orders names as they are declared
    return [*declared.days.get_partition_keys_in_range(dg.PartitionKeyRange(first, last))]


def list_tries(instance: DagsterInstance, run: dg.DagsterRun) -> set[str]:
    """Return the run and the earlier runs that it continues.

    Dagster's own retry continues a run, and so does a person who repeats it "from failure". A run
    that a person repeats as a whole continues none: its days may have a new declaration or input.
    """
    continues = run.tags.keys() & {RETRY_NUMBER_TAG, RESUME_RETRY_TAG}
    before = instance.get_run_by_id(run.parent_run_id) if continues and run.parent_run_id else None
    return {run.run_id, *(() if before is None else list_tries(instance, before))}


def _runs(
    instance: DagsterInstance, declared: Declared, day: str, which: RunsFilter
) -> list[dg.DagsterRun]:
    return [run for run in instance.get_runs(which) if day in days_of_run(declared, run)]


def _status_event(record: EventLogRecord, declared: Declared) -> StatusEvent:
    observation = record.asset_observation
    assert observation is not None  # only observations were asked for
    reported = {key: str(value.value) for key, value in observation.metadata.items()}
    return StatusEvent(
        number=record.storage_id,
        at=dt.datetime.fromtimestamp(record.timestamp, dt.UTC),
        run_id=record.run_id,
        enrichment=declared.name,
        day=observation.partition or "",
        state=reported.get("state", ""),
        reason=reported.get("reason", ""),
        cause=reported.get("cause", ""),
        next_step=reported.get("next_step", ""),
        readers_see=reported.get("readers_see", ""),
    )
