"""Single-flight and cache: equal requests of a partition make one call, and an answer is used again while it is kept.

A row that joins a call, or waits for a retry of its own, holds no slot: slots count calls at the service, nothing else.
"""

from __future__ import annotations

import asyncio
from typing import Any

from jobs.bridge.asking import Asked, Asking, Reply, Row
from jobs.bridge.shared_calls import CallSlots, KeptAnswers, SharedCall, hashed
from jobs.callers.caller import CallFailed, Collecting, Throttled
from jobs.lookups.services import Cache

COME_AGAIN = Reply(None)
ASKED_ONCE = Reply.without_answer(
    "unknown", "an equal row asked before, and its answer is not at hand; the call must not be made twice"
)


class SharedAsking(Asking):
    """As Asking; equal requests in flight are joined, answers and misses are kept, errors are not.

    The row that starts a call makes it. When that row leaves at its time limit, the call lives on while another row
    waits for it, and is cancelled when none does. Rows that joined share an error too, and each goes on by its own
    retries: the first one to try again calls, the others join.
    """

    def __init__(self, *arguments: Any, share: int, cache: Cache, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kept = KeptAnswers(cache, self._now_us)
        self._in_flight: dict[Any, SharedCall] = {}
        self.slots = CallSlots(share)
        self._left_behind: set[SharedCall] = set()  # their rows have left, and they go on
        self._loop: asyncio.AbstractEventLoop  # asking for it costs a system call in Python 3.11

    async def open(self, runtime_context: Any) -> None:
        self._loop = asyncio.get_running_loop()
        await super().open(runtime_context)

    async def finish(self) -> None:
        """Wait for the calls that go on although nobody waits for them: what they answer is kept."""
        while self._left_behind:
            await next(iter(self._left_behind)).over()

    def admit(self, row: Row) -> bool:
        """Give the row a kept answer, a call to join, or a call of its own; False when no slot is free for that."""
        asked = row.asked[self._place]
        if asked.key is None or asked.stored is not None or not self._may_call:
            return True
        key = hashed(asked.key)
        if self._find(asked, key):
            return True
        if not self.slots.try_take():
            return False
        asked.call = self._in_flight[key] = SharedCall(asked, key, True)
        return True

    def _find(self, asked: Asked, key: Any) -> bool:
        """A kept answer, or a call to join."""
        assert asked.key is not None
        call = self._in_flight.get(key)
        if call is not None:
            call.waiting += 1
            asked.call = call
            asked.source = "shared"
            return True
        reply = self._kept.get(key)
        if reply is not None and self._kept.may_be_used(key, reply):
            asked.reply = reply
            return True
        if self._ledger is not None and self._ledger.was_asked(asked.key):
            asked.reply = ASKED_ONCE
            return True
        return False

    async def async_invoke(self, value: Row) -> list[Row]:
        asked = value.asked[self._place]
        if asked.key is None or asked.stored is not None or not self._may_call:
            return self._without_a_call(value)
        asked.again = False
        if asked.call is None and asked.reply is None:  # a further attempt
            key = hashed(asked.key)
            if not self._find(asked, key):
                asked.call = self._in_flight[key] = SharedCall(asked, key, False)
        call, source = asked.call, "shared"
        if call is None:
            assert asked.reply is not None
            reply, asked.reply = asked.reply, None
        elif call.owner is asked:
            source = "call"
            reply = await self._make(call)
        else:
            reply = await self._join(call)
        asked.call = None
        if asked.finished is None:
            self._take(asked, reply, source)
            if not asked.again:  # its own call's end is its own: whatever holds up the loop after it
                self._settle(asked, asked.attempts[-1][1] if source == "call" else self._now_us())
        return [value]

    async def _join(self, call: SharedCall) -> Reply:
        try:
            return await call.reply()
        finally:
            call.waiting -= 1
            if call in self._left_behind and not self._lives_on(call):
                self._forget(call)
                assert call.task is not None
                call.task.cancel("no row waits for it any more")

    async def _make(self, call: SharedCall) -> Reply:
        """Make the call and tell all who wait for it. The attempt ends before its slot is given back."""
        asked = call.owner
        assert asked.key is not None
        call.task = asyncio.current_task(self._loop)
        if call.has_slot:
            self._begin_attempt(asked)
        reply = error = None
        now = 0
        try:
            try:
                if call.has_slot or await self._take_slot(call):
                    answer = await self._ask(asked.key)
                    now = self._now_us()
                    if self._ledger is not None:  # before anybody sees it
                        self._ledger.keep(asked.key, answer, now)
                    if asked.finished is None and self._took_at_once(asked, answer, now):
                        reply = Reply("ok", asked.answer, now)
                    else:
                        reply = self._answered(answer, now)
                else:
                    reply = COME_AGAIN
            except (Throttled, CallFailed) as failure:
                reply = self._failed(asked, failure)
        except Exception as raised:  # it ends the run: every row that waits raises it
            error = raised
            raise
        finally:
            if asked.started is not None:
                self._end_attempt(asked, now or self._now_us(), reply)
            self._hand_round(call, reply, error)
        return reply

    def _hand_round(self, call: SharedCall, reply: Reply | None, error: Exception | None) -> None:
        """What came of the call, to all who wait for it and all who will ask the same."""
        if reply is not None and reply.outcome in ("ok", "miss"):
            self._kept.put(call.hashed_key, reply)
        self._forget(call)
        if call.waiting > 1 or self._left_behind:  # else nobody but the row itself has it
            self._left_behind.discard(call)
            call.end(reply, error)
        if call.has_slot:
            call.has_slot = False
            self.slots.give_back()

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
        if not self._lookup.finish_after_timeout or not call.has_slot:
            return False
        assert call.owner.key is not None
        return not isinstance(self._caller, Collecting) or self._caller.has_sent(call.owner.key)

    async def _take_slot(self, call: SharedCall) -> bool:
        """Begin a further attempt when a slot is free; False when the gate closed meanwhile, or the owner's time is up:
        then those who joined try again by themselves, as a call counts in the attempts of a row that waits for it.
        """
        await self.slots.take()
        call.has_slot = True
        if not self._gate.is_open or call.owner.finished is not None:
            return False
        self._begin_attempt(call.owner)
        return True

    def _forget(self, call: SharedCall) -> None:
        if self._in_flight.get(call.hashed_key) is call:
            del self._in_flight[call.hashed_key]
