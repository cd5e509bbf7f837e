"""What equal requests of one partition share: calls in flight, and kept answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jobs.bridge.replies import Reply
    from jobs.lookups.services import Cache

T = TypeVar("T")
Kept = tuple[tuple[Any, ...] | None, int]  # the answer's columns, None for a miss; when, in µs since the epoch


def hashable(value: Any) -> Any:
    """A key as a dict takes it, where a part of it is an array or a struct."""
    if isinstance(value, dict):
        return tuple((name, hashable(item)) for name, item in value.items())
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value


class KeptAnswers(OrderedDict[Any, T]):
    """What came of calls by key, the least recently used leaving first.

    Look with `get`, which nearly always finds nothing and runs in C; then ask `may_be_used`.
    """

    __slots__ = ("_max_entries", "_now_us", "_ttl_us")

    def __init__(self, rule: Cache, now_us: Callable[[], int]) -> None:
        super().__init__()
        self._max_entries = rule.max_entries
        self._ttl_us = None if rule.ttl is None else rule.ttl.total_seconds() * 1e6
        self._now_us = now_us

    def may_be_used(self, key: Any, *, answered_at: int) -> bool:
        """Whether it is not older than the time to live; it stays for longer then, and is dropped if not."""
        if self._ttl_us is not None and self._now_us() - answered_at >= self._ttl_us:
            del self[key]
            return False
        self.move_to_end(key)
        return True

    def put(self, key: Any, kept: T) -> None:
        """Keep it; in place of an older one of its key, it stays no longer than that would."""
        self[key] = kept
        if len(self) > self._max_entries:
            self.popitem(last=False)


class SharedCall:
    """The rows that wait for a call that another row makes. Made when the first one joins: most calls have none."""

    def __init__(self) -> None:
        self.waiting = 0  # rows, without the one that makes the call
        self._ended = False
        self._reply: Reply | None = None
        self._error: Exception | None = None
        self._turns: list[asyncio.Future[None]] = []  # of those who wait

    async def over(self) -> None:
        """Wait until the call ended, in whatever way."""
        if not self._ended:
            turn = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            await turn

    async def reply(self) -> Reply:
        """Wait until the call ended. Raises the error that ended it, if it is one that ends the run."""
        await self.over()
        if self._error is not None:
            raise self._error
        assert self._reply is not None
        return self._reply

    def end(self, reply: Reply | None, error: BaseException | None = None) -> None:
        """Let all who wait know. Without a reply and an error it was cancelled, which ends the run of who waits."""
        self._ended = True
        self._reply = reply
        if reply is None:
            self._error = (
                error if isinstance(error, Exception) else RuntimeError("the call was cancelled from elsewhere")
            )
        for turn in self._turns:
            if not turn.done():
                turn.set_result(None)
