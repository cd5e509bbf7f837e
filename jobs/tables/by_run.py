"""Tables beside the published one whose rows belong to a run: partitioned by day and run.

Taking a run out touches no file of another one. Rows of a run are written before its day is published, and are those
of the published day once no other run's rows stay.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from deltalake import write_deltalake

from jobs.schema import RUN_ID, DayFacts
from jobs.tables.delta_log import saying_format, table_at

RUN = RUN_ID
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # the table's log would keep values of rows for ever


def write(table: str, facts: DayFacts, rows: pa.RecordBatchReader) -> None:
    """The rows of this run, beside those of the run that is published now. A second time changes nothing."""
    remove(table, facts)
    days_and_runs = [facts.declared.partition, RUN]
    write_deltalake(
        table, rows, mode="append", partition_by=days_and_runs, schema_mode="merge", configuration=NO_STATISTICS,
        commit_properties=saying_format() if table_at(table) is None else None,
    )  # fmt: skip


def remove(table: str, facts: DayFacts) -> None:
    """Take the rows of this run out again."""
    _delete(table, facts.declared.partition, facts.day, "=", facts.run_id)


def keep_only(table: str, facts: DayFacts) -> None:
    """This run is the published one now: of its day, no other run's rows stay."""
    _delete(table, facts.declared.partition, facts.day, "<>", facts.run_id)


def keep_published(table: str, partition: str, published: Collection[tuple[str, str]]) -> None:
    """No rows stay but those of these days and runs: a publication that crashed leaves others, until its day is
    published. Not to be called while somebody publishes.
    """
    opened = table_at(table)
    if opened is not None:
        for found in opened.partitions():
            day, run = str(found[partition]), str(found[RUN])
            if (day, run) not in published:
                _delete(table, partition, day, "=", run)


def _delete(table: str, partition: str, day: str, comparison: str, run_id: str) -> None:
    opened = table_at(table)
    if opened is not None:
        run = run_id.replace("'", "''")
        opened.delete(f"{partition} = '{day}' AND {RUN} {comparison} '{run}'")
