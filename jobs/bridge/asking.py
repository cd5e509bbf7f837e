"""From a call to an outcome: the AsyncFunction that the operator runs for one lookup, and what it leaves at each row.

Whatever happens to a call becomes a result, so that the operator fails on bugs only; retry goes by `again`, through
the one retry loop, the operator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from asyncio_core import AsyncFunction
from jobs.callers.caller import Caller, CallFailed, Key, Throttled
from jobs.errors import RowFailed

if TYPE_CHECKING:
    from asyncio_core import Gate
    from jobs.bridge.allowance import Allowance
    from jobs.bridge.known import KnownAnswers
    from jobs.bridge.outage import OutageWatch
    from jobs.ledger.at_task import Found, TaskLedger
    from jobs.lookups import Lookup


class Reply:
    """What came of one attempt: an answer, a miss, an error, or nothing yet (outcome None: come again).

    Rows that share a call share its reply: nobody changes one.
    """

    # defaults of the class: one of these is made per row, and nearly all are answers
    error: str | None = None
    throttled: bool = False  # the service said "not now"
    passing: bool = False  # an error that may pass: worth a retry
    down: bool = False  # the service is at fault, not this row: it keeps its retries
    kept: bool = False  # the ledger holds what came back

    def __init__(
        self, outcome: str | None, answer: tuple[Any, ...] | None = None, answered_at: int | None = None
    ) -> None:
        self.outcome = outcome
        self.answer = answer
        self.answered_at = answered_at  # µs since the epoch

    @classmethod
    def without_answer(cls, outcome: str | None, error: str | None, **facts: bool) -> Reply:
        """facts: which of throttled, passing, down and kept are so."""
        reply = cls(outcome)
        reply.error = error
        vars(reply).update(facts)
        return reply


Attempt = tuple[int, int, bool]  # start, end, throttled


class Asked:
    """What is known of one row at one lookup. Times are µs since the epoch on the partition's clock."""

    # defaults of the class, not slots: most rows set few of them, and one of these is made per row
    status: str | None = None
    source: str | None = None
    answer: tuple[Any, ...] | None = None
    error: str | None = None
    attempts: tuple[Attempt, ...] = ()
    started: int | None = None  # of the attempt that runs now
    finished: int | None = None
    answered_at: int | None = None
    paused: float = 0.0  # s; before the outcome: what the gate read at the first attempt
    failures: int = 0  # attempts that used up a retry
    again: bool = False  # the operator is to try once more
    call: Any = None  # a call that it shares with equal requests, while it waits for it
    stored: Found | None = None  # what the ledger knows of the key: then nothing is asked

    def __init__(self, key: Key | None) -> None:
        self.key = key  # None: a part of it is null


class OnAttempt(Protocol):
    """Told of every attempt when it ends, or when the time limit ends the wait for it."""

    def __call__(  # by position: named arguments cost a µs in three rows
        self,
        lasted_us: int,
        retried: bool,  # noqa: FBT001
        answered: bool,  # noqa: FBT001
        timed_out: bool,  # noqa: FBT001
        /,
    ) -> None: ...


class Row(NamedTuple):
    """One input row on its way through the operators: its batch, its place there, what it asks of each lookup."""

    batch: Any
    number: int
    asked: tuple[Asked, ...]


