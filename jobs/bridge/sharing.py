"""Single-flight and cache: equal requests of a partition make one call, and an answer is used again while it is kept.

A row that joins a call, or waits for a retry of its own, keeps nobody from calling: the operator's concurrency counts
calls at the service, nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from jobs.bridge.asking import Asked, Asking, Reply, Row
from jobs.bridge.shared_calls import KeptAnswers, SharedCall, hashable
from jobs.callers.caller import CallFailed, Collecting, Throttled
from jobs.lookups.services import Cache

ASKED_ONCE = Reply.without_answer(
    "unknown", "an equal row asked before, and its answer is not at hand; the call must not be made twice"
)


class SharedAsking(Asking):
    """As Asking; equal requests in flight are joined, answers and misses are kept, errors are not.

    The row that starts a call makes it. When that row leaves at its time limit, the call lives on while another row
    waits for it, and is cancelled when none does. Rows that joined share an error too, and each goes on by its own
    retries: the first one to try again calls, the others join.
    """

    step_aside: Callable[[], AbstractContextManager[None]]  # that of its operator

    def __init__(self, *arguments: Any, cache: Cache, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kept = KeptAnswers(cache, self._now_us)
        self._asks_once = self._ledger is not None and not self._lookup.idempotent
        self._in_flight: dict[Any, SharedCall] = {}
        self._left_behind: set[SharedCall] = set()  # their rows have left, and they go on
        self._loop: asyncio.AbstractEventLoop  # asking for it costs a system call in Python 3.11

    async def open(self, runtime_context: Any) -> None:
        self._loop = asyncio.get_running_loop()
        await super().open(runtime_context)

    async def finish(self) -> None:
        """Wait for the calls that go on although nobody waits for them: what they answer is kept."""
        while self._left_behind:
            await next(iter(self._left_behind)).over()

    async def async_invoke(self, value: Row) -> list[Row]:  # noqa: C901 - one place: each call from here costs 1 %
        """Take what another row's call gives, or make the call and tell all who wait for it."""
        asked = value.asked[self._place]
        key = asked.key
        if key is None or asked.stored is not None or not self._may_call:
            return self._without_a_call(value)
        hashed: Any = key
        try:
            known = self._in_flight.get(hashed) or self._kept.get(hashed)
        except TypeError:
            hashed = hashable(key)
            known = self._in_flight.get(hashed) or self._kept.get(hashed)
        if (known or self._asks_once) and await self._took_from_another(asked, hashed, known):
            return [value]
        asked.call = self._in_flight[hashed] = call = SharedCall(asked, hashed, asyncio.current_task(self._loop))
        self._begin_attempt(asked)
        reply: Reply | None = None
        error, now = None, 0
        try:
            try:
                answer = await self._ask(key)
                now = self._now_us()
                if self._ledger is not None:  # before anybody sees it
                    self._ledger.keep(key, answer, now)
                if asked.finished is None and self._took_at_once(asked, answer, now):
                    reply = Reply("ok", asked.answer, now)
                else:
                    reply = self._answered(answer, now)
            except (Throttled, CallFailed) as failure:
                reply = self._failed(asked, failure)
        except Exception as raised:  # it ends the run: every row that waits raises it
            error = raised
            raise
        finally:
            if asked.started is not None:
                self._end_attempt(asked, now or self._now_us(), reply)
            self._hand_round(call, reply, error)
            asked.call = None
        if asked.finished is None:
            self._take(asked, reply, "call")
            if not asked.again:  # its own call's end is its own: whatever holds up the loop after it
                self._settle(asked, asked.attempts[-1][1])
        return [value]

    async def _took_from_another(self, asked: Asked, hashed: Any, known: SharedCall | Reply | None) -> bool:
        """Whether an equal row's call gave what there is to have: one in flight, one whose answer is kept, or the only
        one that may be made. Else the row makes its own.
        """
        if isinstance(known, SharedCall):
            reply = await self._joined(asked, known)
        elif known is not None and self._kept.may_be_used(hashed, known):
            reply = known
        elif self._asks_once and self._was_asked(asked):
            reply = ASKED_ONCE
        else:
            return False
        if asked.finished is None:
            asked.again = False
            self._take(asked, reply, "shared")
            if not asked.again:
                self._settle(asked, self._now_us())
        return True

    def _was_asked(self, asked: Asked) -> bool:
        assert self._ledger is not None
        assert asked.key is not None
        return self._ledger.was_asked(asked.key)

    async def _joined(self, asked: Asked, call: SharedCall) -> Reply:
        """The reply of the call, once it came."""
        asked.call = call
        asked.source = "shared"
        call.waiting += 1
        try:
            with self.step_aside():
                return await call.reply()
        finally:
            call.waiting -= 1
            asked.call = None
            if call in self._left_behind and not self._lives_on(call):
                self._forget(call)
                assert call.task is not None
                call.task.cancel("no row waits for it any more")

    def _hand_round(self, call: SharedCall, reply: Reply | None, error: Exception | None) -> None:
        """What came of the call, to all who wait for it and all who will ask the same."""
        if reply is not None and reply.outcome in ("ok", "miss"):
            self._kept.put(call.hashed_key, reply)
        self._forget(call)
        if call.waiting > 1 or self._left_behind:  # else nobody but the row itself has it
            self._left_behind.discard(call)
            call.end(reply, error)

    def survives_timeout(self, value: Row) -> bool:
        """Whether the call that this row makes goes on without it."""
        call = value.asked[self._place].call
        return call is not None and call.owner is value.asked[self._place] and self._lives_on(call, without=1)

    def timeout(self, value: Row) -> list[Row]:
        """As Asking's; a call that the row makes lives on, or is not to be joined any more."""
        asked = value.asked[self._place]
        call = asked.call
        if call is not None and call.owner is asked:
            call.waiting -= 1
            if self._lives_on(call):
                self._left_behind.add(call)
            else:
                self._forget(call)
        return super().timeout(value)

    def _lives_on(self, call: SharedCall, without: int = 0) -> bool:
        """Whether somebody waits, or nobody need: a request that was sent is billed."""
        if call.waiting > without:
            return True
        if not self._lookup.finish_after_timeout:
            return False
        assert call.owner.key is not None
        return not isinstance(self._caller, Collecting) or self._caller.has_sent(call.owner.key)

    def _forget(self, call: SharedCall) -> None:
        if self._in_flight.get(call.hashed_key) is call:
            del self._in_flight[call.hashed_key]
