"""The run that readers of a published day see, by the records of runs and by the table itself."""

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable

from jobs.schema import DayRecord
from jobs.storage.urls import plain
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import facts_by_day
from jobs.tables.records import run_records


def last_published(enrichment: str, day: str, *, table: str = "", before: str = "") -> DayRecord | None:
    """The record of the run whose files readers see; a kill after the commit leaves it as written.

    table: Only of runs that were published to it. before: Of no run whose id begins so, as it was before those.
    """
    records = [
        record
        for record in run_records.load(enrichment, day)
        if not table or plain(record.facts.declared.table) == plain(table)
        if not before or not record.facts.run_id.startswith(before)
    ]
    seen = _runs_seen(records)
    published = [one for one in records if one.state == "published" or one.facts.run_id in seen]

    def order(record: DayRecord) -> tuple[bool, str, int, str]:
        # by time only where files do not tell: clocks of hosts differ, versions of a table that was deleted begin again
        at, version = record.published_at or "", record.published_version or 0
        return record.facts.run_id in seen, at, version, record.facts.started_at

    return max(published, key=order, default=None)


@dataclass(frozen=True)
class Publication:
    """The commit that published a run. at: ISO 8601, UTC."""

    version: int
    at: str


def publications(table: DeltaTable, *, of_batches: bool = False) -> dict[str, Publication]:
    """The commit of each run of a day, or of a stream's batch, as far back as the table's log goes."""
    found: dict[str, Publication] = {}
    for entry in table.history():
        runs = json.loads(entry.get("tidegate.runs", "{}")).values() if of_batches else [entry.get("tidegate.run_id")]
        at = dt.datetime.fromtimestamp(entry.get("timestamp", 0) // 1000, dt.UTC)
        found |= {run: Publication(int(entry["version"]), at.isoformat()) for run in runs if run}
    return found


def _runs_seen(records: Iterable[DayRecord]) -> set[str]:
    """The runs of these records whose rows readers see; the table may have had another place before."""
    places = {(record.facts.declared.table, record.facts.declared.partition, record.facts.day) for record in records}
    return {run for place in places for run in _runs_in(*place)}


def _runs_in(place: str, partition: str, day: str) -> set[str]:
    table = table_at(place)
    files = [] if table is None else facts_by_day(table, partition, "path")
    return {Path(unquote(path)).parent.name for of, path in files if of == day}
