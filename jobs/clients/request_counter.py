"""What really goes over the wire, counted where it is sent: one request may ask for many keys, one key need many.

A Python worker of Spark runs one task at a time, so what this process counts from `begin` to `counted` is its task's.
"""

from __future__ import annotations

import time
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

DAY = 86_400  # s


@dataclass
class RequestCounts:
    """Of one lookup in one task, since it began. Days are counted from the epoch, in UTC."""

    sent: Counter[int] = field(default_factory=Counter)  # day -> requests that left
    items: Counter[int] = field(default_factory=Counter)  # day -> keys that they asked for
    units: dict[str, Counter[int]] = field(default_factory=dict)  # what a coroutine billed by -> day -> how many
    lost: Counter[str] = field(default_factory=Counter)  # of these, the ones of runs that gave no answer
    answered: int = 0  # requests that brought an answer, or a miss
    repeated: int = 0  # requests with a key that an earlier one brought no answer for; counted for batches only
    throttled: int = 0  # requests that were answered with "not now"
    in_doubt: int = 0  # answers that may be another key's, as their connection brought one too many
    seconds: float = 0.0  # sum of the requests' times
    in_flight: int = 0
    most_at_once: int = 0

    def request(self, items: int | Unasked = 1) -> Request:
        """A request that asks for so many keys more, to be told when it leaves and when it ends."""
        return Request(self, items if isinstance(items, Unasked) else Unasked(items))

    def bill(self, unit: str, many: int) -> None:
        self.units.setdefault(unit, Counter())[_today()] += many

    def not_now(self) -> None:
        """An answer said "not now" in its text."""
        self.answered -= 1
        self.throttled += 1


class Unasked:
    """Keys that several requests ask for together: they count with the first of these that leaves."""

    __slots__ = ("_items",)

    def __init__(self, items: int) -> None:
        self._items = items

    def taken(self) -> int:
        items, self._items = self._items, 0
        return items


class Request:
    """One request. It counts from the moment at which it has a connection: before that it has not left."""

    __slots__ = ("_counts", "_in_flight", "_left_at", "_unasked", "connection")

    def __init__(self, counts: RequestCounts, unasked: Unasked) -> None:
        self._counts = counts
        self._unasked = unasked
        self._left_at: float | None = None
        self._in_flight = False
        self.connection: Any = None  # of HTTP: the one that it left on

    def leaves(self, connection: Any = None) -> None:
        self.connection = connection
        counts = self._counts
        day = _today()
        counts.sent[day] += 1
        counts.items[day] += self._unasked.taken()
        counts.in_flight += 1
        counts.most_at_once = max(counts.most_at_once, counts.in_flight)
        self._in_flight = True
        self._left_at = time.monotonic()

    def frees_its_connection(self) -> None:
        """The next request may leave on it, before the maker of this one can say that it ended."""
        if self._in_flight:
            self._in_flight = False
            self._counts.in_flight -= 1

    def ends(self) -> None:
        """Whatever came of it."""
        self.frees_its_connection()
        if self._left_at is not None:
            self._counts.seconds += time.monotonic() - self._left_at


def _today() -> int:
    return int(time.time()) // DAY


LEAVING: ContextVar[Request] = ContextVar("leaving")  # the request that waits for a connection in this context
_counts: dict[str, RequestCounts] = {}  # by lookup


def counts_of(lookup: str) -> RequestCounts:
    """Where the requests of this lookup are counted in this process."""
    return _counts.setdefault(lookup, RequestCounts())


def begin() -> None:
    """A task begins: nothing was sent yet."""
    _counts.clear()


def counted() -> dict[str, RequestCounts]:
    """By lookup, what was sent since the task began."""
    return dict(_counts)
