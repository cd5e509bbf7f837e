"""From a call to an outcome: the AsyncFunction that the operator runs for one lookup, and what it leaves at each row.

Whatever happens to a call becomes a result, so that the operator fails on bugs only; retry goes by `again`, through
the one retry loop, the operator's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from asyncio_core import AsyncFunction
from jobs.callers import Caller, CallFailed, Key, Throttled
from jobs.errors import RowFailed

if TYPE_CHECKING:
    from asyncio_core import Gate
    from jobs.lookups import Lookup
    from jobs.outage import OutageWatch


class Asked:
    """What is known of one row at one lookup. Times are µs since the epoch on the partition's clock."""

    __slots__ = (
        "again", "answer", "answered_at", "attempts", "error", "failures",
        "finished", "key", "paused", "source", "started", "status",
    )  # fmt: skip

    def __init__(self, key: Key | None) -> None:
        self.key = key  # None: a part of it is null
        self.status: str | None = None
        self.source: str | None = None
        self.answer: tuple[Any, ...] | None = None
        self.error: str | None = None
        self.attempts: list[tuple[int, int, bool]] = []  # start, end, throttled
        self.started: int | None = None  # of the attempt that runs now
        self.finished: int | None = None
        self.answered_at: int | None = None
        self.paused = 0.0  # s; before the outcome: what the gate read at the first attempt
        self.failures = 0  # attempts that used up a retry
        self.again = False  # the operator is to try once more


class OnAttempt(Protocol):
    """Told of every attempt when it ends, or when the time limit ends the wait for it."""

    def __call__(self, seconds: float, *, retried: bool, answered: bool, timed_out: bool) -> None: ...


class Row:
    """One input row on its way through the operators: its batch, its place there, what it asked so far."""

    __slots__ = ("asked", "batch", "index")

    def __init__(self, batch: Any, index: int, asked: tuple[Asked, ...]) -> None:
        self.batch = batch
        self.index = index
        self.asked = asked


class Asking(AsyncFunction[Row, Row]):
    """Asks one lookup for each row and leaves the outcome at the row. Raises RowFailed and RunStopped only."""

    def __init__(
        self,
        lookup: Lookup,
        caller: Caller,
        *,
        place: int,
        gate: Gate,
        watch: OutageWatch,
        now_us: Callable[[], int],
        on_attempt: OnAttempt,
    ) -> None:
        self._lookup = lookup
        self._retries = lookup.retry.retries
        self._place = place  # of this lookup in Row.asked
        self._caller = caller
        self._gate = gate
        self._watch = watch
        self._now_us = now_us
        self._on_attempt = on_attempt

    async def open(self, runtime_context: Any) -> None:  # noqa: ARG002  # Flink's signature
        await self._caller.open()

    async def close(self) -> None:
        await self._caller.close()

    def again(self, results: list[Row]) -> bool:
        """The retry predicate."""
        return results[0].asked[self._place].again

    async def async_invoke(self, value: Row) -> list[Row]:
        asked = value.asked[self._place]
        if asked.key is None:
            if self._lookup.on_null_key == "fail":
                raise RowFailed(f"lookup {self._lookup.name}: a key is null, and on_null_key is 'fail'.")
            asked.status = "skipped"
            return [value]
        asked.started = now = self._now_us()
        if not asked.attempts:
            asked.paused = self._gate.closed_seconds
        asked.again = throttled = False
        try:
            answer = await self._caller.call(asked.key)
        except (Throttled, CallFailed) as failure:
            if asked.finished is None:  # else the time limit decided meanwhile, and the cancelled call clung to life
                throttled = isinstance(failure, Throttled)
                self._failed(asked, failure)
        else:
            if asked.finished is None:
                self._watch.succeeded()
                self._answered(asked, answer)
        finally:
            now = self._now_us()
            if asked.started is not None:
                self._end_attempt(asked, now, throttled=throttled)
        if not asked.again and asked.finished is None:
            self._settle(asked, now)
        return [value]

    def _end_attempt(self, asked: Asked, now: int, *, throttled: bool = False, timed_out: bool = False) -> None:
        """Close the running attempt, once: the time limit may have closed it before the cancelled call ends."""
        assert asked.started is not None
        answered = asked.status in ("ok", "miss")
        self._on_attempt(
            (now - asked.started) / 1e6, retried=bool(asked.attempts), answered=answered, timed_out=timed_out
        )
        asked.attempts.append((asked.started, now, throttled))
        asked.started = None

    def _failed(self, asked: Asked, failure: Throttled | CallFailed) -> None:
        asked.error = reason = in_one_line(str(failure))
        if isinstance(failure, Throttled):
            asked.again = True
            self._watch.throttled(reason, failure.seconds)
            return
        asked.status = "error"
        if not failure.passing:
            self._watch.succeeded()
            return
        self._watch.failed(reason, repeated=asked.failures > 0)
        if self._watch.is_down:  # the service is at fault, not this row: it keeps its retries
            asked.again = True
        else:
            asked.failures += 1
            asked.again = asked.failures <= self._retries

    def _answered(self, asked: Asked, answer: Any | None) -> None:
        asked.error = None
        if answer is None:
            asked.status, asked.source = "miss", "call"
            return
        try:
            asked.answer = self._caller.columns(answer)
        except ValueError as error:
            asked.status, asked.error = "error", in_one_line(f"the answer does not fit: {error}")
        else:
            asked.status, asked.source = "ok", "call"

    def timeout(self, value: Row) -> list[Row]:
        """The time limit ran out: the row leaves as fallback or timeout, whatever its call still does."""
        asked = value.asked[self._place]
        now = self._now_us()
        attempts = len(asked.attempts) + (asked.started is not None)
        hangs = asked.started is not None
        if hangs:
            self._end_attempt(asked, now, timed_out=True)
        asked.again = False
        last = f"; before that: {asked.error}" if asked.error else ""
        asked.error = f"no answer within {self._lookup.timeout} s, {attempts} attempts{last}"
        asked.status = "timeout"
        assert asked.key is not None
        try:
            fallback = self._caller.fallback(asked.key)
        except CallFailed as failure:
            asked.error = in_one_line(f"{asked.error}; its fallback: {failure}")
        else:
            if fallback is not None:
                self._answered(asked, fallback)
                asked.status = "fallback" if asked.status == "ok" else asked.status
        self._settle(asked, now)
        if hangs:  # a row that waited for its next attempt has told the watch of each failure already
            self._watch.failed(f"no answer within {self._lookup.timeout} s", repeated=asked.failures > 0)
        return [value]

    def _settle(self, asked: Asked, now: int) -> None:
        asked.finished = now
        asked.paused = self._gate.closed_seconds - asked.paused
        if asked.source is not None:
            asked.answered_at = now
        lookup = self._lookup
        policy = {"miss": lookup.on_miss, "timeout": lookup.on_timeout, "error": lookup.on_error}.get(
            asked.status or ""
        )
        if policy == "fail":
            raise RowFailed(
                f"lookup {lookup.name}: a row ended as {asked.status} ({asked.error}); on_{asked.status} is 'fail'."
            )


def in_one_line(text: str) -> str:
    """What others said, as it can stand in a column and in a sentence: one line, and text that a file can hold."""
    return " ".join(text.encode("utf-8", "replace").decode().split())
