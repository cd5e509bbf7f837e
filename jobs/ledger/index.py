"""The answers that a run needs, as one file that every task maps into its memory and searches by key."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.keys import key_hashes
from jobs.ledger.store import one_line, open_root

COPY_BYTES = 1 << 24


def write_index(path: str, answers: pa.Table) -> None:
    """Write the answers (one per key, as `select` gives them) to a folder's path or a URL, in one write.

    Raises LedgerError when it cannot.
    """
    hashes = key_hashes(answers["key"].to_pylist())
    order = np.argsort(hashes, kind="stable")
    columns = {
        "hash": pa.array(hashes[order]),
        "key": _large(answers["key"], pa.large_string(), order),
        "outcome": _large(answers["outcome"], pa.string(), order).dictionary_encode(),
        "response": _large(answers["response"], pa.large_string(), order),
        "answered_at": _large(answers["answered_at"], answers["answered_at"].type, order),
        "run_id": _large(answers["run_id"], pa.string(), order).dictionary_encode(),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    filesystem, inside = open_root(path)
    try:
        with (
            filesystem.open_output_stream(inside, compression=None) as stream,
            pa.ipc.new_file(stream, batch.schema) as file,
        ):
            file.write_batch(batch)
    except (pa.ArrowException, OSError) as error:
        raise LedgerError(
            f"ledger: the index of a run cannot be written to {path!r}: {one_line(error)}. Make room there and start "
            "again."
        ) from error


def _large(column: pa.ChunkedArray, type_: pa.DataType, order: Any) -> pa.Array:
    return column.cast(type_).combine_chunks().take(pa.array(order))


class AnswerIndex:
    """The file of `write_index`, mapped: its memory is the pages of it that were touched, shared by all processes."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._hashes = batch["hash"].to_numpy(zero_copy_only=True)

    @classmethod
    def open(cls, path: str) -> Self:
        """Raises LedgerError when it is not there or torn. One at a remote URL is copied to a local file first."""
        try:
            filesystem, inside = open_root(path)
            source = pa.memory_map(inside) if filesystem.type_name == "local" else _local_copy(filesystem, inside)
            file = pa.ipc.open_file(source)
            return cls(file.get_batch(0))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise LedgerError(f"ledger: the index of a run cannot be read from {path!r}: {one_line(error)}.") from error

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, text: str) -> StoredAnswer | None:
        """What is stored of one key. For many, `find_many` costs a tenth."""
        return self.find_many([text])[0]

    def find_many(self, texts: Sequence[str]) -> list[StoredAnswer | None]:
        """What is stored of each key, in the order of the keys."""
        found: list[StoredAnswer | None] = [None] * len(texts)
        if not texts or not len(self):
            return found
        hashes = key_hashes(texts)
        wanted = np.arange(len(texts))
        rows = np.searchsorted(self._hashes, hashes)
        keys = pa.array(texts, pa.large_string())
        while True:  # once; again only for keys whose hash another key has too
            near = rows < len(self)
            wanted, rows = wanted[near], rows[near]
            near = self._hashes[rows] == hashes[wanted]
            wanted, rows = wanted[near], rows[near]
            if not len(wanted):
                return found
            same = pc.equal(self._batch["key"].take(pa.array(rows)), keys.take(pa.array(wanted))).to_numpy(False)
            for place, answer in zip(wanted[same].tolist(), self._answers(rows[same]), strict=True):
                found[place] = answer
            wanted, rows = wanted[~same], rows[~same] + 1

    def _answers(self, rows: Any) -> list[StoredAnswer]:
        taken = pa.Table.from_batches([self._batch.take(pa.array(rows))]).drop_columns(["hash"])
        return as_answers(taken)


def _local_copy(filesystem: Any, inside: str) -> Any:
    """The file, mapped, under a name that is gone at once: it takes no room when the process has ended."""
    handle, name = tempfile.mkstemp(prefix="tidegate-index-", suffix=".arrow")
    try:
        with os.fdopen(handle, "wb") as local, filesystem.open_input_stream(inside, compression=None) as remote:
            while data := remote.read(COPY_BYTES):
                local.write(data)
        return pa.memory_map(name)
    finally:
        os.unlink(name)  # noqa: PTH108  # a name, not a path of ours
