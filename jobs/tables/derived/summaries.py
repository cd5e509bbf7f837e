"""Summaries: a SQL query over a published day, run in process, published by a Delta commit."""

from jobs.declare.enrichment import Enrichment, Summary
from jobs.storage.urls import beside
from jobs.tables.derived import derived_tables
from jobs.tables.derived.summary_sql import rows_of


def table_of(enrichment: Enrichment, summary: Summary) -> str:
    return beside(enrichment.output.path, summary.name)


def summarize(enrichment: Enrichment, summary: Summary, day: str) -> int:
    """Makes the summary of a published day, replacing an earlier summary. Returns its row count.

    Raises TidegateError for failed SQL or a disk error.
    """
    rows = rows_of(enrichment, summary, day)
    derived_tables.replace_day(
        table_of(enrichment, summary), lambda: rows, day, by=[enrichment.input.partition]
    )
    return int(rows.num_rows)
