"""One line of the ledger: what is known of one key from one moment on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

StoredOutcome = Literal["ok", "miss", "error", "timeout", "asked", "expired"]
OUTCOMES: tuple[StoredOutcome, ...] = get_args(StoredOutcome)
ANSWERS = ("ok", "miss")  # what a service said of the key itself
MARKS = ("asked", "expired")  # what we say: a call that must not be repeated starts now; older answers do not count

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("response", pa.string()),  # JSON, so that everybody who reads Parquet can look into it
        pa.field("answered_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
    ]
)


class StoredAnswer(NamedTuple):
    """A line of the ledger. A tuple, not a dataclass: building one costs a third, and half a million are built.

    key: from `key_text`. response: from `dump`, None where there is none. answered_at: µs since the epoch.
    """

    key: str
    outcome: StoredOutcome
    response: bytes | None
    answered_at: int
    run_id: str


def as_table(answers: Sequence[StoredAnswer]) -> pa.Table:
    """The answers as Arrow, in their order."""
    columns = zip(*answers, strict=True) if answers else ((),) * len(SCHEMA)
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def as_answers(table: pa.Table) -> list[StoredAnswer]:
    """The lines of a table as `LedgerFolder.read` and `select` give it, in their order."""
    columns = (
        table["key"].to_pylist(),
        _words(table["outcome"]),
        table["response"].cast(pa.large_binary()).to_pylist(),
        table["answered_at"].cast(pa.int64()).to_numpy().tolist(),
        _words(table["run_id"]),
    )
    return list(map(_MAKE, zip(*columns, strict=True)))


_MAKE: Callable[[tuple[Any, ...]], StoredAnswer] = functools.partial(tuple.__new__, StoredAnswer)  # in C, all through


def _words(column: pa.ChunkedArray) -> list[str]:
    """A column of few words: each is made once."""
    words: list[str] = []
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        words.extend(map(names.__getitem__, encoded.indices.to_numpy().tolist()))
    return words