def rows_of(batch: Any, keys: Sequence[Sequence[Key | None]]) -> Iterator[Row]:
    """The rows of a batch, with their keys by lookup: all but Asked in C."""
    asked = zip(*(map(Asked, of_lookup) for of_lookup in keys), strict=True)
    return map(partial(tuple.__new__, Row), zip(repeat(batch), count(), asked))  # the last one ends it


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
        ledger: TaskLedger | None = None,
        known: KnownAnswers | None = None,
        allowance: Allowance | None = None,
        may_call: bool = True,
    ) -> None:
        """may_call: without it a key that the ledger does not know leaves as not_asked."""
        self._lookup = lookup
        self._retries = lookup.retry.retries
        policies = (("miss", lookup.on_miss), ("timeout", lookup.on_timeout), ("error", lookup.on_error))
        self._fails_on = frozenset(status for status, policy in policies if policy == "fail")
        self._place = place  # of this lookup in Row.asked
        self._caller = caller
        self._gate = gate
        self._gate_is_closed = False
        self._stood_still = 0.0  # s that the gate was closed, up to its last opening
        self._watch = watch
        self._now_us = now_us
        self._on_attempt = on_attempt
        self._ledger = ledger
        self._allowance = allowance
        self._may_call = may_call
        self._known = known
        marks = ledger is not None and not lookup.idempotent
        self._ask = self._within_limits if marks or allowance is not None else caller.call  # one attempt at the service

    async def open(self, runtime_context: Any) -> None:  # noqa: ARG002  # Flink's signature
        self._gate.subscribe(self)
        self._gate_is_closed, self._stood_still = not self._gate.is_open, self._gate.closed_seconds
        await self._caller.open()

    async def close(self) -> None:
        self._gate.unsubscribe(self)
        await self._caller.close()

    # -- the gate's listener: asking it twice a row would cost more than all the rest of the clock
    def gate_closed(self) -> None:
        self._gate_is_closed = True

    def gate_opened(self, closed_seconds: float) -> None:
        self._gate_is_closed, self._stood_still = False, closed_seconds

    def _closed_seconds(self) -> float:
        return self._gate.closed_seconds if self._gate_is_closed else self._stood_still

    def again(self, results: list[Row]) -> bool:
        """The retry predicate."""
        return results[0].asked[self._place].again

    async def async_invoke(self, value: Row) -> list[Row]:
        asked = value.asked[self._place]
        if asked.key is None or asked.stored is not None or not self._may_call:
            return self._without_a_call(value)
        self._begin_attempt(asked)
        reply, now = None, 0
        try:
            answer = await self._ask(asked.key)
            now = self._now_us()
            if self._ledger is not None:  # before anybody sees it
                self._ledger.keep(asked.key, answer, now)
            if asked.finished is None:  # else the time limit decided meanwhile, and the cancelled call clung to life
                if self._took_at_once(asked, answer, now):
                    return [value]
                reply = self._answered(answer, now)
        except (Throttled, CallFailed) as failure:
            if asked.finished is None:
                reply = self._failed(asked, failure)
        finally:
            if asked.started is not None:
                now = now or self._now_us()
                self._end_attempt(asked, now, reply)
        if reply is not None:
            self._take(asked, reply, "call")
            if not asked.again:
                self._settle(asked, now)
        return [value]

    def _took_at_once(self, asked: Asked, answer: Any, now: int) -> bool:
        """All that follows below for an answer that fits: what happens to nearly every row, in one step instead of six.
        False, and nothing done, when it does not fit, or is a miss, or the watch is to be told.
        """
        if answer is None or self._watch.troubled:
            return False
        try:
            columns = self._caller.columns(answer)
        except ValueError:
            return False
        assert asked.started is not None
        started, before = asked.started, asked.attempts
        self._on_attempt(now - started, bool(before), True, False)
        asked.attempts = (*before, (started, now, False))
        asked.started = None
        asked.status, asked.source, asked.error = "ok", "call", None
        asked.answer, asked.answered_at, asked.finished = columns, now, now
        asked.paused = self._closed_seconds() - asked.paused
        return True

    def _without_a_call(self, row: Row) -> list[Row]:
        asked = row.asked[self._place]
        if asked.key is None:
            if self._lookup.on_null_key == "fail":
                raise RowFailed(f"lookup {self._lookup.name}: a key is null, and on_null_key is 'fail'.")
            asked.status = "skipped"
        elif asked.stored is not None:
            assert self._known is not None
            self._known.give(asked)
            self._obey_policy(asked)
        else:
            asked.status = "not_asked"
        return [row]

    async def _within_limits(self, key: Key) -> Any | None:
        """Within what may be spent, and marked before where it must not be asked twice."""
        if self._allowance is not None:
            await self._allowance.spend(self._place)
        try:
            if self._ledger is not None and not self._lookup.idempotent:
                await self._ledger.mark(key)
            return await self._caller.call(key)
        finally:
            if self._allowance is not None:
                self._allowance.ended()

    def _begin_attempt(self, asked: Asked) -> None:
        asked.again = False
        asked.started = self._now_us()
        if not asked.attempts:
            asked.paused = self._closed_seconds()

    def _end_attempt(self, asked: Asked, now: int, reply: Reply | None, *, timed_out: bool = False) -> None:
        """Close the running attempt, once: the time limit may have closed it before the cancelled call ends."""
        assert asked.started is not None
        started, before = asked.started, asked.attempts
        answered = reply is not None and reply.answered_at is not None
        self._on_attempt(now - started, bool(before), answered, timed_out)
        asked.attempts = (*before, (started, now, reply is not None and (reply.throttled or reply.down)))
        asked.started = None

    def _failed(self, asked: Asked, failure: Throttled | CallFailed) -> Reply:
        """Tell the watch of a call of this row that gave no answer."""
        reason = in_one_line(str(failure))
        if isinstance(failure, Throttled):
            if self._ledger is not None and asked.key is not None:
                self._ledger.unmark(asked.key)
            self._watch.throttled(reason, failure.seconds)
            return Reply.without_answer(None, reason, throttled=True)
        if not failure.passing:
            self._watch.succeeded()
            return Reply.without_answer("error", reason)
        self._watch.failed(reason, repeated=asked.failures > 0)
        return Reply.without_answer("error", reason, passing=True, down=self._watch.is_down)

    def _answered(self, answer: Any | None, now: int) -> Reply:
        """Tell the watch of a call that was answered, and read the answer."""
        if self._watch.troubled:
            self._watch.succeeded()
        return self._read(answer, now)

    def _read(self, answer: Any | None, now: int) -> Reply:
        if answer is None:
            return Reply("miss", None, now)
        try:
            return Reply("ok", self._caller.columns(answer), now)
        except ValueError as error:
            return Reply.without_answer("error", in_one_line(f"the answer does not fit: {error}"), kept=True)

    def _take(self, asked: Asked, reply: Reply, source: str) -> None:
        """What the reply means to this row: its outcome, or that it comes again."""
        if reply.outcome == "error":
            self._take_error(asked, reply, source)
        elif reply.outcome is None:
            asked.error, asked.again = reply.error, True
        elif reply.outcome == "unknown":
            asked.status, asked.error, asked.source = reply.outcome, reply.error, None
        else:
            asked.status, asked.source, asked.error = reply.outcome, source, None
            asked.answer, asked.answered_at = reply.answer, reply.answered_at

    def _take_error(self, asked: Asked, reply: Reply, source: str) -> None:
        asked.status, asked.error = "error", reply.error
        if reply.passing and not reply.down:
            asked.failures += 1
        asked.again = reply.passing and self._lookup.idempotent and (reply.down or asked.failures <= self._retries)
        if self._ledger is not None and source == "call" and not asked.again and not reply.kept:
            assert asked.key is not None
            self._ledger.keep_error(asked.key, reply.error or "", final=not reply.passing)

    def timeout(self, value: Row) -> list[Row]:
        """The time limit ran out: the row leaves as fallback or timeout, whatever its call still does."""
        asked = value.asked[self._place]
        now = self._now_us()
        attempts = len(asked.attempts) + (asked.started is not None)
        hangs = asked.started is not None
        if hangs:
            self._end_attempt(asked, now, None, timed_out=True)
        asked.again = False
        last = f"; before that: {asked.error}" if asked.error else ""
        calls = f"{attempts} attempts" if attempts else "waiting for an equal request"
        asked.error = f"no answer within {self._lookup.timeout} s, {calls}{last}"
        asked.status = "timeout"
        assert asked.key is not None
        try:
            fallback = self._caller.fallback(asked.key)
        except CallFailed as failure:
            asked.error = in_one_line(f"{asked.error}; its fallback: {failure}")
        else:
            if fallback is not None:
                self._take(asked, self._read(fallback, now), "call")
                asked.status = "fallback" if asked.status == "ok" else asked.status
        self._settle(asked, now)
        if hangs:  # a row that waited for its next attempt has told the watch of each failure already
            self._watch.failed(f"no answer within {self._lookup.timeout} s", repeated=asked.failures > 0)
        return [value]

    def _settle(self, asked: Asked, now: int) -> None:
        asked.finished = now
        asked.paused = self._closed_seconds() - asked.paused
        if asked.status != "ok":
            self._obey_policy(asked)

    def _obey_policy(self, asked: Asked) -> None:
        if asked.status in self._fails_on:
            raise RowFailed(
                f"lookup {self._lookup.name}: a row ended as {asked.status} ({asked.error}); "
                f"on_{asked.status} is 'fail'."
            )


def in_one_line(text: str) -> str:
    """What others said, as it can stand in a column and in a sentence: one line, and text that a file can hold."""
    return " ".join(text.encode("utf-8", "replace").decode().split())
