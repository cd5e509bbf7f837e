"""Outcomes of rows from the ledger's answers; an answer in use is mapped to columns once."""

import datetime as dt
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.clients.client import Client
from jobs.declare.answers.answer_casts import AnswerColumn
from jobs.declare.answers.answer_json import load
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.index import AnswerIndex
from jobs.schema.columns import FAILED, NOT_REPEATED
from jobs.task.lookup.replies import Reply
from jobs.task.rows.outcome_columns import OF_CALLS, TIMESTAMP, outcome_schema, without_attempts
from jobs.wording import one_line

_log = logging.getLogger("tidegate.ledger")

MAPPED_BYTES = 16 << 20  # of mapped answers in a task
ABSENT = -1


class UnreadableAnswer(ValueError):  # noqa: N818  # says what it is
    """A stored response cannot be read: an older version wrote NaT, or a disk is broken."""

    def __init__(self, stored: StoredAnswer, error: Exception) -> None:
        super().__init__(
            f"the stored answer of key {stored.key} cannot be read: {one_line(str(error))}"
        )


class LedgerHits:
    """The outcomes of keys in an index of stored answers."""

    def __init__(
        self,
        index: AnswerIndex,
        caller: Client,
        answers: Sequence[AnswerColumn],
        *,
        name: str,
        hidden: bool,
        idempotent: bool,
    ) -> None:
        """Start without mapped answers.

        Args:
            index: The stored answers.
            caller: Maps them to columns.
            answers: The answer's columns.
            name: The lookup's name.
            hidden: Whether key texts are hashed.
            idempotent: Whether a call may be repeated, so that the mark of a call is not an
                outcome.
        """
        self._name = name
        self.hidden = hidden
        self.row_bytes = index.row_bytes
        self._index = index
        self._caller = caller
        self._answers = answers
        self._idempotent = idempotent
        self._schema = outcome_schema(answers)
        self._kept_schema = pa.schema(
            [field for field in self._schema if field.name not in OF_CALLS]
        )
        self._forget()

    def _forget(self) -> None:
        self._lines = np.empty(0, np.int64)  # of the index, mapped; sorted
        self._places = np.empty(0, np.int64)  # index in _mapped; ABSENT: not an outcome
        self._mapped = pa.RecordBatch.from_pylist([], self._kept_schema)

    def find(
        self,
        texts: pa.StringArray,
        batch: pa.RecordBatch,  # noqa: ARG002
        rows: np.ndarray,  # noqa: ARG002
    ) -> tuple[np.ndarray, pa.RecordBatch]:
        lines = self._index.lines(texts)
        known = lines >= 0
        places = np.full(len(lines), ABSENT)
        places[known] = self._map_lines(lines[known])
        known = places != ABSENT
        kept = self._mapped.take(pa.array(places[known]))
        status, answered_at, source, error, *answers = kept.columns
        return known, without_attempts(
            len(kept), status=status, answered_at=answered_at, source=source, error=error,
            answers=answers, schema=self._schema,
        )  # fmt: skip

    def _map_lines(self, lines: np.ndarray) -> np.ndarray:
        """Return the indexes of these lines in _mapped; maps missing lines."""
        at = np.searchsorted(self._lines, lines)
        missing = lines[self._lines.take(at, mode="clip") != lines] if len(self._lines) else lines
        if not len(missing):
            return self._places[at]
        if self._mapped.nbytes > MAPPED_BYTES:
            self._forget()
            missing = lines
        self._map(np.unique(missing))
        return self._places[np.searchsorted(self._lines, lines)]

    def _map(self, lines: np.ndarray) -> None:
        stored = self._index.answers(lines)
        known = [self._reply(answer) for answer in stored]
        counts = [reply is not None for reply in known]
        replies = [reply for reply in known if reply is not None]
        places = np.full(len(lines), ABSENT)
        places[counts] = np.arange(len(self._mapped), len(self._mapped) + len(replies))
        if replies:
            grown = pa.Table.from_batches([self._mapped, self._build_columns(replies)])
            (self._mapped,) = grown.combine_chunks().to_batches()
        at = np.searchsorted(self._lines, lines)
        self._lines = np.insert(self._lines, at, lines)
        self._places = np.insert(self._places, at, places)

    def _reply(self, stored: StoredAnswer) -> Reply | None:
        """Return the outcome; None if the key is asked again."""
        if self._idempotent and stored.outcome == "asked" and stored.response is None:
            return None
        try:
            return map_stored_answer(self._caller, stored)
        except UnreadableAnswer as error:
            if not self._idempotent:
                return Reply(
                    "unknown",
                    error=one_line(f"{error}; the call must not be made twice (idempotent=False)"),
                )
            _log.warning("lookup %s: %s; the key is asked again", self._name, error)
            return None

    def _build_columns(self, replies: Sequence[Reply]) -> pa.RecordBatch:
        nothing = (None,) * len(self._answers)
        values = zip(*[reply.answer or nothing for reply in replies], strict=True)
        arrays = [
            pa.array([reply.outcome for reply in replies], pa.string()),
            pa.array([reply.answered_at for reply in replies], pa.int64()).cast(TIMESTAMP),
            pa.array(
                [None if reply.outcome == "unknown" else "ledger" for reply in replies], pa.string()
            ),
            pa.array(
                [reply.error if reply.outcome in FAILED else None for reply in replies], pa.string()
            ),
            *(
                pa.array(column, answer.arrow_type)
                for answer, column in zip(self._answers, values, strict=True)
            ),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._kept_schema)


def stored_columns(caller: Client, stored: StoredAnswer) -> tuple[Any, ...] | None:
    """Return a stored answer in the present columns; None if it is missing or does not fit."""
    try:
        return map_stored_answer(caller, stored).answer
    except ValueError:  # the response cannot be read
        return None


def map_stored_answer(caller: Client, stored: StoredAnswer) -> Reply:
    """Return the outcome of a stored answer, with the columns declared now.

    Raises:
        UnreadableAnswer: The response cannot be read.
    """
    if stored.outcome == "miss":
        return Reply("miss", None, stored.answered_at)
    if stored.outcome == "asked" and stored.response is not None:  # of a vendor's job
        return Reply("unknown", error=one_line(str(load(stored.response))))
    if stored.outcome == "asked":
        when = dt.datetime.fromtimestamp(stored.answered_at / 1e6, dt.UTC)
        return Reply(
            "unknown",
            error=f"run {stored.run_id} asked at {when:%Y-%m-%d %H:%M:%S} UTC, and its answer is "
            f"lost; {NOT_REPEATED} (idempotent=False), unless `tidegate refresh` with "
            "stored.outcome = 'asked' lets it",
        )
    try:
        message = None if stored.response is None else load(stored.response)
    except ValueError as error:
        raise UnreadableAnswer(stored, error) from error
    if stored.outcome != "ok":
        return Reply("error", error=one_line(str(message)), kept=True)
    try:
        return Reply("ok", caller.columns(message), stored.answered_at)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return Reply("error", error=one_line(f"the stored answer does not fit: {error}"), kept=True)
