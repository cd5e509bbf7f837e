"""Single-flight and cache: equal requests of a partition make one call, and an answer is used again while it is kept.

A row that joins a call, or waits for a retry of its own, keeps nobody from calling: the operator's concurrency counts
calls at the service, nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jobs.clients.client import CallFailed, Collecting, Throttled
from jobs.declare.lookup import Key
from jobs.declare.services import Cache
from jobs.task.lookup_function import LookupFunction
from jobs.task.lookup_state import LookupState, Row
from jobs.task.replies import Reply
from jobs.task.shared_calls import AnswerCache, Kept, SharedCall, hashable

ASKED_ONCE = Reply(
    "unknown", error="an equal row asked before, and its answer is not at hand; the call must not be made twice"
)


class SingleFlightLookupFunction(LookupFunction):
    """As LookupFunction; equal requests in flight are joined, answers and misses are kept, errors are not.

    The row that starts a call makes it. When that row leaves at its time limit, the call lives on while another row
    waits for it, and is cancelled when none does. Rows that joined share an error too, and each goes on by its own
    retries: the first one to try again calls, the others join.
    """

    yield_slot: Callable[[], AbstractContextManager[None]]  # that of its operator

    def __init__(self, *arguments: Any, cache: Cache, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kept = AnswerCache[Kept](cache, self._now_us)
        self._asks_once = self._ledger is not None and not self._lookup.idempotent
        self._in_flight: dict[Any, LookupState] = {}  # by key, the row that makes the call
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
        if asked.is_settled:
            self._obey_policy(asked)
            return [value]
        key = asked.key
        assert key is not None
        hashed: Any = key
        try:
            known = self._in_flight.get(hashed) or self._kept.get(hashed)
        except TypeError:
            hashed = hashable(key)
            known = self._in_flight.get(hashed) or self._kept.get(hashed)
        if (known or self._asks_once) and await self._took_from_another(asked, hashed, known):
            return [value]
        self._in_flight[hashed] = asked
        asked.task = asyncio.current_task(self._loop)
        now_us, ask = self._now_us, self._ask  # as in LookupFunction
        asked.started = now_us()
        if asked.needs_retry or self._gate_was_closed:
            self._begin_anew(asked)
        now = 0
        try:
            try:
                answer = await ask(key)
                now = now_us()
                if self._ledger is not None:  # before anybody sees it
                    self._ledger.keep(key, answer, now)
                if asked.finished is None and self._took_at_once(asked, answer, now):
                    if asked.call is None:
                        del self._in_flight[hashed]
                        self._kept.put(hashed, (asked.answer, now), asked.answer)
                        return [value]
                    reply = Reply("ok", asked.answer, now)
                else:
                    reply = self._answered(answer, now)
            except (Throttled, CallFailed) as failure:
                reply = self._failed(asked, failure)
        except BaseException as error:  # it ends the run, and every row that waits raises it; or nobody waits any more
            self._end_call(asked, hashed, now or now_us(), None, error)
            raise
        now = now or now_us()
        self._end_call(asked, hashed, now, reply)
        if asked.finished is None:
            self._take(asked, reply, "call")
            self._settle_or_come_again(asked, now)  # its own call's end is its own, whatever holds up the loop after it
        return [value]

    async def _took_from_another(self, asked: LookupState, hashed: Any, known: LookupState | Kept | None) -> bool:
        """Whether an equal row's call gave what there is to have: one in flight, one whose answer is kept, or the only
        one that may be made. Else the row makes its own.
        """
        if isinstance(known, LookupState):
            reply = await self._joined(asked, known)
        elif known is not None and self._kept.may_be_used(hashed, answered_at=known[1]):
            reply = Reply("miss" if known[0] is None else "ok", *known)
        elif self._asks_once and self._was_asked(asked):
            reply = ASKED_ONCE
        else:
            return False
        if asked.finished is None:
            asked.needs_retry = False
            self._take(asked, reply, "shared")
            self._settle_or_come_again(asked, self._now_us())
        return True

    def _was_asked(self, asked: LookupState) -> bool:
        assert self._ledger is not None
        assert asked.key is not None
        return self._ledger.was_asked(asked.key)

    async def _joined(self, asked: LookupState, owner: LookupState) -> Reply:
        """The reply of the owner's call, once it came."""
        asked.call = call = self._call_of(owner)
        asked.source = "shared"
        call.waiting += 1
        try:
            with self.yield_slot():
                return await call.reply()
        finally:
            call.waiting -= 1
            asked.call = None
            if call in self._left_behind and not self._lives_on(owner):
                self._forget(owner)
                assert owner.task is not None
                owner.task.cancel("no row waits for it any more")

    @staticmethod
    def _call_of(owner: LookupState) -> SharedCall:
        if owner.call is None:
            owner.call = SharedCall()
        return owner.call

    def _end_call(
        self, asked: LookupState, hashed: Any, now: int, reply: Reply | None, error: BaseException | None = None
    ) -> None:
        """What came of the call, to all who wait for it and all who will ask the same."""
        if asked.started is not None:
            self._end_attempt(asked, now, reply)
        if reply is not None and reply.outcome in ("ok", "miss"):
            assert reply.answered_at is not None
            self._kept.put(hashed, (reply.answer, reply.answered_at), reply.answer)
        self._forget(asked)
        if asked.call is not None:
            self._left_behind.discard(asked.call)
            asked.call.end(reply, error)
            asked.call = None

    def doubt(self, keys: Sequence[Key]) -> None:
        """As LookupFunction's; nor do equal rows of this task get them any more."""
        super().doubt(keys)
        for key in keys:
            self._kept.pop(hashable(key), None)

    def survives_timeout(self, value: Row) -> bool:
        """Whether the call that this row makes goes on without it."""
        asked = value.asked[self._place]
        return asked.started is not None and self._lives_on(asked)

    def timeout(self, value: Row) -> list[Row]:
        """As LookupFunction's; a call that the row makes lives on, or is not to be joined any more."""
        asked = value.asked[self._place]
        if asked.started is not None:
            if self._lives_on(asked):
                self._left_behind.add(self._call_of(asked))
            else:
                self._forget(asked)
        return super().timeout(value)

    def _lives_on(self, owner: LookupState) -> bool:
        """Whether a row waits for its call, or nobody need: a request that was sent is billed."""
        if owner.call is not None and owner.call.waiting:
            return True
        if not self._lookup.finish_after_timeout:
            return False
        assert owner.key is not None
        return not isinstance(self._caller, Collecting) or self._caller.has_sent(owner.key)

    def _forget(self, owner: LookupState) -> None:
        hashed = hashable(owner.key)
        if self._in_flight.get(hashed) is owner:
            del self._in_flight[hashed]
