"""Tables beside the published one whose rows belong to a run: partitioned by day and run.

Taking a run out touches no file of another one. Rows of a run are written before its day is published, and are those
of the published day once no other run's rows stay.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.schema import DayFacts

RUN = "run_id"
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # the table's log would keep values of rows for ever


def write(table: str, facts: DayFacts, rows: pa.RecordBatchReader) -> None:
    """The rows of this run, beside those of the run that is published now. A second time changes nothing."""
    remove(table, facts)
    days_and_runs = [facts.declared.partition, RUN]
    write_deltalake(
        table, rows, mode="append", partition_by=days_and_runs, schema_mode="merge", configuration=NO_STATISTICS
    )


def remove(table: str, facts: DayFacts) -> None:
    """Take the rows of this run out again."""
    _delete(table, facts, "=")


def keep_only(table: str, facts: DayFacts) -> None:
    """This run is the published one now: of its day, no other run's rows stay."""
    _delete(table, facts, "<>")


def _delete(table: str, facts: DayFacts, comparison: str) -> None:
    if DeltaTable.is_deltatable(table):
        run = facts.run_id.replace("'", "''")
        day = f"{facts.declared.partition} = '{facts.day}'"
        DeltaTable(table).delete(f"{day} AND {RUN} {comparison} '{run}'")
