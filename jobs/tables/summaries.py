"""Summaries: one SQL query over a published day, run in process and published by one Delta commit."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
from deltalake import write_deltalake

from jobs.declare.enrichment import Enrichment, Summary
from jobs.storage.urls import beside
from jobs.tables.by_run import NO_STATISTICS
from jobs.tables.delta_log import checkpoints_of, lasting, saying_format, table_at
from jobs.tables.publishers import again_if_taken, alone_with, storing
from jobs.tables.summary_sql import rows_of


def table_of(enrichment: Enrichment, summary: Summary) -> str:
    """The path of the summary, beside its source table."""
    return beside(enrichment.output.path, summary.name)


def summarize(enrichment: Enrichment, summary: Summary, day: str) -> int:
    """Make the summary of one published day in place of an earlier one. Returns its rows.

    Raises TidegateError for failed SQL or a disk error.
    """
    partition = enrichment.input.partition
    rows = rows_of(enrichment, summary, day)
    target = table_of(enrichment, summary)
    with storing(target), alone_with(target), lasting(target):
        if table_at(target) is not None:
            of_day = f"\"{partition}\" = '{day}'"
            again_if_taken(
                lambda: write_deltalake(target, rows, mode="overwrite", schema_mode="merge", predicate=of_day)
            )
        else:
            write_deltalake(
                target, rows, mode="append", partition_by=[partition],
                configuration=NO_STATISTICS | checkpoints_of(target), commit_properties=saying_format(),
            )  # fmt: skip
    return int(rows.num_rows)


def made_at(enrichment: Enrichment, summary: Summary, day: str) -> dt.datetime | None:
    """The time at which the published summary of the day was made; None if it has no row."""
    target = table_of(enrichment, summary)
    table = table_at(target)
    if table is None:
        return None
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    times = [file["modification_time"] for file in files if str(file[f"partition.{enrichment.input.partition}"]) == day]
    return dt.datetime.fromtimestamp(max(times) / 1e3, dt.UTC) if times else None
