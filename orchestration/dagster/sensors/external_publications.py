"""Materializes days that were published without Dagster, for example by `tidegate run`.

The publications come from the table's history, by version; their figures from the record of each
run.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import dagster as dg

from jobs.schema.columns import INPUT_DAY
from jobs.schema.records import DayRecord
from jobs.tables.leases.day_leases import at_work
from jobs.tables.records import run_records
from jobs.tables.records.publications import Publication, publications
from orchestration.common.report_server import report_url
from orchestration.common.states import FAILED, PUBLISHED
from orchestration.dagster.assets import metadata
from orchestration.dagster.assets.checks import (
    check_evaluations,
    judged,
    last_materialization,
    withdraw_results_without_run,
)
from orchestration.dagster.assets.day_events import DATA_VERSION_TAG, DayEvents, data_version
from orchestration.dagster.assets.day_status import unfinished_runs
from orchestration.dagster.declared import Declared

# publications per look: Dagster allows it a minute, and a look that is cut off would restart for
# ever
AT_ONCE = 10
LENGTH_OF_RUN_ID = 36  # of a Dagster run; Tidegate appends to it for a day
NOTHING_YET = -1
Event = dg.AssetMaterialization | dg.AssetObservation


def tell_publications(
    instance: dg.DagsterInstance, declared: Declared, after: int
) -> tuple[list[str], int]:
    """Report the table's later versions to Dagster. Returns their days, and the last version.

    Each version is reported once. A version that a run of Dagster published is skipped: that run
    reports it.
    """
    found, last = news(instance, declared, after)
    latest = run_records.latest(declared.name) if found else []
    for publication, record in found:
        report(instance, declared, publication, record, latest)
    return [publication.day for publication, _ in found], last


def news(
    instance: dg.DagsterInstance, declared: Declared, after: int
) -> tuple[list[tuple[Publication, DayRecord]], int]:
    """Return the publications after this version that Dagster does not know, each day's last only;
    and the last version covered.

    A running run reports its day itself, or still makes its summaries, so its publication waits. So
    does a publication of a day with any unfinished run: results reported while it runs would hide
    that run's results.
    """
    history, last = publications_after(declared.facts.table, after)
    found = sorted(
        {publication.day: publication for publication in history}.values(),
        key=lambda publication: publication.version,
    )
    if len(found) > AT_ONCE:
        # all days of this version are reported: a commit of a stream may publish several
        last = found[AT_ONCE - 1].version
        found = [publication for publication in found if publication.version <= last]
    busy = set(at_work(declared.facts.table)) if found else set()
    wait = [
        publication
        for publication in found
        if publication.run_id in busy
        or _is_run_unfinished(instance, publication.run_id)
        or unfinished_runs(instance, declared, publication.day)
    ]
    until = min((publication.version for publication in wait), default=last + 1) - 1
    with_records = [
        (publication, run_records.of_run(declared.name, publication.day, publication.run_id))
        for publication in found
        if publication not in wait
    ]
    return [
        (publication, record)
        for publication, record in with_records
        if record is not None
        and not _failed_later(record)
        and not _is_reported(instance, declared, publication, record)
    ], until


def publications_after(path: str, after: int) -> tuple[list[Publication], int]:
    """Return the days published after this version, oldest first; and the last version."""
    from deltalake import DeltaTable

    from jobs.tables.delta.delta_log import table_at

    table = table_at(path)
    if table is None:
        return [], NOTHING_YET
    last = table.version()
    new = last - after if last >= after else last + 1  # the table was created again
    found = publications(table, new) if new else []
    # delta-rs numbers a history wrongly if it grows meanwhile: wait for the next look
    return (found, last) if DeltaTable(path).version() == last else ([], after)


def report(
    instance: dg.DagsterInstance,
    declared: Declared,
    publication: Publication,
    record: DayRecord,
    latest: Sequence[DayRecord],
) -> None:
    """Report what a run of Dagster would have reported; `latest` has the last record of each day.

    The check results come last, because they name the materialization; if a look is killed before
    them, the next look reports them.
    """
    if _reported_version(instance, declared, publication.day) != publication.version:
        for event in reported(declared, publication, record, latest):
            instance.report_runless_asset_event(event)
    withdraw_results_without_run(instance, declared, publication.day)
    link = report_url(declared.name, publication.day)
    for evaluation in check_evaluations(instance, declared, record, link):
        instance.report_runless_asset_event(evaluation)


def reported(
    declared: Declared, publication: Publication, record: DayRecord, latest: Sequence[DayRecord]
) -> Iterator[Event]:
    """Yield the day's events except check results; `latest` has the last record of each day."""
    record = dataclasses.replace(  # a run that was killed after its commit did not save it
        record,
        state="published",
        published_version=publication.version,
        published_at=record.published_at or publication.at.isoformat(timespec="seconds"),
    )
    events = DayEvents(declared, publication.day, publication.run_id)
    figures = metadata.figures_metadata(record, latest)
    yield from events.report_record(record, figures)
    yield dg.AssetMaterialization(
        declared.key,
        description=f"Published outside a run of Dagster, by run {publication.run_id}.",
        partition=publication.day,
        metadata=events.published(record, figures),
        tags={DATA_VERSION_TAG: data_version(record).value},
    )
    yield from _made_of_day(declared, publication, record)


def _made_of_day(
    declared: Declared, publication: Publication, record: DayRecord
) -> Iterator[dg.AssetMaterialization]:
    from jobs.tables.derived import derived_tables, summaries, window_tables

    enrichment, day = declared.enrichment, publication.day
    tables = {
        window.name: (window_tables.table_of(enrichment, window), INPUT_DAY)
        for window in enrichment.windows
    }
    tables |= {
        summary.name: (summaries.table_of(enrichment, summary), enrichment.input.partition)
        for summary in enrichment.summaries
    }
    made_windows = {window.name: window.windows for window in record.facts.windows}
    empty = [
        window.name
        for window in enrichment.windows
        if not made_windows.get(window.name, record.facts.files)
    ]
    for name, (table, column) in tables.items():
        made = derived_tables.made_at(table, column, day)
        # a day without windows leaves no trace in their table
        if (made is None and name in empty) or (made is not None and made >= publication.at):
            yield dg.AssetMaterialization(declared.beside(name), partition=day)


def _failed_later(record: DayRecord) -> bool:
    """Return whether the run failed after its commit; its report says what to do.

    An Iceberg table that cannot be written is an example.
    """
    if record.state == PUBLISHED:
        return False
    facts = record.facts
    ends = run_records.unwritten(facts.declared.enrichment, facts.day)
    return any(end.run_id == facts.run_id and end.state == FAILED for end in ends)


def _is_run_unfinished(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id[:LENGTH_OF_RUN_ID])
    return run is not None and not run.is_finished


def _is_reported(
    instance: dg.DagsterInstance, declared: Declared, publication: Publication, record: DayRecord
) -> bool:
    if _reported_version(instance, declared, publication.day) != publication.version:
        return False  # a table that was made anew, or restored, has lower versions
    names = {verdict.check for verdict in judged(declared, record)}
    keys = [dg.AssetCheckKey(declared.key, name) for name in names]
    known = instance.event_log_storage.get_asset_check_partition_info(
        keys, partition_keys=[publication.day]
    )
    return names == {check.check_key.name for check in known if check.is_current}


def _reported_version(instance: dg.DagsterInstance, declared: Declared, day: str) -> int:
    last = last_materialization(instance, declared, day)
    materialization = last.asset_materialization if last else None
    version = materialization.metadata.get("published_version") if materialization else None
    return version.value if version is not None and isinstance(version.value, int) else NOTHING_YET
