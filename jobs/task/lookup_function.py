"""From a call to an outcome: the AsyncFunction that the operator runs for one lookup, and what it leaves at each row.

Whatever happens to a call becomes a result, so that the operator fails on bugs only; a retry goes through the one retry
loop, the operator's, by RetryLater.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from asyncio_core import AsyncFunction
from jobs.clients.client import CallFailed, Client, Enclosing, Redirected, Throttled
from jobs.declare.lookup import Key
from jobs.errors import RowFailed
from jobs.task.lookup_state import LookupState, Row
from jobs.task.replies import Reply
from jobs.wording import one_line

if TYPE_CHECKING:
    from asyncio_core import Gate
    from jobs.declare.lookup import Lookup
    from jobs.task.call_budget import CallBudget
    from jobs.task.circuit_breaker import CircuitBreaker
    from jobs.task.progress import AttemptCounts
    from jobs.task.service_lease import ServiceLease
    from jobs.task.task_ledger import TaskLedger


class RetryLater(Exception):  # noqa: N818  # reads as what is wanted
    """For the operator: the row has no outcome yet, and is to be tried once more."""


def needs_retry(error: Exception) -> bool:
    """The retry predicate; one of results would be asked for every row."""
    return isinstance(error, RetryLater)


class LookupFunction(AsyncFunction[Row, Row]):
    """Asks one lookup for each row and leaves the outcome at it. Raises RetryLater, RowFailed and RunStopped only."""

    def __init__(
        self,
        lookup: Lookup,
        caller: Client,
        *,
        place: int,
        gate: Gate,
        watch: CircuitBreaker,
        now_us: Callable[[], int],
        attempts: AttemptCounts,
        ledger: TaskLedger | None = None,
        allowance: CallBudget | None = None,
        lease: ServiceLease | None = None,
    ) -> None:
        self._lookup = lookup
        self._retries = lookup.retry.retries
        self._fails_on = fails_on(lookup)
        self._place = place  # of this lookup in Row.asked
        self._caller = caller
        self._gate = gate
        self._gate_was_closed = False  # ever: before that nothing has to be asked
        self._watch = watch
        self._now_us = now_us
        self._attempts = attempts
        self._ledger = ledger
        self._allowance = allowance
        marks = ledger is not None and not lookup.idempotent
        requests_wait = lease is not None and isinstance(caller, Enclosing) and caller.each_within(lease.call)
        self._lease = None if requests_wait else lease
        limited = marks or allowance is not None or self._lease is not None
        self._ask = self._within_limits if limited else caller.call  # one attempt at the service

    async def open(self, runtime_context: Any) -> None:  # noqa: ARG002  # Flink's signature
        self._gate.subscribe(self)
        self._gate_was_closed = not self._gate.is_open or self._gate.closed_seconds > 0
        await self._caller.open()

    async def close(self) -> None:
        self._gate.unsubscribe(self)
        await self._caller.close()

    # -- the gate's listener: a gate that never closed need not be asked, twice a row
    def gate_closed(self) -> None:
        self._gate_was_closed = True

    def gate_opened(self, closed_seconds: float) -> None:
        pass

    async def async_invoke(self, value: Row) -> list[Row]:
        asked = value.asked[self._place]
        if asked.is_settled:
            self._obey_policy(asked)
            return [value]
        assert asked.key is not None
        now_us, ask = self._now_us, self._ask  # called as what they are: as methods they are looked up the slow way
        asked.started = now_us()
        if asked.needs_retry or self._gate_was_closed:
            self._begin_anew(asked)
        reply, now = None, 0
        try:
            answer = await ask(asked.key)
            now = now_us()
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
                now = now or now_us()
                self._end_attempt(asked, now, reply)
        if reply is not None:
            self._take(asked, reply, "call")
            self._settle_or_come_again(asked, now)
        return [value]

    def _took_at_once(self, asked: LookupState, answer: Any, now: int) -> bool:
        """All that follows below for an answer that fits: what happens to nearly every row, in one step instead of six.
        False, and nothing done, when it does not fit, or is a miss, or the watch is to be told.
        """
        if answer is None or self._watch.is_degraded:
            return False
        try:
            columns = self._caller.columns(answer)
        except ValueError:
            return False
        assert asked.started is not None
        started, before = asked.started, asked.attempts
        self._attempts.answered_us.append(now - started)
        asked.attempts = (*before, (started, now, False))
        asked.started = None
        asked.status, asked.source, asked.error = "ok", "call", None
        asked.answer, asked.answered_at, asked.finished = columns, now, now
        if before:
            self._attempts.retries += 1
        if self._gate_was_closed:
            asked.paused = self._gate.closed_seconds - asked.paused
        return True

    def doubt(self, keys: Sequence[Key]) -> None:
        """The answers that these keys got may be another key's: the ledger is not to give them to anybody."""
        if self._ledger is not None:
            self._ledger.expire(keys)

    async def _within_limits(self, key: Key) -> Any | None:
        """Within what the run holds of the service, and what may be spent; marked before, if it is to be asked once."""
        if self._lease is None:
            return await self._within_budget(key)
        async with self._lease.call():
            return await self._within_budget(key)

    async def _within_budget(self, key: Key) -> Any | None:
        if self._allowance is not None:
            await self._allowance.spend(self._place)
        try:
            if self._ledger is not None and not self._lookup.idempotent:
                await self._ledger.mark(key)
            return await self._caller.call(key)
        finally:
            if self._allowance is not None:
                self._allowance.ended()

    def _begin_anew(self, asked: LookupState) -> None:
        """What an attempt begins with when it is not the first one, or the gate was closed before."""
        asked.needs_retry = False
        if not asked.attempts:
            asked.paused = self._gate.closed_seconds

    def _end_attempt(self, asked: LookupState, now: int, reply: Reply | None, *, timed_out: bool = False) -> None:
        """Close the running attempt, once: the time limit may have closed it before the cancelled call ends."""
        assert asked.started is not None
        started, before = asked.started, asked.attempts
        counts = self._attempts
        if reply is not None and reply.answered_at is not None:
            counts.answered_us.append(now - started)
        else:
            counts.unanswered += 1
        counts.retries += bool(before)
        counts.timeouts += timed_out
        asked.attempts = (*before, (started, now, reply is not None and (reply.throttled or reply.down)))
        asked.started = None

    def _failed(self, asked: LookupState, failure: Throttled | CallFailed) -> Reply:
        """Tell the watch of a call of this row that gave no answer."""
        reason = one_line(str(failure))
        if isinstance(failure, Throttled):
            if self._ledger is not None and asked.key is not None:
                self._ledger.unmark(asked.key)
            self._watch.throttled(reason, failure.seconds)
            return Reply(None, error=reason, throttled=True)
        if isinstance(failure, Redirected):
            self._watch.redirected(reason)
            return Reply("error", error=reason, kept=self._lookup.idempotent)  # nothing of this key is to be stored
        if not failure.passing:
            self._watch.succeeded()
            return Reply("error", error=reason)
        self._watch.failed(reason, repeated=asked.failures > 0)
        return Reply("error", error=reason, passing=True, down=self._watch.is_down)

    def _answered(self, answer: Any | None, now: int) -> Reply:
        """Tell the watch of a call that was answered, and read the answer."""
        if self._watch.is_degraded:
            self._watch.succeeded()
        return self._read(answer, now)

    def _read(self, answer: Any | None, now: int) -> Reply:
        if answer is None:
            return Reply("miss", None, now)
        try:
            return Reply("ok", self._caller.columns(answer), now)
        except ValueError as error:
            return Reply("error", error=one_line(f"the answer does not fit: {error}"), kept=True)

    def _take(self, asked: LookupState, reply: Reply, source: str) -> None:
        """What the reply means to this row: its outcome, or that it comes again."""
        if reply.outcome == "error":
            self._take_error(asked, reply, source)
        elif reply.outcome is None:
            asked.error, asked.needs_retry = reply.error, True
        elif reply.outcome == "unknown":
            asked.status, asked.error, asked.source = reply.outcome, reply.error, None
        else:
            asked.status, asked.source, asked.error = reply.outcome, source, None
            asked.answer, asked.answered_at = reply.answer, reply.answered_at

    def _take_error(self, asked: LookupState, reply: Reply, source: str) -> None:
        asked.status, asked.error = "error", reply.error
        if reply.passing and not reply.down:
            asked.failures += 1
        asked.needs_retry = (
            reply.passing and self._lookup.idempotent and (reply.down or asked.failures <= self._retries)
        )
        if self._ledger is not None and source == "call" and not asked.needs_retry and not reply.kept:
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
        asked.needs_retry = False
        last = f"; before that: {asked.error}" if asked.error else ""
        calls = f"{attempts} attempts" if attempts else "waiting for an equal request"
        asked.error = f"no answer within {self._lookup.timeout} s, {calls}{last}"
        asked.status = "timeout"
        assert asked.key is not None
        try:
            fallback = self._caller.fallback(asked.key)
        except CallFailed as failure:
            asked.error = one_line(f"{asked.error}; its fallback: {failure}")
        else:
            if fallback is not None:
                self._take(asked, self._read(fallback, now), "call")
                asked.status = "fallback" if asked.status == "ok" else asked.status
        self._settle(asked, now)
        if hangs:  # a row that waited for its next attempt has told the watch of each failure already
            self._watch.failed(f"no answer within {self._lookup.timeout} s", repeated=asked.failures > 0)
        return [value]

    def _settle_or_come_again(self, asked: LookupState, now: int) -> None:
        if asked.needs_retry:
            raise RetryLater
        self._settle(asked, now)

    def _settle(self, asked: LookupState, now: int) -> None:
        asked.finished = now
        asked.paused = self._gate.closed_seconds - asked.paused
        if asked.status != "ok":
            self._obey_policy(asked)

    def _obey_policy(self, asked: LookupState) -> None:
        if asked.status not in self._fails_on:
            return
        if asked.status == "skipped":
            raise RowFailed(f"lookup {self._lookup.name}: a key is null, and on_null_key is 'fail'.")
        raise RowFailed(
            f"lookup {self._lookup.name}: a row ended as {asked.status} ({asked.error}); on_{asked.status} is 'fail'."
        )


def fails_on(lookup: Lookup) -> frozenset[str]:
    """The outcomes of a row that fail the run."""
    policies = (
        ("miss", lookup.on_miss), ("timeout", lookup.on_timeout), ("error", lookup.on_error),
        ("skipped", lookup.on_null_key),
    )  # fmt: skip
    return frozenset(status for status, policy in policies if policy == "fail")
