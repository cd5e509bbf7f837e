"""The answers that a run needs, as one file that every task maps into its memory and searches by key."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.keyed_file import KeyedFile, write_keyed


def write_index(path: str, answers: pa.Table) -> None:
    """Write the answers (one per key, as `select` gives them) to a folder's path or a URL, in one write.

    Raises LedgerError when it cannot.
    """
    types = {"key": pa.large_string(), "response": pa.large_string()}
    columns = {name: answers[name].cast(types.get(name, answers[name].type)) for name in answers.column_names}
    columns |= {name: answers[name].dictionary_encode() for name in ("outcome", "run_id")}
    write_keyed(path, pa.table(columns))


class AnswerIndex:
    """The file of `write_index`, mapped: its memory is the pages of it that were touched, shared by all processes."""

    def __init__(self, file: KeyedFile) -> None:
        self._file = file

    @classmethod
    def open(cls, path: str) -> Self:
        """Raises LedgerError when it is not there or torn. One at a remote URL is copied to a local file first."""
        return cls(KeyedFile.open(path))

    def __len__(self) -> int:
        return len(self._file)

    def lines(self, texts: pa.Array) -> npt.NDArray[np.int64]:
        """Where each key stands, -1 for one that is not here; for many keys at once, as one costs nearly as much."""
        return self._file.lines(texts)

    def answers(self, lines: npt.NDArray[np.int64]) -> list[StoredAnswer]:
        """What is stored at these lines, in their order."""
        return as_answers(pa.Table.from_batches([self._file.take(lines)]))
