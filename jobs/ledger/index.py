"""The answers that a run needs, as one file that every task maps into its memory and searches by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

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

    def find(self, text: str) -> StoredAnswer | None:
        """What is stored of one key. For many, `find_many` costs a tenth."""
        return self.find_many([text])[0]

    def find_many(self, texts: Sequence[str]) -> list[StoredAnswer | None]:
        """What is stored of each key, in the order of the keys."""
        found: list[StoredAnswer | None] = [None] * len(texts)
        lines = self._file.places(texts)
        hits = (lines >= 0).nonzero()[0]
        if len(hits):
            for place, answer in zip(hits.tolist(), as_answers(self._file.take(lines[hits])), strict=True):
                found[place] = answer
        return found
