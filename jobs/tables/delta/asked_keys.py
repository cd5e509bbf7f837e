"""Finds the published days that have a key, by the key of every row in the files."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq

from jobs.ledger.keys import asked_texts
from jobs.schema import columns as schema
from jobs.storage.parquet_files import parquet_source
from jobs.storage.urls import below
from jobs.storage.work_folders import RUNS
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import facts_by_day

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment

ROWS_AT_ONCE = 1 << 16


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


def days_that_asked(enrichment: Enrichment, keys: KeysOf) -> list[str]:
    """Returns the published days with a row of any of these keys, or with files of an older
    version, which name no keys.
    """
    return sorted({day for day, file in files_of_days(enrichment) if asks(file, keys)})


def asks(file: str, keys: KeysOf) -> bool:
    """Returns whether the file has a row of any of these keys; true for rows without keys."""
    return any(any(found) for found in asked(file, keys))


def files_of_days(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    table = enrichment.output.path
    opened = table_at(table)
    if opened is not None:
        for day, path in facts_by_day(opened, enrichment.input.partition, "path"):
            yield day, below(table, unquote(path))


def runs_in_table(enrichment: Enrichment) -> set[tuple[str, str]]:
    """Returns day and run id of each published file: its folder is named after the run."""
    return {(day, PurePosixPath(file).parent.name) for day, file in files_of_days(enrichment)}


def days_without_runs(enrichment: Enrichment) -> set[str]:
    """Returns days with a file that another program wrote, as OPTIMIZE does: no run's folder has
    it.
    """
    return {
        day
        for day, file in files_of_days(enrichment)
        if PurePosixPath(file).parent.parent.name != RUNS
    }


def asked(file: str, keys: KeysOf) -> Iterator[list[bool]]:
    """Yields by batch whether each row has any of the keys; all true if the file has no keys."""
    reported = names_keys(file, keys.lookup)
    with pq.ParquetFile(parquet_source(file)) as opened:
        for batch in opened.iter_batches(
            ROWS_AT_ONCE, columns=[schema.key(keys.lookup)] if reported else []
        ):
            if not reported:
                yield [True] * batch.num_rows
                continue
            column = batch.column(0)
            plain, hidden = (
                asked_texts(column, hidden=hidden, parts=keys.parts) for hidden in (False, True)
            )
            yield [
                one in keys.texts or other in keys.texts
                for one, other in zip(plain, hidden, strict=True)
            ]


def names_keys(file: str, lookup: str) -> bool:
    """Returns whether the file has keys; files of an older version have none."""
    return schema.key(lookup) in pq.read_schema(parquet_source(file)).names
