"""Finds the published days that have a key, by the key of every row in the files."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.declare.enrichment import Enrichment
from jobs.input.delta import files_with_vectors
from jobs.ledger.keys import asked_texts
from jobs.schema import columns as schema
from jobs.storage.parquet_files import naming_torn_file, parquet_source, read_schema
from jobs.storage.urls import below
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import facts_by_day, find_run, runs_by_day

ROWS_AT_ONCE = 1 << 16
NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class KeysOf:
    """Keys of a lookup.

    Attributes:
        lookup: Its name.
        parts: The parts of a key; an earlier declaration may have used others.
        texts: The keys in the ledger's form, hashed or not, with their parts in this order.
    """

    lookup: str
    parts: tuple[str, ...]
    texts: Collection[str]


def days_that_asked(
    enrichment: Enrichment, keys: KeysOf, expired: Mapping[str, int] = NONE
) -> list[str]:
    """Return the published days with a row of any of these keys, and those with a file of another
    program, which does not tell its keys.

    expired: Further keys, and a time in µs: only rows with an answer from before it count.
    """
    table = enrichment.output.path
    paths = _paths_of_days(enrichment)
    return sorted(
        {
            day
            for day, path in paths
            if not find_run(path) or asks(below(table, path), keys, expired)
        }
    )


def asks(file: str, keys: KeysOf, expired: Mapping[str, int] = NONE) -> bool:
    """Return whether the file has a row of any of these keys; `expired` as in `days_that_asked`."""
    key, at = schema.key(keys.lookup), schema.published_answered_at(keys.lookup)
    with naming_torn_file(file), pq.ParquetFile(parquet_source(file)) as opened:
        names = opened.schema_arrow.names
        if key not in names:
            return False
        columns = [key, at] if expired and at in names else [key]
        return any(
            any(asked(batch, keys)) or (at in columns and _has_expired(batch, keys, at, expired))
            for batch in opened.iter_batches(ROWS_AT_ONCE, columns=columns)
        )


def _has_expired(rows: pa.RecordBatch, keys: KeysOf, at: str, expired: Mapping[str, int]) -> bool:
    times = rows[at].cast(pa.int64()).to_pylist()
    return any(
        text is not None and time is not None and time < expired.get(text, time)
        for texts in _texts(rows, keys)
        for text, time in zip(texts, times, strict=True)
    )


def files_of_days(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    """Yield each published file with its day."""
    for day, path in _paths_of_days(enrichment):
        yield day, below(enrichment.output.path, path)


def _paths_of_days(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    """Yield the day and the path below the table of each published file."""
    opened = table_at(enrichment.output.path)
    if opened is not None:
        for day, path in facts_by_day(opened, enrichment.input.partition, "path"):
            yield day, unquote(path)


def partly_deleted(enrichment: Enrichment) -> list[str]:
    """Return the published files with rows that another program deleted by a vector, so that a
    reader of the file alone still finds them.
    """
    opened = table_at(enrichment.output.path)
    return [] if opened is None else files_with_vectors(opened)


def runs_in_table(enrichment: Enrichment) -> tuple[set[tuple[str, str]], set[str]]:
    """Return each published day with the runs that wrote its files; and the days with a file that
    another program wrote, as OPTIMIZE does.
    """
    found = runs_by_day(table_at(enrichment.output.path), enrichment.input.partition)
    return (
        {(day, run) for day, runs in found.items() for run in runs if run},
        {day for day, runs in found.items() if "" in runs},
    )


def days_without_runs(enrichment: Enrichment) -> set[str]:
    """Return the days with a file that another program wrote."""
    return runs_in_table(enrichment)[1]


def asked(rows: pa.RecordBatch | pa.Table, keys: KeysOf) -> list[bool]:
    """Return whether each row has any of the keys: none, if the lookup was declared later."""
    name = schema.key(keys.lookup)
    if name not in rows.schema.names:
        return [False] * rows.num_rows
    plain, hidden = _texts(rows, keys)
    return [
        one in keys.texts or other in keys.texts for one, other in zip(plain, hidden, strict=True)
    ]


def _texts(rows: pa.RecordBatch | pa.Table, keys: KeysOf) -> Iterator[list[str | None]]:
    """Yield the key of each row in the ledger's form: not hashed, then hashed."""
    for hidden in (False, True):
        yield asked_texts(rows[schema.key(keys.lookup)], hidden=hidden, parts=keys.parts)


def names_keys(file: str, lookup: str) -> bool:
    """Return whether the file has keys of the lookup, which may be declared since."""
    return schema.key(lookup) in read_schema(file).names
