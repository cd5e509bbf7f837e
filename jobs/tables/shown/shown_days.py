"""Compares the published days by record with the days in the table."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from jobs.declare.enrichment import Enrichment
from jobs.schema.records import DayRecord
from jobs.storage.urls import is_url
from jobs.tables.delta.delta_log import LOG, table_at
from jobs.tables.delta.published_files import publication_mark, runs_by_day


def lost_days(enrichment: Enrichment, records: Iterable[DayRecord]) -> Iterator[tuple[str, str]]:
    """Yield each day of which readers of the table do not see the last published run, and why.

    A day is not lost if a later publication emptied it, also one without a record: that is saved
    after the commit. Yields nothing for a table with other partitions than the input. Raises
    TidegateError if the table's log cannot be read.

    Args:
        enrichment: The enrichment.
        records: Of its runs, read before the call: the table is read now.
    """
    published = sorted(_published(enrichment, records).items())
    table, partition = table_at(enrichment.output.path), enrichment.input.partition
    if table is not None and table.metadata().partition_columns != [partition]:
        return
    shown = runs_by_day(table, partition)
    empty = _empty_entries(enrichment.output.path)
    for day, (*before, record) in published:
        last = 0 if table is None else publication_mark(table, record.facts)
        version = record.published_version or 0
        is_gone = record.rows_published and day not in shown and last <= version + 1
        is_older = (
            table is not None
            and day in shown
            and (table.version() < version or _are_before(record, shown[day], before))
        )
        if record.published_version in empty or is_gone or is_older:
            why = " (its entry in the log is empty)" if record.published_version in empty else ""
            lost = f"was published as version {version} by run {record.facts.run_id}"
            yield day, f"{lost}, and readers of {enrichment.output.path} do not see it{why}"


def _are_before(last: DayRecord, seen: set[str], before: Iterable[DayRecord]) -> bool:
    """Return whether all runs of which readers see files were published before the last one, as in
    a backup to which other days were published since.
    """
    if last.adds_to or last.counts_too:  # a batch of a stream may have no rows
        return False
    version = last.published_version or 0
    return seen <= {run.facts.run_id for run in before if (run.published_version or 0) < version}


def _empty_entries(table: str) -> set[int]:
    """Return versions whose log entry is empty, as after a power cut; a store writes whole
    objects.
    """
    if is_url(table):
        return set()
    return {
        int(entry.stem) for entry in Path(table, LOG).glob("*.json") if not entry.stat().st_size
    }


def _published(enrichment: Enrichment, records: Iterable[DayRecord]) -> dict[str, list[DayRecord]]:
    """Return the published runs of each day, the last one last."""
    days: dict[str, list[DayRecord]] = {}
    found = [record for record in records if record.state == "published"]
    for record in sorted(
        found, key=lambda record: (record.published_at or "", record.published_version or 0)
    ):
        if record.facts.declared.table == enrichment.output.path:
            days.setdefault(record.facts.day, []).append(record)
    return days
