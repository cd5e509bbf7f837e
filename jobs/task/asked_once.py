"""What became of each key that was asked once for the whole run: one file that every task maps into its memory.

The answer's columns are in it as the rows take them: so that keys are asked once without a ledger too, and where an
answer cannot be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from jobs import schema
from jobs.input.arrow_keys import values_of
from jobs.ledger.keyed_file import KeyedFile, write_keyed
from jobs.ledger.keys import key_text

if TYPE_CHECKING:
    from jobs.declare.lookup import Key

COLUMNS = ("outcome", "error", "attempts", "latency_ms", "paused_ms", "source_file", "source_row", "answered_at")
HAVE_ANSWER = frozenset(("ok", "fallback"))
ANSWER = "answer_"  # answer_0, answer_1, ...: the answer's columns, in their order


@dataclass(frozen=True)
class AskedFile:
    """Where the tasks find what became of one lookup's keys. Plain data: it travels to the executors."""

    path: str
    hidden: bool  # key texts are hashed


@dataclass(frozen=True, slots=True)
class AskedKey:
    """What became of a key that was asked once for the whole run.

    The audit of its call stands at one row of the key; the others say source "shared".
    """

    outcome: str
    error: str | None
    attempts: tuple[tuple[int, int, bool], ...]  # start, end (µs since the epoch), throttled
    latency_ms: float | None
    paused_ms: float | None
    source_file: str | None  # of the row where the audit stands
    source_row: int | None
    answered_at: int | None  # µs since the epoch
    answer: tuple[Any, ...] | None  # the columns of an answer or a fallback


@dataclass(frozen=True, slots=True)
class AskedBefore:
    """A key that was asked once for the whole run, as one row finds it."""

    asked: AskedKey
    audit_is_here: bool


def write_asked_once(path: str, asked: pa.Table) -> None:
    """Write what became of the keys (one line per key: its text as `key`, COLUMNS, the answer's columns) to a path.

    Raises LedgerError when it cannot.
    """
    write_keyed(path, asked)


class AskedOnce:
    """The file of `write_asked_once`, mapped; a task looks up the keys of a batch at once."""

    def __init__(self, file: KeyedFile, *, hidden: bool = False) -> None:
        self._file = file
        self._hidden = hidden

    @classmethod
    def open(cls, file: AskedFile) -> Self:
        """Raises LedgerError when it is not there or torn."""
        return cls(KeyedFile.open(file.path), hidden=file.hidden)

    def __len__(self) -> int:
        return len(self._file)

    def find(self, batch: pa.RecordBatch, keys: Sequence[Key | None]) -> list[AskedBefore | None]:
        """What became of the keys of a batch, row by row."""
        asked = self.find_many([None if key is None else key_text(key, hidden=self._hidden) for key in keys])
        if not any(asked):
            return [None] * len(asked)
        sources = (batch.column(name).to_pylist() for name in schema.SOURCE_IDENTITY)
        rows = zip(asked, *sources, strict=True)
        return [
            None if one is None else AskedBefore(one, (one.source_file, one.source_row) == (file, row))
            for one, file, row in rows
        ]

    def find_many(self, texts: Sequence[str | None]) -> list[AskedKey | None]:
        """What became of each key, in the order of the keys; None for a key that was not asked, or is None."""
        found: list[AskedKey | None] = [None] * len(texts)
        known = [place for place, text in enumerate(texts) if text is not None]
        lines = self._file.places([texts[place] or "" for place in known])
        hits = [place for place, line in zip(known, lines.tolist(), strict=True) if line >= 0]
        if hits:
            for place, asked in zip(hits, _asked_keys(self._file.take(lines[lines >= 0])), strict=True):
                found[place] = asked
        return found


def _asked_keys(table: pa.Table) -> list[AskedKey]:
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in COLUMNS}
    columns["attempts"] = [
        tuple((one["start"], one["end"], one["throttled"]) for one in attempts) for attempts in columns["attempts"]
    ]
    parts = [values_of(table[name].combine_chunks()) for name in table.column_names if name.startswith(ANSWER)]
    answers = zip(*parts, strict=True) if parts else [()] * table.num_rows
    columns["answer"] = [
        answer if outcome in HAVE_ANSWER else None for answer, outcome in zip(answers, columns["outcome"], strict=True)
    ]
    return [AskedKey(*values) for values in zip(*columns.values(), strict=True)]
