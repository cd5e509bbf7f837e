"""The rows of the tables beside the published one, made from files of a run: audit columns, and
dead letters.

Tasks load this module, so it imports no deltalake.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.declare.values.calendar import column_value
from jobs.ledger.keys import asked_texts
from jobs.schema import columns as schema
from jobs.schema.columns import RUN_ID
from jobs.schema.records import DayFacts, LookupFacts, WrittenFile
from jobs.storage.new_files import new_file, written_bytes
from jobs.storage.parquet_files import read_fields, stream_rows
from jobs.storage.urls import below, is_url

FOLDER = "beside"  # in the run's folder
OWN_COLUMNS = (
    pa.field("_lookup", pa.string()),
    pa.field("_key", pa.string()),  # the key in the ledger's form: JSON, or a hash for pii
    pa.field("_status", pa.string()),
    pa.field("_error", pa.string()),
    pa.field("_attempts", pa.int32()),  # 0: it waited for the call of an equal request
    # end of the last attempt, or of the run without one
    pa.field("_at", pa.timestamp("us", "UTC")),
    pa.field(RUN_ID, pa.string()),
)


def write(facts: DayFacts, files: Sequence[str]) -> tuple[WrittenFile, WrittenFile | None]:
    """Write the audit rows and the dead letters of files that have rows into the run's folder. The
    log of a table tells the day and the run.

    Returns:
        The two files; no second one without letters.
    """
    name = files[0].rpartition("/")[2]
    known = (facts.declared.partition, RUN_ID)
    audited = _write(
        below(facts.folder, FOLDER, f"audit-{name}"), iter(audit_rows(files, facts)), known
    )
    assert audited is not None  # the files have rows
    return audited, _write(
        below(facts.folder, FOLDER, f"letters-{name}"), letters(files, facts), known
    )


def _write(
    place: str, batches: Iterator[pa.RecordBatch], known: Sequence[str]
) -> WrittenFile | None:
    first = next(batches, None)
    if first is None:
        return None
    rows = 0
    names = [name for name in first.schema.names if name not in known]
    if not is_url(place):
        # a table beside may have it by a second name since an interrupted publication
        Path(place).unlink(missing_ok=True)
    with new_file(place) as target:
        with pq.ParquetWriter(target, first.select(names).schema, compression="snappy") as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch.select(names))
                rows += batch.num_rows
        size = written_bytes(target)
    return WrittenFile(place, size, rows)


def audit_rows(files: Sequence[str], facts: DayFacts) -> pa.RecordBatchReader:
    """Return the audit columns of every row, by row identity, day and run."""
    day = pa.scalar(column_value(facts.day))
    constants = {RUN_ID: pa.scalar(facts.run_id), facts.declared.partition: day}
    return stream_rows(files, _audit_columns(facts, read_fields(files)), constants)


def _audit_columns(facts: DayFacts, written: Iterable[str]) -> list[str]:
    """Return the row identity and the audit columns, spelled as in the files: Arrow distinguishes
    case, and declarations do not. A stream's day may lack the columns of a lookup that was declared
    later.
    """
    by_lower_name = {name.lower(): name for name in written}
    wanted = [*facts.declared.row_id, *schema.ROW_COLUMNS]
    for lookup in facts.declared.lookups:
        wanted += schema.audit_columns(lookup.name)
    return list(
        dict.fromkeys(
            by_lower_name[name.lower()] for name in wanted if name.lower() in by_lower_name
        )
    )


def letters(files: Sequence[str], facts: DayFacts) -> Iterator[pa.RecordBatch]:
    """Return the dead letters: one per row and lookup, without empty batches."""
    for lookup in facts.declared.lookups if files else ():
        if lookup.dead_letters:
            for batch in _wanted(files, facts, lookup):
                if batch.num_rows:
                    yield _batch(batch, facts, lookup)


def _wanted(files: Sequence[str], facts: DayFacts, lookup: LookupFacts) -> Iterator[pa.RecordBatch]:
    by_lower_name = {name.lower(): name for name in read_fields(files)}
    name = lookup.name
    if schema.status(name).lower() not in by_lower_name:  # the lookup was declared later
        return
    # declarations ignore case
    identity = [by_lower_name[column.lower()] for column in facts.declared.row_id]
    columns = {column: column for column in identity} | {
        spelled: by_lower_name[column.lower()]
        for spelled, column in (
            ("_key", schema.key(name)),
            ("_status", schema.status(name)),
            ("_error", schema.error(name)),
            ("_attempts", schema.attempts(name)),
        )
    }
    outcomes = pa.array(lookup.dead_letters, pa.string())
    for batch in stream_rows(files, columns.values()):
        found = batch.filter(pc.is_in(batch[columns["_status"]], value_set=outcomes))
        yield pa.RecordBatch.from_pydict(
            {spelled: found[column] for spelled, column in columns.items()}
        )


def _batch(found: pa.RecordBatch, facts: DayFacts, lookup: LookupFacts) -> pa.RecordBatch:
    rows = found.num_rows
    attempts = found.column("_attempts").to_pylist()
    finished = round(dt.datetime.fromisoformat(facts.finished_at).timestamp() * 1e6)
    ends = [made[-1]["end"] if made else finished for made in attempts]
    identity = [
        name
        for name in found.schema.names
        if name not in ("_key", "_status", "_error", "_attempts")
    ]
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
