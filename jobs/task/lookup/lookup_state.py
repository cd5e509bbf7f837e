"""A row in the operators and its state at each lookup: plain data."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jobs.declare.lookup import Key
from jobs.schema.columns import timed_out_text
from jobs.task.lookup.replies import Reply
from jobs.task.lookup.shared_calls import SharedCall

Attempt = tuple[int, int, bool]  # start, end, throttled


@dataclass(slots=True, eq=False, repr=False)  # Python 3.11 reads class defaults slowly
class LookupState:
    """The state of a row at a lookup. Times are µs since the epoch on the partition's clock.

    Its LookupFunction alone changes it, by the methods below; directly only where a method would
    cost 2 % of a row.
    """

    key: Key | None  # None: a part of it is null
    status: str | None = None
    source: str | None = None
    answer: tuple[Any, ...] | None = None
    error: str | None = None
    attempts: tuple[Attempt, ...] = ()
    started: int | None = None  # of the running attempt
    finished: int | None = None
    answered_at: int | None = None
    paused: float = 0.0  # s; before the outcome: the gate's total at the first attempt
    failures: int = 0  # attempts that used up a retry
    needs_retry: bool = False  # the operator must retry
    task: asyncio.Task[Any] | None = None  # the task of its call, if equal requests are shared
    call: SharedCall | None = None  # that it waits for, or that others wait for
    is_settled: bool = False  # its outcome was known before any call

    def begin_anew(self, closed_seconds: float) -> None:
        """Begin a retry of the row; closed_seconds is what the gate reads."""
        self.needs_retry = False
        if not self.attempts:
            self.paused = closed_seconds

    def end_attempt(self, now: int, *, throttled: bool) -> None:
        assert self.started is not None
        self.attempts = (*self.attempts, (self.started, now, throttled))
        self.started = None

    def take(self, reply: Reply, source: str) -> None:
        """Set the outcome from a reply that is no error, or mark the row for a retry."""
        if reply.outcome is None:
            self.error, self.needs_retry = reply.error, True
        elif reply.outcome == "unknown":
            self.status, self.error, self.source = reply.outcome, reply.error, None
        else:
            self.status, self.source, self.error = reply.outcome, source, None
            self.answer, self.answered_at = reply.answer, reply.answered_at

    def take_error(self, reply: Reply, *, retries: int | None) -> None:
        """Set the error as the outcome, or mark the row for a retry.

        Args:
            reply: The error.
            retries: The most retries; None where the call must not be repeated. Retries at a
                service that is down do not count.
        """
        self.status, self.error = "error", reply.error
        if reply.passing and not reply.down:
            self.failures += 1
        self.needs_retry = (
            reply.passing and retries is not None and (reply.down or self.failures <= retries)
        )

    def time_out(self, limit: float | None) -> None:
        """Set the outcome of a row that reached its time limit, in s, without an answer."""
        calls = len(self.attempts) + (self.started is not None)
        last = f"; before that: {self.error}" if self.error else ""
        self.needs_retry = False
        self.status, self.error = "timeout", f"{timed_out_text(limit, calls)}{last}"

    def settle(self, now: int, closed_seconds: float) -> None:
        """Close the outcome; closed_seconds is what the gate reads."""
        self.finished = now
        self.paused = closed_seconds - self.paused


class Row(NamedTuple):
    """An input row in the operators: its batch, its number there, its state at each lookup."""

    batch: Any  # InputBatch
    number: int
    asked: tuple[LookupState, ...]


class KnownRows(NamedTuple):
    """Rows of a batch whose outcomes are known at every lookup.

    They go through the operators as a single element.
    """

    batch: Any  # InputBatch
    numbers: npt.NDArray[np.int64]
    asked: tuple[LookupState, ...]  # settled, at every lookup


def rows_of(batch: Any, keys: Sequence[Sequence[Key | None]]) -> Iterator[Row]:
    """Return the rows of a batch, with their keys by lookup; only LookupState is not built in C."""
    asked = zip(*(map(LookupState, of_lookup) for of_lookup in keys), strict=True)
    return map(partial(tuple.__new__, Row), zip(repeat(batch), count(), asked))  # the keys end it
