"""The outcomes of a batch's keys known before any call, from the ledger or a prefetch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.declare.answers.answer_casts import AnswerColumn
from jobs.declare.lookup import Key
from jobs.input.keys.arrow_keys import UnreadKey
from jobs.ledger.keys import texts_in_bulk
from jobs.task.rows.asked_once import AskedOnce
from jobs.task.rows.ledger_hits import LedgerHits
from jobs.task.rows.outcome_columns import ANSWER, outcome_schema, without_attempts

OutcomeSource = AskedOnce | LedgerHits
ANSWER_BYTES = 64 << 20  # of stored answers that a batch may bring into memory
SKIPPED, NOT_ASKED = 1, 2  # lines of `_fixed`; line 0 has no outcome


class KnownOutcomes:
    """The rows of a batch that need no call at a lookup, with their outcomes.

    Args:
        answers: The answer's columns.
        sources: The first source with a key counts.
        names: The names of the key's parts.
        may_call: If False, a key in no source is not_asked.

    Attributes:
        rows_at_once: The most rows to look up in a batch, by the mean size of stored answers.
    """

    def __init__(
        self,
        answers: Sequence[AnswerColumn],
        sources: Sequence[OutcomeSource],
        *,
        names: Sequence[str],
        may_call: bool,
    ) -> None:
        self._schema = outcome_schema(answers)
        self._sources = sources
        self._names = names
        self._may_call = may_call
        largest = max((source.row_bytes for source in sources), default=0)
        self.rows_at_once = max(1, ANSWER_BYTES // max(1, largest))
        self._fixed = self._unanswered([None, "skipped", "not_asked"], [None, None, None])

    def _unanswered(
        self, statuses: Sequence[str | None], errors: Sequence[str | None]
    ) -> pa.RecordBatch:
        count = len(statuses)
        return without_attempts(
            count,
            status=pa.array(statuses, pa.string()),
            answered_at=pa.nulls(count, self._schema.field("answered_at").type),
            source=pa.nulls(count, pa.string()),
            error=pa.array(errors, pa.string()),
            answers=[
                pa.nulls(count, field.type)
                for field in self._schema
                if field.name.startswith(ANSWER)
            ],
            schema=self._schema,
        )

    def find(self, batch: pa.RecordBatch, keys: Sequence[Key | None]) -> pa.RecordBatch | None:
        """Return the outcome of each row of the batch, or None if all rows need a call.

        Rows that need a call have a null status.
        """
        whole = [key for key in keys if key is not None]
        lines = np.zeros(len(keys), np.int64)
        wanted = np.arange(len(keys))
        if len(whole) < len(keys):
            is_null = np.fromiter((key is None for key in keys), np.bool_, len(keys))
            lines[is_null] = SKIPPED
            wanted = wanted[~is_null]
        pieces, below = [self._fixed], len(self._fixed)
        if UnreadKey in set(map(type, whole)):
            is_unread = np.fromiter((type(key) is UnreadKey for key in whole), np.bool_, len(whole))
            reasons = [key.reason(self._names) for key in whole if isinstance(key, UnreadKey)]
            lines[wanted[is_unread]] = np.arange(below, below + len(reasons))
            pieces.append(self._unanswered(["error"] * len(reasons), reasons))
            below += len(reasons)
            wanted = wanted[~is_unread]
            whole = [key for key in whole if type(key) is not UnreadKey]
        texts: dict[bool, Any] = {}  # of the wanted keys, by whether they are digests
        for source in self._sources:
            if not len(wanted):
                break
            if source.hidden not in texts:
                of_all = texts_in_bulk(whole, hidden=source.hidden)
                texts[source.hidden] = pa.array(of_all, pa.string())
            known, outcomes = source.find(texts[source.hidden], batch, wanted)
            if len(outcomes) == len(keys):
                return outcomes
            lines[wanted[known]] = np.arange(below, below + len(outcomes))
            pieces.append(outcomes)
            below += len(outcomes)
            texts = {hidden: unread.filter(pa.array(~known)) for hidden, unread in texts.items()}
            wanted = wanted[~known]
            whole = [key for key, is_known in zip(whole, known, strict=True) if not is_known]
        if not self._may_call:
            lines[wanted] = NOT_ASKED
        if not lines.any():
            return None
        (together,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
        return together.take(pa.array(lines))
