"""One line of the ledger: what is known of one key from one moment on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

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
    response = table["response"].cast(pa.large_binary()).to_pylist()
    answered_at = table["answered_at"].cast(pa.int64()).to_pylist()
    columns = (table["key"].to_pylist(), table["outcome"].to_pylist(), response, answered_at)
    return list(map(StoredAnswer, *columns, table["run_id"].to_pylist()))
