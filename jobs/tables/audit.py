"""The audit table, `<table>__audit`: the audit columns of every row, by row identity, day and run.

It is made from the run's files, without calls.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.dataset as ds

from jobs import schema
from jobs.declare.values.calendar import column_value
from jobs.schema import DayFacts
from jobs.storage.parquet_files import parquet_dataset
from jobs.tables.delivery import with_rows
from jobs.tables.delta import by_run


def table_of(table: str) -> str:
    return f"{table}__audit"


def write(facts: DayFacts, *, again: bool = True) -> Callable[[], object]:
    """Writes this run's audit rows beside those of the published run, like `by_run.write`."""
    table = table_of(facts.declared.table)
    files = with_rows(facts)
    if not files:
        return by_run.write(table, facts, None)
    dataset = parquet_dataset(files)
    columns = {name: ds.field(name) for name in _columns(facts, dataset.schema)}
    columns[by_run.RUN] = ds.scalar(facts.run_id)
    columns[facts.declared.partition] = ds.scalar(column_value(facts.day))
    return by_run.write(table, facts, lambda: dataset.scanner(columns=columns).to_reader(), again=again)


def _columns(facts: DayFacts, written: pa.Schema) -> list[str]:
    """Returns row identity and audit columns in the files' spelling, as Arrow respects case."""
    by_lower_name = {name.lower(): name for name in written.names}
    wanted = [*facts.declared.row_id, *schema.ROW_COLUMNS]
    for lookup in facts.declared.lookups:
        wanted += schema.audit_columns(lookup.name)
    return list(dict.fromkeys(by_lower_name[name.lower()] for name in wanted))
