"""What became of each key that was asked once for the whole job: one file that every task maps into its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa

from jobs.ledger.keyed_file import KEY, KeyedFile, write_keyed
from jobs.ledger.task_plan import AskedKey

COLUMNS = ("outcome", "error", "attempts", "latency_ms", "paused_ms", "source_file", "source_row")


def write_asked_once(path: str, asked: pa.Table) -> None:
    """Write what became of the keys (one line per key: its text as `key`, and COLUMNS) to a path or URL.

    Raises LedgerError when it cannot.
    """
    write_keyed(path, asked.select([KEY, *COLUMNS]))


class AskedOnce:
    """The file of `write_asked_once`, mapped; a task looks up the keys of a batch at once."""

    def __init__(self, file: KeyedFile) -> None:
        self._file = file

    @classmethod
    def open(cls, path: str) -> Self:
        """Raises LedgerError when it is not there or torn."""
        return cls(KeyedFile.open(path))

    def __len__(self) -> int:
        return len(self._file)

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
    return [AskedKey(*values) for values in zip(*columns.values(), strict=True)]
