"""Which published days asked a key: read off the files, where every row's key stands beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from jobs import schema
from jobs.ledger.keys import key_text
from jobs.tables.delta_log import table_at

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment

ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class KeysOf:
    """Keys of a lookup. texts: as the ledger writes them, hidden or not, their parts in the order of `parts`, in which
    a declaration before may not have had them.
    """

    lookup: str
    parts: tuple[str, ...]
    texts: Collection[str]


def days_that_asked(enrichment: Enrichment, keys: KeysOf) -> list[str]:
    """The days of the published table with a row that asked one of these keys. A day whose files tell no keys, as those
    of an older version, counts as one.
    """
    return sorted({day for day, file in files_of_days(enrichment) if asks(file, keys)})


def asks(file: Path, keys: KeysOf) -> bool:
    """Whether a row of the file asked one of these keys; true where it has rows and tells no keys."""
    return any(any(found) for found in asked(file, keys))


def files_of_days(enrichment: Enrichment) -> Iterator[tuple[str, Path]]:
    """The files that readers see, each with its day."""
    table = enrichment.output.path
    opened = table_at(table)
    if opened is not None:
        actions = pa.table(opened.get_add_actions(flatten=True))
        days = actions[f"partition.{enrichment.input.partition}"].to_pylist()
        for path, day in zip(actions["path"].to_pylist(), days, strict=True):
            yield str(day), Path(table, unquote(path))


def asked(file: Path, keys: KeysOf) -> Iterator[list[bool]]:
    """For the rows of a file, some at a time, whether each asked one of the keys; all true where they are not told."""
    reported = names_keys(file, keys.lookup)
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(ROWS_AT_ONCE, columns=[schema.key(keys.lookup)] if reported else []):
            if not reported:
                yield [True] * batch.num_rows
                continue
            column = batch.column(0)
            plain, hidden = (asked_texts(column, hidden=hidden, parts=keys.parts) for hidden in (False, True))
            yield [one in keys.texts or other in keys.texts for one, other in zip(plain, hidden, strict=True)]


def names_keys(file: Path, lookup: str) -> bool:
    """Whether the file says what its rows asked; those of an older version do not."""
    return schema.key(lookup) in pq.read_schema(file).names


def asked_texts(keys: pa.Array, *, hidden: bool, parts: Collection[str] = ()) -> list[str | None]:
    """The column of `schema.key` as the ledger writes keys; None where nothing was asked. parts: in this order, if the
    keys have these and no others.
    """
    own = [field.name for field in keys.type]
    order = parts if sorted(parts) == sorted(own) else own
    return [
        None if key is None or None in key.values() else key_text(tuple(key[part] for part in order), hidden=hidden)
        for key in keys.to_pylist()
    ]
