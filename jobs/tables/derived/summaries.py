"""Summaries: a SQL query over a published day, run in process, published by a Delta commit."""

import datetime as dt

from jobs.declare.enrichment import Enrichment, Summary
from jobs.schema.records import DayRecord
from jobs.storage.urls import beside
from jobs.tables.derived import derived_tables
from jobs.tables.derived.summary_sql import rows_of


def table_of(enrichment: Enrichment, summary: Summary) -> str:
    return beside(enrichment.output.path, summary.name)


def summarize(enrichment: Enrichment, summary: Summary, day: str) -> int:
    """Make the summary of a published day, replacing an earlier summary. Returns its row count.

    Raises TidegateError for failed SQL or a disk error.
    """
    rows = rows_of(enrichment, summary, day)
    derived_tables.replace_day(
        table_of(enrichment, summary), lambda: rows, day, by=[enrichment.input.partition]
    )
    return int(rows.num_rows)


def is_made(enrichment: Enrichment, summary: Summary, record: DayRecord) -> bool:
    """Return whether the summary has rows that were made since this run was published."""
    table, day = table_of(enrichment, summary), record.facts.day
    assert record.published_at is not None  # it is published
    at = derived_tables.made_at(table, enrichment.input.partition, day)
    return at is not None and at >= dt.datetime.fromisoformat(record.published_at)
