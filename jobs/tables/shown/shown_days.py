"""Compares the published days by record with the days in the table."""

from collections.abc import Iterator
from pathlib import Path

from jobs.declare.enrichment import Enrichment
from jobs.schema.records import DayRecord
from jobs.storage.urls import is_url
from jobs.tables.delta.delta_log import LOG, table_at
from jobs.tables.delta.published_files import facts_by_day, publication_mark
from jobs.tables.records import run_records


def lost_days(enrichment: Enrichment) -> Iterator[str]:
    """Yields a sentence with the cure for each published day that readers of the table do not see.

    A day is not lost if a later publication emptied it, also one without a record: that is saved
    after the commit. Yields nothing for a table with other partitions than the input. Raises
    TidegateError if the table's log cannot be read.
    """
    published = sorted(_published(enrichment).items())  # first: the table read below is newer
    table, partition = table_at(enrichment.output.path), enrichment.input.partition
    if table is not None and table.metadata().partition_columns != [partition]:
        return
    shown = set() if table is None else {day for day, _ in facts_by_day(table, partition, "path")}
    empty = _empty_entries(enrichment.output.path)
    for day, record in published:
        last = 0 if table is None else publication_mark(table, record.facts)
        is_gone = day not in shown and last <= (record.published_version or 0) + 1
        if record.published_version in empty or (record.rows_published and is_gone):
            why = " (its entry in the log is empty)" if record.published_version in empty else ""
            yield (
                f"{day} was published as version {record.published_version} by run "
                f"{record.facts.run_id}, and readers of {enrichment.output.path} do not see "
                f"it{why}. Run the day again, with the ledger's answers."
            )


def _empty_entries(table: str) -> set[int]:
    """Returns versions whose log entry is empty, as after a power cut; a store writes whole
    objects.
    """
    if is_url(table):
        return set()
    return {
        int(entry.stem) for entry in Path(table, LOG).glob("*.json") if not entry.stat().st_size
    }


def _published(enrichment: Enrichment) -> dict[str, DayRecord]:
    last: dict[str, DayRecord] = {}
    found = [record for record in run_records.load(enrichment.name) if record.state == "published"]
    for record in sorted(
        found, key=lambda record: (record.published_at or "", record.published_version or 0)
    ):
        if record.facts.declared.table == enrichment.output.path:
            last[record.facts.day] = record
    return last
