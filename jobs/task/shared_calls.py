"""What equal requests of one partition share: calls in flight, and kept answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from sys import getsizeof
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jobs.declare.services import Cache
    from jobs.task.replies import Reply

WEIGHED_EACH = 16  # answers
SHORT = 64  # characters of a text, and bytes that a value in a list takes
T = TypeVar("T")
Kept = tuple[tuple[Any, ...] | None, int]  # the answer's columns, None for a miss; when, in µs since the epoch


def hashable(value: Any) -> Any:
    """A key as a dict takes it, where a part of it is an array or a struct."""
    if isinstance(value, dict):
        return tuple((name, hashable(item)) for name, item in value.items())
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value


def long_bytes(values: Iterable[Any]) -> int:
    """About how much memory the long ones of these values take. The short ones are bounded by their number."""
    total = 0
    for value in values:
        if isinstance(value, str | bytes):
            total += getsizeof(value) if len(value) > SHORT else 0
        elif isinstance(value, dict):
            total += getsizeof(value) + SHORT * len(value) + long_bytes(value.values())
        elif isinstance(value, list | tuple):
            total += getsizeof(value) + SHORT * len(value) + long_bytes(value)
    return total


class AnswerCache(OrderedDict[Any, T]):
    """What came of calls by key, the least recently used leaving first.

    Look with `get`, which nearly always finds nothing and runs in C; then ask `may_be_used`.
    """

    __slots__ = ("_bytes", "_max_bytes", "_max_entries", "_now_us", "_sizes", "_ttl_us", "_unweighed")

    def __init__(self, rule: Cache, now_us: Callable[[], int]) -> None:
        super().__init__()
        self._max_entries = rule.max_entries
        self._max_bytes = rule.max_bytes
        self._bytes = 0  # the sum of _sizes
        self._sizes: dict[Any, int] = {}  # of those weighed
        self._unweighed = 1  # until the next one is weighed
        self._ttl_us = None if rule.ttl is None else rule.ttl.total_seconds() * 1e6
        self._now_us = now_us

    def may_be_used(self, key: Any, *, answered_at: int) -> bool:
        """Whether it is not older than the time to live; it stays for longer then, and is dropped if not."""
        if self._ttl_us is not None and self._now_us() - answered_at >= self._ttl_us:
            del self[key]
            self._forget_size(key)
            return False
        self.move_to_end(key)
        return True

    def put(self, key: Any, kept: T, answer: tuple[Any, ...] | None) -> None:
        """Keep it; in place of an older one of its key, it stays no longer than that would. answer: what is in it."""
        self[key] = kept
        self._unweighed -= 1
        if self._sizes:
            self._forget_size(key)  # of an older one
        if not self._unweighed:
            self._weigh(key, answer or ())
        if len(self) > self._max_entries:
            dropped, _ = self.popitem(last=False)
            if self._sizes:
                self._forget_size(dropped)

    def _weigh(self, key: Any, answer: tuple[Any, ...]) -> None:
        """Take one answer for those since the last one: to weigh each would cost a row 5 % where calls return at once.
        So memory may be over by WEIGHED_EACH of the largest.
        """
        self._unweighed = WEIGHED_EACH
        size = WEIGHED_EACH * long_bytes(answer)
        if size:
            self._sizes[key] = size
            self._bytes += size
        while self._bytes > self._max_bytes:
            self._forget_size(self.popitem(last=False)[0])

    def _forget_size(self, key: Any) -> None:
        self._bytes -= self._sizes.pop(key, 0)


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
