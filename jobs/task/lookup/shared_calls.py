"""Shared state of equal requests of a partition: calls in flight and cached answers."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from sys import getsizeof
from typing import Any, TypeVar

from jobs.declare.services import Cache
from jobs.task.lookup.replies import Reply

SHORT = 64  # characters of a text, or bytes of a value in a list
T = TypeVar("T")
Kept = tuple[tuple[Any, ...] | None, int]  # columns (None: a miss), answered at (µs)


def hashable(value: Any) -> Any:
    """Return a hashable form of a key with an array or a struct."""
    if isinstance(value, dict):
        return tuple((name, hashable(item)) for name, item in value.items())
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value


def long_bytes(values: Iterable[Any]) -> int:
    """Return the approximate memory of long values.

    Short values count as nothing: max_entries bounds them.
    """
    total = 0
    for value in values:
        kind = type(value)  # isinstance takes three times as long, for each answer
        if kind is str or kind is bytes:
            if len(value) > SHORT:
                total += getsizeof(value)
        elif kind is dict:
            total += getsizeof(value) + SHORT * len(value)
            total += long_bytes(value) + long_bytes(value.values())
        elif kind is list or kind is tuple:
            total += getsizeof(value) + SHORT * len(value) + long_bytes(value)
    return total


class AnswerCache(OrderedDict[Any, T]):
    """A cache of replies by key that evicts the least recently used.

    Look up with `get`, which usually finds nothing and runs in C; then check `may_be_used`.
    """

    __slots__ = ("_bytes", "_max_bytes", "_max_entries", "_now_us", "_sizes", "_ttl_us")

    def __init__(self, rule: Cache, now_us: Callable[[], int]) -> None:
        super().__init__()
        self._max_entries = rule.max_entries
        self._max_bytes = rule.max_bytes
        self._bytes = 0  # the sum of _sizes
        self._sizes: dict[Any, int] = {}  # of entries with long values
        self._ttl_us = None if rule.ttl is None else rule.ttl.total_seconds() * 1e6
        self._now_us = now_us

    def may_be_used(self, key: Any, *, answered_at: int) -> bool:
        """Return whether the entry is within its time to live; refresh its recency, or drop it."""
        if self._ttl_us is not None and self._now_us() - answered_at >= self._ttl_us:
            self.discard(key)
            return False
        self.move_to_end(key)
        return True

    def discard(self, key: Any) -> None:
        """Drop the entry, if any, and free its memory for others."""
        self.pop(key, None)
        self._bytes -= self._sizes.pop(key, 0)

    def put(self, key: Any, kept: T, answer: tuple[Any, ...] | None) -> None:
        """Store an entry, with the recency of an older entry of its key.

        An entry larger than the memory is not stored, rather than evict all others.
        """
        size = long_bytes(key) + long_bytes(answer or ())
        if size > self._max_bytes:
            self.discard(key)
            return
        self[key] = kept
        if size or self._sizes:
            self._bytes += size - self._sizes.pop(key, 0)  # of an older answer
            if size:
                self._sizes[key] = size
        while len(self) > self._max_entries or self._bytes > self._max_bytes:
            self._bytes -= self._sizes.pop(self.popitem(last=False)[0], 0)


class SharedCall:
    """The rows that wait for another row's call.

    Created when the first row joins, because most calls have none.
    """

    def __init__(self) -> None:
        self.waiting = 0  # rows, without the row that makes the call
        self._result: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    async def over(self) -> None:
        await asyncio.wait([self._result])

    async def reply(self) -> Reply:
        """Wait until the call ended, and return its reply.

        Raises:
            Exception: The error of the call, if it ends the run.
        """
        return await asyncio.shield(self._result)

    def end(self, reply: Reply | None, error: BaseException | None = None) -> None:
        """Notify all waiting rows.

        Without reply and error the call was cancelled, which ends their run.
        """
        if reply is not None:
            self._result.set_result(reply)
            return
        elsewhere = RuntimeError("the call was cancelled from elsewhere")
        self._result.set_exception(error if isinstance(error, Exception) else elsewhere)
        self._result.exception()  # retrieved, as no row may wait for it
