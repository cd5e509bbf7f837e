"""Days that were published without Dagster, as by `tidegate run`, are told to it: they count as materialized then.

What was published is read from the table's own history, by version; what is known of it, from the record of its run.
"""

import dataclasses
import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from jobs import records
from jobs.counted import counted
from jobs.schema import DayRecord
from jobs.tables.leases import at_work
from orchestration import metadata
from orchestration.day_events import DayEvents
from orchestration.declared import Declared

LOOK_EVERY = 60  # s
AT_ONCE = 50  # publications in one look: Dagster gives it a minute, and what is cut off would begin anew for ever
LENGTH_OF_RUN_ID = 36  # of Dagster's own; a run of ours adds to it
NOTHING_YET = -1
Event = dg.AssetMaterialization | dg.AssetObservation


@dataclass(frozen=True)
class Publication:
    """One commit that made a run's files the day that readers see."""

    version: int
    day: str
    run_id: str
    at: dt.datetime


def published_elsewhere(all_declared: Sequence[Declared]) -> dg.SensorDefinition:
    """One sensor for all enrichments. Each version is told once; what a run of Dagster has told itself is not."""

    @dg.sensor(
        name="tells_days_published_elsewhere",
        minimum_interval_seconds=LOOK_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Notices days that were published without Dagster, as by `tidegate run`, and days whose run was "
        "killed after it had published: materialized, with their figures, as the record of their run has them.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        seen: dict[str, int] = json.loads(context.cursor) if context.cursor else {}
        events: list[Event] = []
        for declared in all_declared:
            found, seen[declared.name] = news(context.instance, declared, seen.get(declared.name, NOTHING_YET))
            latest = records.latest(declared.name) if found else []
            for publication, record in found:
                events += told(declared, publication, record, latest)
        days = sum(isinstance(event, dg.AssetObservation) and "state" in event.metadata for event in events)
        return dg.SensorResult(
            asset_events=events,
            cursor=json.dumps(seen),
            skip_reason=f"{counted(days, 'day')} told." if days else "No day was published elsewhere.",
        )

    return sensor


def news(
    instance: dg.DagsterInstance, declared: Declared, after: int
) -> tuple[list[tuple[Publication, DayRecord]], int]:
    """What Dagster does not know of the versions after this one, each day's last only; up to which version it is told.

    A run at work tells its day itself, or makes its summaries still: it is waited for.
    """
    found, last = publications(declared.facts.table, after)
    if len(found) > AT_ONCE:
        found, last = found[:AT_ONCE], found[AT_ONCE - 1].version
    busy = set(at_work(declared.facts.table)) if found else set()
    wait = [one for one in found if one.run_id in busy or _own_is_unfinished(instance, one.run_id)]
    until = min((one.version for one in wait), default=last + 1) - 1
    days = {one.day: one for one in found if one not in wait}
    unknown = [one for one in days.values() if _told_version(instance, declared, one.day) < one.version]
    with_records = [(one, records.of_run(declared.name, one.day, one.run_id)) for one in unknown]
    return [(one, record) for one, record in with_records if record is not None], until


def publications(path: str, after: int) -> tuple[list[Publication], int]:
    """The days that were published after this version, oldest first, as far back as the table's history goes; and its
    last version.
    """
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        return [], NOTHING_YET
    table = DeltaTable(path)
    last = table.version()
    new = last - after if last >= after else last + 1  # it was made anew
    history = table.history(new) if new else []
    if DeltaTable(path).version() != last:  # delta-rs numbers a history that grows meanwhile wrongly: next time
        return [], after
    found = [
        Publication(
            version=commit["version"],
            day=commit["tidegate.day"],
            run_id=commit["tidegate.run_id"],
            at=dt.datetime.fromtimestamp(commit["timestamp"] / 1e3, dt.UTC),
        )
        for commit in reversed(history)
        if "tidegate.day" in commit
    ]
    return found, last


def told(
    declared: Declared, publication: Publication, record: DayRecord, latest: Sequence[DayRecord]
) -> Iterator[Event]:
    """What a run of Dagster would have told of the day, but for the results of its checks, which stand in one word: of
    a check and a day Dagster keeps one result without a run, and refuses the next. latest: the last record of each day.
    """
    record = dataclasses.replace(  # a run that was killed after its commit had no time to note it
        record,
        state="published",
        published_version=publication.version,
        published_at=record.published_at or publication.at.isoformat(timespec="seconds"),
    )
    events = DayEvents(declared, publication.day, publication.run_id)
    figures = metadata.figures_metadata(record, latest)
    yield from events.of_record(record, figures)
    yield dg.AssetMaterialization(
        declared.key,
        description=f"Published outside a run of Dagster, by run {publication.run_id}.",
        partition=publication.day,
        metadata={**events.published(record, figures), "checks": _checks(record)},
    )
    yield from _summaries(declared, publication)


def _checks(record: DayRecord) -> str:
    """As `14 passed, not run: input_day_complete`."""
    passed = sum(verdict.status == "passed" for verdict in record.verdicts)
    others = {"failed": "red", "not_run": "not run"}
    named = [
        f"{word}: {', '.join(names)}"
        for status, word in others.items()
        if (names := [verdict.check for verdict in record.verdicts if verdict.status == status])
    ]
    return ", ".join([f"{passed} passed", *named])


def _summaries(declared: Declared, publication: Publication) -> Iterator[dg.AssetMaterialization]:
    """Those that were made of the day since it was published."""
    from jobs.tables.summaries import made_at

    for summary in declared.enrichment.summaries:
        made = made_at(declared.enrichment, summary, publication.day)
        if made is not None and made >= publication.at:
            yield dg.AssetMaterialization(dg.AssetKey(summary.name), partition=publication.day)


def _own_is_unfinished(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id[:LENGTH_OF_RUN_ID])
    return run is not None and not run.is_finished


def _told_version(instance: dg.DagsterInstance, declared: Declared, day: str) -> int:
    """The version of the table that the day's last materialization speaks of; NOTHING_YET when there is none."""
    of_day = dg.AssetRecordsFilter(declared.key, asset_partitions=[day])
    found = instance.fetch_materializations(of_day, limit=1).records
    materialization = found[0].asset_materialization if found else None
    version = materialization.metadata.get("published_version") if materialization else None
    return version.value if version is not None and isinstance(version.value, int) else NOTHING_YET
