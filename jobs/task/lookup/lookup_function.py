"""The AsyncFunction that the operator runs for a lookup; it turns calls into outcomes of rows.

Every failure of a call becomes a result, so that the operator fails only on bugs. Retries use the
operator's retry loop, by RetryLater.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from asyncio_core import AsyncFunction, AsyncWaitOperator, Gate
from jobs.clients.client import Ask, CallFailed, Client, Throttled
from jobs.declare.lookup import Key, Lookup
from jobs.errors import AccessRefused, RowFailed
from jobs.schema.columns import NOT_REPEATED
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.call_table import CallTable
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.hedging import Hedging
from jobs.task.lookup.lookup_state import LookupState, Row
from jobs.task.lookup.replies import Replies, Reply
from jobs.task.lookup.shared_calls import Kept, hashable
from jobs.task.lookup.task_ledger import TaskLedger
from jobs.wording import one_line

ASKED_ONCE = Reply(
    "unknown", error=f"an equal row asked before, and its answer is not at hand; {NOT_REPEATED}"
)


class RetryLater(Exception):  # noqa: N818  # reads as what is wanted
    """Tells the operator that the row has no outcome yet and needs a retry."""


def needs_retry(error: Exception) -> bool:
    """Return whether to retry after this error. A predicate on results would run for every row."""
    return isinstance(error, RetryLater)


class LookupFunction(AsyncFunction[Row, Row]):
    """Calls a lookup for each row and sets the row's outcome.

    With a cache, equal rows share calls through its CallTable. Every row makes a call without a
    cache, and where no two rows have the same key (distinct). Calls raise only RetryLater,
    RowFailed and RunStopped.

    Args:
        lookup: The declaration.
        caller: Reads answers, and makes fallbacks.
        ask: Makes an attempt, within the task's limits.
        place: The lookup's number in Row.asked.
        gate: No attempt starts while it is closed.
        watch: Receives each attempt's result.
        now_us: The task's clock.
        attempts: Counts the attempts.
        hidden: Whether keys are personal; errors may repeat them.
        ledger: Stores the answers.
        distinct: Whether no two rows have the same key.
        is_called: Whether any row may call, so that the client is opened.
        hedging: Makes the second calls within `ask`.
    """

    _operator: AsyncWaitOperator
    _loop: asyncio.AbstractEventLoop  # cached: get_running_loop() costs a system call

    def __init__(
        self,
        lookup: Lookup,
        caller: Client,
        ask: Ask,
        *,
        place: int,
        gate: Gate,
        watch: CircuitBreaker,
        now_us: Callable[[], int],
        attempts: AttemptCounts,
        hidden: bool = False,
        ledger: TaskLedger | None = None,
        distinct: bool = False,
        is_called: bool = True,
        hedging: Hedging | None = None,
    ) -> None:
        self._lookup = lookup
        self._retries = lookup.retry.retries if lookup.repeatable else None
        self._fails_on = fails_on(lookup)
        self._place = place
        self._caller, self._ask = caller, ask
        self._gate = gate
        self._gate_is_open, self._closed_seconds = True, 0.0  # the gate's, which costs more to ask
        self._watch = watch
        self._now_us = now_us
        self._attempts = attempts
        self._replies = Replies(caller, watch, idempotent=lookup.repeatable, hidden=hidden)
        self._ledger = ledger
        # of calls that must not be repeated
        self._was_asked = None if ledger is None or lookup.repeatable else ledger.was_asked
        self._is_called = is_called
        self._hedging = hedging
        # With distinct keys the table finds no equal call, and costs a fifth of a row's CPU. It is
        # needed nevertheless to end calls that outlive their rows, and to refuse a second call that
        # must not be made.
        needs_table = not distinct or lookup.finish_after_timeout or not lookup.idempotent
        shared = lookup.cache if needs_table else None
        self._table = None if shared is None else CallTable(lookup, caller, shared, now_us)

    async def open(self, runtime_context: Callable[[], AsyncWaitOperator]) -> None:
        """Open the client.

        Args:
            runtime_context: Returns the operator that runs this function.
        """
        self._loop = asyncio.get_running_loop()
        self._operator = runtime_context()
        if self._hedging is not None:
            self._hedging.open(self._operator)
        self._gate.subscribe(self)
        self._gate_is_open, self._closed_seconds = self._gate.is_open, self._gate.closed_seconds
        if self._is_called:
            await self._caller.open()

    async def finish(self) -> None:
        """Wait for calls without a waiting row, to store their answers."""
        if self._table is not None:
            await self._table.finish()

    async def close(self) -> None:
        self._gate.unsubscribe(self)
        if self._hedging is not None:
            await self._hedging.close()
        await self._caller.close()

    # -- the gate's listener
    def gate_closed(self) -> None:
        self._gate_is_open = False

    def gate_opened(self, closed_seconds: float) -> None:
        self._gate_is_open, self._closed_seconds = True, closed_seconds

    async def async_invoke(self, value: Row) -> list[Row]:  # noqa: C901, PLR0912, PLR0915 - each call costs 1 %
        """Use another row's call, or make the call and notify all waiting rows."""
        asked = value.asked[self._place]
        if asked.is_settled:
            self._obey_policy(asked)
            return [value]
        key = asked.key
        assert key is not None
        hashed: Any = key
        table = self._table
        if table is not None:
            try:
                known = table.in_flight.get(hashed) or table.kept.get(hashed)
            except TypeError:
                hashed = hashable(key)
                known = table.in_flight.get(hashed) or table.kept.get(hashed)
            if (known or self._was_asked is not None) and await self._took_from_another(
                table, asked, key, hashed, known
            ):
                return [value]
            table.in_flight[hashed] = asked
            asked.task = asyncio.current_task(self._loop)
        now_us, ask = self._now_us, self._ask  # locals, because method lookup is slower
        asked.started = now_us()
        # a call in the same turn of the loop may have closed the gate just now
        closed = self._closed_seconds if self._gate_is_open else self._gate.closed_seconds
        if asked.needs_retry:
            asked.begin_anew(closed)
        elif closed:
            asked.paused = closed
        reply, now = None, 0
        try:
            try:
                answer = await ask(key)
                now = now_us()
                if self._ledger is not None:  # before the row leaves
                    self._ledger.keep(key, answer, now)
                if asked.finished is None and self._took_at_once(asked, answer, now):
                    if table is None:
                        return [value]
                    if asked.call is None:
                        del table.in_flight[hashed]
                        table.kept.put(hashed, (asked.answer, now), asked.answer)
                        return [value]
                    reply = Reply("ok", asked.answer, now)
                elif asked.finished is None or table is not None:  # else its call ended late
                    reply = self._replies.answered(answer, now)
            except (Throttled, CallFailed) as failure:
                if asked.finished is None or table is not None:
                    reply = self._failed(asked, failure)
            except AccessRefused as refused:
                raise self._replies.refused(refused) from None
        except BaseException as error:  # ends the run; waiting rows raise it
            self._end_call(asked, hashed, now or now_us(), None, error)
            raise
        now = now or now_us()
        self._end_call(asked, hashed, now, reply)
        if asked.finished is None:
            assert reply is not None
            self._take(asked, reply, "call")
            self._settle_or_retry(asked, now)  # even if the loop was delayed since
        return [value]

    def _took_at_once(self, asked: LookupState, answer: Any, now: int) -> bool:
        """Apply the common case, an answer that fits, in one step instead of six.

        Returns False, without effect, for an answer that does not fit, a miss, or an answer that
        the breaker must record.
        """
        if answer is None or self._watch.counts_answers:
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
        closed = self._closed_seconds if self._gate_is_open else self._closed_until(now)
        if closed:
            asked.paused = closed - asked.paused
        return True

    async def _took_from_another(
        self,
        table: CallTable,
        asked: LookupState,
        key: Key,
        hashed: Any,
        known: LookupState | Kept | None,
    ) -> bool:
        """Return whether an equal row's call settled this row; otherwise the row calls.

        That call is in flight, cached, or the only call that may be made.
        """
        if isinstance(known, LookupState):
            reply = await table.join(asked, known, self._operator.yield_slot())
        elif known is not None and table.kept.may_be_used(hashed, answered_at=known[1]):
            reply = Reply("miss" if known[0] is None else "ok", *known)
        elif self._was_asked is not None and self._was_asked(key):
            reply = ASKED_ONCE
        else:
            return False
        if asked.finished is None:
            asked.needs_retry = False
            self._take(asked, reply, "shared")
            self._settle_or_retry(asked, self._now_us())
        return True

    def doubt(self, keys: Sequence[Key]) -> None:
        """Stop serving the answers of these keys, which may be another key's."""
        if self._ledger is not None:
            self._ledger.expire(keys)
        if self._table is not None:
            self._table.drop(keys)

    @property
    def calls_of_a_row(self) -> int:
        """The most calls in flight that a row can have."""
        return 1 if self._hedging is None else 2

    def _end_call(
        self,
        asked: LookupState,
        hashed: Any,
        now: int,
        reply: Reply | None,
        error: BaseException | None = None,
    ) -> None:
        """Close the running attempt and notify all rows that wait for the call.

        A timeout may have closed the attempt before.
        """
        if asked.started is not None:
            self._end_attempt(asked, now, reply)
        if self._table is not None:
            self._table.end(asked, hashed, reply, error)

    def _end_attempt(
        self, asked: LookupState, now: int, reply: Reply | None, *, timed_out: bool = False
    ) -> None:
        assert asked.started is not None
        counts = self._attempts
        if reply is not None and reply.answered_at is not None:
            counts.answered_us.append(now - asked.started)
        else:
            counts.unanswered += 1
        counts.retries += bool(asked.attempts)
        counts.timeouts += timed_out
        asked.end_attempt(now, throttled=reply is not None and (reply.throttled or reply.down))

    def _failed(self, asked: LookupState, failure: Throttled | CallFailed) -> Reply:
        has_acted = isinstance(failure, CallFailed) and failure.may_have_acted
        if not has_acted and self._ledger is not None:
            assert asked.key is not None
            self._ledger.settle([asked.key])  # the service did nothing
        return self._replies.failed(failure, repeated=asked.failures > 0)

    def _take(self, asked: LookupState, reply: Reply, source: str) -> None:
        """Apply the reply to this row: set its outcome, or retry."""
        if reply.outcome != "error":
            asked.take(reply, source)
            return
        asked.take_error(reply, retries=self._retries)
        if (
            self._ledger is not None
            and source == "call"
            and not asked.needs_retry
            and not reply.kept
        ):
            assert asked.key is not None
            self._ledger.keep_error(
                asked.key, reply.error or "", final=not (reply.passing or reply.unclear)
            )

    def survives_timeout(self, value: Row) -> bool:
        """Return whether this row's call continues without it."""
        asked = value.asked[self._place]
        return self._table is not None and asked.started is not None and self._table.lives_on(asked)

    def timeout(self, value: Row) -> list[Row]:
        """Let the row leave as fallback or timeout, even if its call still runs."""
        asked = value.asked[self._place]
        now = self._now_us()
        hangs = asked.started is not None
        if hangs and self._table is not None:
            self._table.leave(asked)
        asked.time_out(self._lookup.timeout)
        if hangs:
            self._end_attempt(asked, now, None, timed_out=True)
        assert asked.key is not None
        try:
            fallback = self._caller.fallback(asked.key)
        except CallFailed as failure:
            asked.error = one_line(f"{asked.error}; its fallback: {failure}")
        else:
            if fallback is not None:
                self._take(asked, self._replies.read(fallback, now), "call")
                asked.status = "fallback" if asked.status == "ok" else asked.status
        self._settle(asked, now)
        if hangs:  # a row between attempts has already reported each failure
            self._watch.failed(
                f"no answer within {self._lookup.timeout} s", repeated=asked.failures > 0
            )
        return [value]

    def _settle_or_retry(self, asked: LookupState, now: int) -> None:
        if asked.needs_retry:
            raise RetryLater
        self._settle(asked, now)

    def _closed_until(self, now: int) -> float:
        """Return for how many seconds the gate was closed until `now`, a moment ago.

        Storing and reading an answer takes time, in which a closed gate stays closed.
        """
        if self._gate_is_open:
            return self._closed_seconds
        closed = self._gate.closed_seconds  # read before the clock: the process may pause between
        return max(self._closed_seconds, closed - (self._now_us() - now) / 1e6)

    def _settle(self, asked: LookupState, now: int) -> None:
        asked.settle(now, self._closed_until(now))
        if asked.status != "ok":
            self._obey_policy(asked)

    def _obey_policy(self, asked: LookupState) -> None:
        if asked.status not in self._fails_on:
            return
        if asked.status == "skipped":
            raise RowFailed(null_key_text(self._lookup.name))
        reason = f" ({self._replies.shown(asked.error)})" if asked.error else ""
        policy = "error" if asked.status == "unknown" else asked.status
        raise RowFailed(
            f"lookup {self._lookup.name}: a row ended as {asked.status}{reason}; "
            f"on_{policy} is 'fail'."
        )


def null_key_text(lookup: str) -> str:
    return f"lookup {lookup}: a key is null, and on_null_key is 'fail'."


def fails_on(lookup: Lookup) -> frozenset[str]:
    """Return the outcomes of a row that fail the run."""
    policies = (
        ("miss", lookup.on_miss), ("timeout", lookup.on_timeout), ("error", lookup.on_error),
        ("unknown", lookup.on_error), ("skipped", lookup.on_null_key),
    )  # fmt: skip
    return frozenset(status for status, policy in policies if policy == "fail")
