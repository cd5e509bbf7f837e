"""A record of the ledger: an event of a key at a time."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import gather

# the last two are Tidegate's marks: an unrepeatable call starts; older records are void
StoredOutcome = Literal["ok", "miss", "error", "timeout", "asked", "expired"]
OUTCOMES: tuple[StoredOutcome, ...] = get_args(StoredOutcome)
ANSWERS = ("ok", "miss")  # a service's answers for a key

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("response", pa.string()),  # JSON, so that any reader of Parquet can query it
        pa.field("answered_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
    ]
)
LARGEST = 1 << 30  # bytes of text in an Arrow array, which counts them in 32 bits
COPIED_AT_ONCE = 16 << 20  # bytes of responses
WORDS = ["outcome", "run_id"]  # columns with few distinct words
# the schema for reading files: SCHEMA takes a fifth longer
ENCODED = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in WORDS else field
        for field in SCHEMA
    ]
)


class StoredAnswer(NamedTuple):
    """A record of the ledger.

    It is a tuple, because a dataclass takes three times as long, and a run builds half a million
    records.

    Attributes:
        key: From `key_text`.
        outcome: The kind of event.
        response: From `dump`, or None.
        answered_at: µs since the epoch.
        run_id: The run that wrote the record.
    """

    key: str
    outcome: StoredOutcome
    response: bytes | None
    answered_at: int
    run_id: str


def as_table(answers: Sequence[StoredAnswer]) -> pa.Table:
    return columns_table(zip(*answers, strict=True) if answers else ((),) * len(SCHEMA))


def columns_table(columns: Iterable[Sequence[Any]]) -> pa.Table:
    """Return a table of columns in the order of SCHEMA; a response is UTF-8 bytes, text or None."""
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def only_answers(records: pa.Table) -> pa.Table:
    """Return the records that hold a service's answer, not an error or a mark."""
    return records.filter(pc.is_in(records["outcome"], value_set=pa.array(ANSWERS)))


def taken(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return these rows of a table with responses, which need no other memory than theirs."""
    if table["response"].nbytes < COPIED_AT_ONCE:
        return table.take(pa.array(rows))
    place = table.schema.get_field_index("response")
    responses = table["response"]
    ends = np.cumsum(pc.fill_null(pc.binary_length(responses), 0).to_numpy()[rows])
    pieces, first = [], 0
    while first < len(rows):
        size = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, size + COPIED_AT_ONCE, "right")))
        pieces.append(gather(responses, rows[first:last]))
        first = last
    others = table.remove_column(place).take(pa.array(rows))
    return others.add_column(place, table.field(place), pa.chunked_array(pieces, pa.string()))


def as_answers(table: pa.Table) -> list[StoredAnswer]:
    """Return the records of a table of `LedgerFolder.read` or `select`, in order."""
    columns = (
        table["key"].to_pylist(),
        _words(table["outcome"]),
        table["response"].cast(pa.large_binary()).to_pylist(),
        table["answered_at"].cast(pa.int64()).to_numpy().tolist(),
        _words(table["run_id"]),
    )
    return list(map(_MAKE, zip(*columns, strict=True)))


# entirely in C
_MAKE: Callable[[tuple[Any, ...]], StoredAnswer] = functools.partial(tuple.__new__, StoredAnswer)


def _words(column: pa.ChunkedArray) -> list[str]:
    """Return a column with few distinct words as texts, decoding each word once."""
    words: list[str] = []
    for chunk in column.chunks:
        encoded = chunk.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        words.extend(map(names.__getitem__, encoded.indices.to_numpy().tolist()))
    return words
