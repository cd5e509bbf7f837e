"""The run that readers of a published day see, by the records of runs and by the table itself."""

from pathlib import Path
from urllib.parse import unquote

from jobs.schema import DayRecord
from jobs.storage.urls import plain
from jobs.tables import run_records
from jobs.tables.delta_log import table_at
from jobs.tables.published_files import facts_by_day


def last_published(enrichment: str, day: str, *, table: str = "") -> DayRecord | None:
    """The record of the run whose files readers see. table: only of runs that were published to it."""
    published = [
        record
        for record in run_records.load(enrichment, day)
        if record.state == "published" and (not table or plain(record.facts.declared.table) == plain(table))
    ]
    seen = _runs_seen(published[-1]) if published else set()  # the table may have had another place before

    def order(record: DayRecord) -> tuple[bool, str, int]:
        # by time only where files do not tell: clocks of hosts differ, versions of a table that was deleted begin again
        return record.facts.run_id in seen, record.published_at or "", record.published_version or 0

    return max(published, key=order, default=None)


def _runs_seen(record: DayRecord) -> set[str]:
    declared = record.facts.declared
    table = table_at(declared.table)
    files = [] if table is None else facts_by_day(table, declared.partition, "path")
    return {Path(unquote(path)).parent.name for day, path in files if day == record.facts.day}
