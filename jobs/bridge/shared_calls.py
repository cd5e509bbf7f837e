"""What equal requests of one partition share: calls in flight, kept answers, and the slots that bound calls."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.bridge.asking import Asked, Reply
    from jobs.callers.caller import Key
    from jobs.lookups.services import Cache


def hashed(key: Key) -> Any:
    """The key as a dict takes it: a part may be an array or a struct."""
    try:
        hash(key)
    except TypeError:
        return _frozen(key)
    return key


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _frozen(item)) for name, item in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


class KeptAnswers(OrderedDict[Any, "Reply"]):
    """Answers and misses by key, the least recently used leaving first.

    Look with `get`, which nearly always finds nothing and runs in C; then ask `may_be_used`.
    """

    def __init__(self, rule: Cache, now_us: Callable[[], int]) -> None:
        super().__init__()
        self._max_entries = rule.max_entries
        self._ttl_us = None if rule.ttl is None else rule.ttl.total_seconds() * 1e6
        self._now_us = now_us

    def may_be_used(self, key: Any, reply: Reply) -> bool:
        """Whether it is not older than the time to live; it stays for longer then, and is dropped if not."""
        assert reply.answered_at is not None
        if self._ttl_us is not None and self._now_us() - reply.answered_at >= self._ttl_us:
            del self[key]
            return False
        self.move_to_end(key)
        return True

    def put(self, key: Any, reply: Reply) -> None:
        before = len(self)
        self[key] = reply
        if len(self) == before:
            self.move_to_end(key)
        elif before == self._max_entries:
            self.popitem(last=False)


class CallSlots:
    """How many calls may be at the service at once. Whoever waits in `take` comes before whoever tries."""

    def __init__(self, count: int) -> None:
        self.on_free: Callable[[], object] | None = None  # called when a slot is free that nobody waits for
        self.count = self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        return self.count - self._free

    def try_take(self) -> bool:
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Wait for a slot, first come first served. Cancelled, none is taken."""
        if self.try_take():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        if not self._give_to_who_waits():
            self._free += 1
            if self.on_free is not None:
                self.on_free()

    def _give_to_who_waits(self) -> bool:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    def widen(self, count: int) -> None:
        """So many slots from now on, no fewer than before; `on_free` is not called for those that come."""
        for _ in range(count - self.count):
            self._free += not self._give_to_who_waits()
        self.count = count


class SharedCall:
    """One call, and the rows that wait for it, the one that makes it included."""

    # defaults of the class: one of these is made per call, and nobody joins most of them
    task: asyncio.Task[Any] | None = None  # the one that the call runs in
    waiting = 1
    ended = False
    _reply: Reply | None = None
    _error: Exception | None = None
    _turns: list[asyncio.Future[None]] | None = None  # of those who wait

    def __init__(self, owner: Asked, hashed_key: Any, has_slot: bool) -> None:  # noqa: FBT001  # by name costs more
        self.owner = owner  # the row that makes the call, in whose attempts it is counted
        self.hashed_key = hashed_key
        self.has_slot = has_slot

    async def over(self) -> None:
        """Wait until the call ended, in whatever way."""
        if not self.ended:
            turn = asyncio.get_running_loop().create_future()
            if self._turns is None:
                self._turns = []
            self._turns.append(turn)
            await turn

    async def reply(self) -> Reply:
        """Wait until the call ended. Raises the error that ended it, if it is one that ends the run."""
        await self.over()
        if self._error is not None:
            raise self._error
        assert self._reply is not None
        return self._reply

    def end(self, reply: Reply | None, error: Exception | None = None) -> None:
        """Let all who wait know. Without a reply and an error it was cancelled, which ends the run of who waits."""
        self.ended = True
        if reply is None and error is None and self._turns:
            error = RuntimeError("the call was cancelled from elsewhere")
        self._reply, self._error = reply, error
        for turn in self._turns or ():
            if not turn.done():
                turn.set_result(None)
