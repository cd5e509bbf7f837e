"""The audit table, `<table>__audit`: what is known of every row beyond its answers, by row identity, day and run.

Made from the run's own files: no service is asked again. Days and runs are its partitions, so that taking a run out
touches no file of another one.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from jobs import schema
from jobs.schema import DayFacts

RUN = "run_id"


def table_of(facts: DayFacts) -> str:
    return f"{facts.declared.table}__audit"


def write(facts: DayFacts) -> None:
    """The audit rows of this run, beside those of the run that is published now. A second time changes nothing."""
    remove(facts)
    files = [file for file in facts.files if pq.read_metadata(file).num_rows]
    if not files:
        return
    dataset = ds.dataset(files, format="parquet")
    columns = {name: ds.field(name) for name in _columns(facts, dataset.schema)}
    columns[RUN] = ds.scalar(facts.run_id)
    columns[facts.declared.partition] = ds.scalar(dt.date.fromisoformat(facts.day))
    reader = dataset.scanner(columns=columns).to_reader()
    write_deltalake(
        table_of(facts), reader, mode="append", partition_by=[facts.declared.partition, RUN], schema_mode="merge"
    )


def remove(facts: DayFacts) -> None:
    """Take the rows of this run out again."""
    _delete(facts, "=")


def keep_only(facts: DayFacts) -> None:
    """This run is the published one now: of its day, no other run's rows stay."""
    _delete(facts, "<>")


def _delete(facts: DayFacts, comparison: str) -> None:
    if DeltaTable.is_deltatable(table_of(facts)):
        run = facts.run_id.replace("'", "''")
        day = f"{facts.declared.partition} = '{facts.day}'"
        DeltaTable(table_of(facts)).delete(f"{day} AND {RUN} {comparison} '{run}'")


def _columns(facts: DayFacts, written: pa.Schema) -> list[str]:
    """Row identity and audit columns, as the files spell them: a declaration need not mind case, Arrow does."""
    spelt = {name.lower(): name for name in written.names}
    wanted = [*facts.declared.row_id, *schema.ROW_COLUMNS]
    for lookup in facts.declared.lookups:
        wanted += schema.audit_columns(lookup.name)
    return list(dict.fromkeys(spelt[name.lower()] for name in wanted))
