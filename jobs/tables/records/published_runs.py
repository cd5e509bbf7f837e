"""Finds the run that readers of a published day see, by run records and by the table."""

from collections.abc import Iterable

from jobs.schema.records import DayFacts, DayRecord
from jobs.storage.urls import plain
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import publication_mark, runs_by_day
from jobs.tables.records import run_records


def last_published(
    enrichment: str, day: str, *, table: str = "", before: str = ""
) -> DayRecord | None:
    """Return the record of the run that readers see; a kill after the commit leaves it as written.

    Args:
        enrichment: Name of the enrichment.
        day: The day.
        table: Considers only runs that were published to this table. Records outlive a table: a
            day that the present table has never had is not published.
        before: Ignores runs whose id begins with this text, so that the state before them is found.
    """
    records = [
        record
        for record in run_records.load(enrichment, day)
        if not table or plain(record.facts.declared.table) == plain(table)
        if not before or not record.facts.run_id.startswith(before)
    ]
    if table and records and not was_published(table, records[0].facts):
        return None
    seen = _runs_seen(records)
    published = [
        record for record in records if record.state == "published" or record.facts.run_id in seen
    ]

    def order(record: DayRecord) -> tuple[bool, str, int, str]:
        # times come after the files: clocks of hosts differ, and the versions of a table that was
        # deleted begin again
        at, version = record.published_at or "", record.published_version or 0
        return record.facts.run_id in seen, at, version, record.facts.started_at

    return max(published, key=order, default=None)


def was_published(table: str, facts: DayFacts, *, times: int = 1) -> bool:
    """Return whether the present table at this place had the day published so many times."""
    delta = table_at(table)
    return delta is not None and publication_mark(delta, facts) >= times


def _runs_seen(records: Iterable[DayRecord]) -> set[str]:
    """Return the runs of these records that readers see; the table may have moved."""
    places = {
        (record.facts.declared.table, record.facts.declared.partition, record.facts.day)
        for record in records
    }
    return {
        run
        for table, partition, day in places
        for run in runs_by_day(table_at(table), partition).get(day, ())
    }
