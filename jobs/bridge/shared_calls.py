"""What equal requests of one partition share: calls in flight, and kept answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.bridge.asking import Asked, Reply
    from jobs.lookups.services import Cache


def hashable(value: Any) -> Any:
    """A key as a dict takes it, where a part of it is an array or a struct."""
    if isinstance(value, dict):
        return tuple((name, hashable(item)) for name, item in value.items())
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value


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


class SharedCall:
    """One call, and the rows that wait for it, the one that makes it included."""

    # defaults of the class: one of these is made per call, and nobody joins most of them
    waiting = 1
    ended = False
    _reply: Reply | None = None
    _error: Exception | None = None
    _turns: list[asyncio.Future[None]] | None = None  # of those who wait

    def __init__(self, owner: Asked, hashed_key: Any, task: asyncio.Task[Any] | None) -> None:
        self.owner = owner  # the row that makes the call, in whose attempts it is counted
        self.hashed_key = hashed_key
        self.task = task  # the one that the call runs in

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
