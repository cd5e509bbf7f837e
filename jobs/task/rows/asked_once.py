"""The outcomes of prefetched keys, in a file that every task maps into memory.

It has the answer's mapped columns, so that a prefetch also works without a ledger, and for answers
that the ledger cannot store.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger.keyed_file import KeyedFile
from jobs.schema import columns as schema
from jobs.task.rows.outcome_columns import (
    ANSWER,
    ATTEMPT,
    FIELDS,
    TIMESTAMP,
    list_attempts,
    offsets_from,
)

NO_TEXT, NO_NUMBER = pa.scalar(None, pa.string()), pa.scalar(None, pa.float64())


@dataclass(frozen=True)
class AskedFile:
    """The location of a lookup's prefetched outcomes. Plain data, sent to the executors."""

    path: str
    hidden: bool  # key texts are hashed


class AskedOnce:
    """The mapped file; a task looks up the keys of a batch at once.

    Its columns: the key's text as `key`, the outcome, error, attempts, latency_ms, paused_ms,
    answered_at (µs since the epoch), the row with the key's audit as source_file and source_row,
    and the answer as answer_0, answer_1, ...
    """

    def __init__(self, file: KeyedFile, *, hidden: bool = False) -> None:
        self._file = file
        self.hidden, self.row_bytes = hidden, file.row_bytes

    @classmethod
    def open(cls, file: AskedFile) -> Self:
        """Map the file.

        Raises:
            LedgerError: It is missing or torn.
        """
        return cls(KeyedFile.open(file.path), hidden=file.hidden)

    def find(
        self, texts: pa.StringArray, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch]:
        """Return which of these keys were prefetched, and their outcomes in order.

        A row of each key has the audit of its call; its other rows have source "shared".

        Args:
            texts: The keys' texts.
            batch: The batch of their rows.
            rows: Each key's row in the batch.
        """
        lines = self._file.lines(texts)
        known = lines >= 0
        asked = self._file.take(lines[known])
        is_here = _is_source(
            asked, batch.select(schema.SOURCE_IDENTITY).take(pa.array(rows[known]))
        )
        attempts = _attempts(asked["attempts"], is_here)
        called = pc.greater(pc.list_value_length(attempts), 0)
        source = pc.if_else(
            pa.array(is_here),
            # a call without a time of its answer gave no answer, so the row has no source
            pc.if_else(pc.is_valid(asked["answered_at"]), "call", NO_TEXT),
            "shared",
        )
        columns = {
            "status": asked["outcome"],
            "answered_at": asked["answered_at"].cast(TIMESTAMP),
            "source": pc.if_else(pc.equal(asked["outcome"], "unknown"), NO_TEXT, source),
            "attempts": attempts,
            "latency_ms": pc.if_else(called, asked["latency_ms"], NO_NUMBER),
            "paused_ms": pc.if_else(called, pc.fill_null(asked["paused_ms"], 0.0), NO_NUMBER),
            "error": asked["error"],
        }
        answers = [field for field in asked.schema if field.name.startswith(ANSWER)]
        return known, pa.RecordBatch.from_arrays(
            [*columns.values(), *(asked[field.name] for field in answers)],
            schema=pa.schema([*FIELDS, *answers]),
        )


def _is_source(asked: pa.RecordBatch, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    same_row = pc.equal(asked["source_row"], rows[schema.SOURCE_ROW])
    # few: comparing file names is slow
    found = np.flatnonzero(pc.fill_null(same_row, fill_value=False))
    same_file = pc.equal(asked["source_file"].take(found), rows[schema.SOURCE_FILE].take(found))
    is_source = np.zeros(len(asked), np.bool_)
    is_source[found] = pc.fill_null(same_file, fill_value=False)
    return is_source


def _attempts(attempts: pa.ListArray, is_here: npt.NDArray[np.bool_]) -> pa.ListArray:
    shown = attempts.filter(pa.array(is_here))
    counts = np.zeros(len(attempts), np.int32)
    counts[is_here] = pc.list_value_length(shown).to_numpy(zero_copy_only=False)
    of_all = shown.flatten()
    return list_attempts(
        offsets_from(counts), [pc.struct_field(of_all, field.name) for field in ATTEMPT]
    )
