"""The index file of a run: the answers that it needs, which every task maps into memory and searches by key."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.keyed_file import KeyedFile, write_keyed


def write_index(path: str, answers: pa.Table) -> None:
    """Write the answers (one per key, from `select`) to a path or a URL in one write.

    Raises LedgerError if the write fails.
    """
    types = {"key": pa.large_string(), "response": pa.large_string()}
    columns = {name: answers[name].cast(types.get(name, answers[name].type)) for name in answers.column_names}
    columns |= {name: answers[name].dictionary_encode() for name in ("outcome", "run_id")}
    write_keyed(path, pa.table(columns))


class AnswerIndex:
    """The mapped file of `write_index`. Its memory is its touched pages, which all processes share."""

    def __init__(self, file: KeyedFile) -> None:
        self._file = file

    @classmethod
    def open(cls, path: str) -> Self:
        """Open the file, after a copy to local disk for a remote URL. Raises LedgerError if it is missing or torn."""
        return cls(KeyedFile.open(path))

    def __len__(self) -> int:
        return len(self._file)

    def lines(self, texts: pa.Array) -> npt.NDArray[np.int64]:
        """The line of each key, or -1; for many keys at once, because one costs nearly as much."""
        return self._file.lines(texts)

    def answers(self, lines: npt.NDArray[np.int64]) -> list[StoredAnswer]:
        """The answers at these lines, in order."""
        return as_answers(pa.Table.from_batches([self._file.take(lines)]))
