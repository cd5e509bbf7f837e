"""The dead letters, `<table>__dead_letters`: rows whose lookup failed under the policy
`dead_letter`, with the reason.

The rows themselves stay in the published day, with their status and without an answer; no row is
dropped. The table is made from the run's files, without calls. It has only letters of published
runs; the letters of a held-back day are in its record and its files.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from jobs import schema
from jobs.declare.values.calendar import column_value
from jobs.schema import DayFacts, LookupFacts
from jobs.storage.parquet_files import parquet_dataset
from jobs.storage.stored_files import open_filesystem
from jobs.tables.delivery import with_rows
from jobs.tables.delta import by_run
from jobs.tables.delta.asked_keys import asked_texts
from jobs.tables.delta.delta_log import table_at

OWN_COLUMNS = (
    pa.field("_lookup", pa.string()),
    pa.field("_key", pa.string()),  # the key in the ledger's form: JSON, or a hash for pii
    pa.field("_status", pa.string()),
    pa.field("_error", pa.string()),
    pa.field("_attempts", pa.int32()),  # 0: the row waited for the call of an equal request
    pa.field("_at", pa.timestamp("us", "UTC")),  # end of the last attempt; without an attempt, end of the run
    pa.field(by_run.RUN, pa.string()),
)


def table_of(table: str) -> str:
    return f"{table}__dead_letters"


def write(facts: DayFacts, *, again: bool = True) -> Callable[[], object]:
    """Writes the letters of this run beside those of the published run, as `by_run.write` does."""
    first = next(letters(facts), None)

    def rows(schema: pa.Schema) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema, letters(facts))

    return by_run.write(
        table_of(facts.declared.table), facts, None if first is None else partial(rows, first.schema), again=again
    )


def of_day(table: str, partition: str, day: str) -> pa.Table:
    found = table_at(table_of(table))
    if found is None:
        return pa.table({field.name: pa.array([], field.type) for field in OWN_COLUMNS})
    filesystem, path = open_filesystem(table_of(table))
    # deltalake's filesystem is written in Python: Arrow's threads may still free its buffers when
    # the interpreter ends, which aborts the process (apache/arrow#34314)
    return found.to_pyarrow_table(
        filesystem=fs.SubTreeFileSystem(path, filesystem), filters=[(partition, "=", column_value(day))]
    )


def letters(facts: DayFacts) -> Iterator[pa.RecordBatch]:
    """Yields the dead letters in a run's files: a letter per row and lookup, no empty batch."""
    files = with_rows(facts)
    for lookup in facts.declared.lookups if files else ():
        if lookup.dead_letters:
            dataset = parquet_dataset(files)
            for batch in _wanted(dataset, facts, lookup):
                if batch.num_rows:
                    yield _batch(batch, facts, lookup)


def _wanted(dataset: ds.Dataset, facts: DayFacts, lookup: LookupFacts) -> Iterator[pa.RecordBatch]:
    by_lower_name = {name.lower(): name for name in dataset.schema.names}
    name = lookup.name
    identity = [by_lower_name[column.lower()] for column in facts.declared.row_id]  # declarations ignore case
    columns = {column: ds.field(column) for column in identity}
    key = by_lower_name.get(schema.key(name).lower())  # files of an older version have no key
    columns["_key"] = ds.field(key) if key else ds.scalar(pa.scalar(None, pa.struct([])))
    columns["_status"] = ds.field(by_lower_name[schema.status(name).lower()])
    columns["_error"] = ds.field(by_lower_name[schema.error(name).lower()])
    columns["_attempts"] = ds.field(by_lower_name[schema.attempts(name).lower()])
    outcomes = columns["_status"].isin(list(lookup.dead_letters))
    yield from dataset.scanner(columns=columns, filter=outcomes).to_batches()


def _batch(found: pa.RecordBatch, facts: DayFacts, lookup: LookupFacts) -> pa.RecordBatch:
    rows = found.num_rows
    attempts = found.column("_attempts").to_pylist()
    finished = round(dt.datetime.fromisoformat(facts.finished_at).timestamp() * 1e6)
    ends = [made[-1]["end"] if made else finished for made in attempts]
    identity = [name for name in found.schema.names if name not in ("_key", "_status", "_error", "_attempts")]
    columns = {name: found.column(name) for name in identity}
    own = [
        pa.array([lookup.name] * rows, pa.string()),
        pa.array(asked_texts(found.column("_key"), hidden=lookup.hidden_key), pa.string()),
        *(found.column(name).cast(pa.string()) for name in ("_status", "_error")),
        pa.array([len(made) for made in attempts], pa.int32()),
        pa.array(ends, pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([facts.run_id] * rows, pa.string()),
    ]
    columns |= {field.name: array for field, array in zip(OWN_COLUMNS, own, strict=True)}
    columns[facts.declared.partition] = pa.array([column_value(facts.day)] * rows)
    return pa.RecordBatch.from_pydict(columns)
