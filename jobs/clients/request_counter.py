"""Counts requests when they are sent: requests may have many keys, keys many requests.

The counts since `begin` belong to a task: to the context of its thread, which its loop copies. A
process may run tasks of several runs in threads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from jobs.clients.billing_meter import BillingMeter
from jobs.declare.values.prices import Unit

DAY = 86_400  # s
# in the place of a unit: requests at the service, or whose use is unknown
UNKNOWN_USE = "unknown_use"


@dataclass
class RequestCounts:
    """The counts of a lookup in a task. Days are counted from the epoch, in UTC."""

    sent: Counter[int] = field(default_factory=Counter)  # day -> requests sent
    items: Counter[int] = field(default_factory=Counter)  # day -> keys in them
    # unit that answers report -> day -> number
    units: dict[str, Counter[int]] = field(default_factory=dict)
    # requests whose use is unknown: the lookup reads it from answers, and no answer had it
    unknown_use: int = 0
    lost: Counter[str] = field(default_factory=Counter)  # units of runs without an answer
    ended: int = 0  # requests sent, and answered, failed or given up
    answered: int = 0  # requests that brought an answer or a miss
    repeated: int = 0  # requests with a key that got no answer before; of batches and second calls
    repaired: int = 0  # answers that did not fit and were asked for again
    throttled: int = 0  # requests that the service throttled
    # answers that may be another key's, after an extra response on their connection
    in_doubt: int = 0
    seconds: float = 0.0  # sum of the requests' times
    in_flight: int = 0
    most_at_once: int = 0
    lookup: str = ""
    model: str | None = None  # whose prices hold
    billing: BillingMeter | None = None  # counts on disk too, if the run has a bill

    def request(self, items: int | Unasked = 1) -> Request:
        """Return a request with this many new keys; notify it when it is sent and when it ends."""
        return Request(self, items)

    def bill(self, units: Mapping[str, int]) -> None:
        """Count what an answer reports."""
        day = _today()
        for unit, many in units.items():
            self.units.setdefault(unit, Counter())[day] += many
            self.meter(unit, day, many)
        if (call := IN_CALL.get()) is not None:
            call.bill({(unit, self.model): many for unit, many in units.items()})

    def so_far(self) -> dict[str, int]:
        """Return the requests sent, and those at the service, failed and throttled."""
        sent, failed = self.sent.total(), self.ended - self.answered - self.throttled
        return {
            "sent": sent,
            "in_flight": sent - self.ended,
            "failed": max(0, failed),  # a query has its answer before it ends
            "throttled": self.throttled,
        }

    def meter(self, unit: str, day: int, many: int) -> None:
        """Count it on disk too, if the run has a bill."""
        if self.billing is not None:
            self.billing.add(self.lookup, unit, day, many)

    def usage(self) -> Counter[tuple[str, int]]:
        """Return the number of each unit on each day."""
        units = {**self.units, "request": self.sent, "item": self.items}
        return Counter(
            {(unit, day): many for unit, days in units.items() for day, many in days.items()}
        )

    def repeats(self) -> None:
        """Count a second call for a key whose first call has no answer yet."""
        self.repeated += 1

    def repairs(self) -> None:
        """Count a request for another answer."""
        self.repaired += 1
        self.repeats()

    def not_now(self) -> None:
        self.answered -= 1
        self.throttled += 1


class Call(Protocol):
    """The call of the current context, if its use is limited."""

    def request_left(self, items: int, model: str | None = None) -> None:
        """Note that a request is about to leave, with `items` keys that no earlier request had.

        Raises:
            TimeoutError: The call has ended.
        """

    def request_ended(self) -> None:
        """Note that a request was answered, or failed."""

    def bill(self, units: Mapping[Unit, int]) -> None:
        """Note that the call reports so many units."""

    def note_unknown_use(self) -> None:
        """Note that a request was answered, or failed, and did not tell what it used."""


class Unasked:
    """Keys of several requests: they count with the first request that is sent."""

    __slots__ = ("_items",)

    def __init__(self, items: int) -> None:
        self._items = items

    def taken(self) -> int:
        items, self._items = self._items, 0
        return items

    def give_back(self, items: int) -> None:
        """Leave these keys to the next request, because theirs was not sent."""
        self._items += items


class Request:
    """A request: in flight once it has a connection, sent once its first bytes are written."""

    __slots__ = (
        "_call",
        "_clock",
        "_counts",
        "_in_flight",
        "_items",
        "_left_at",
        "_unasked",
        "connection",
        "reports_use",
        "used",
        "was_sent",
    )

    def __init__(
        self,
        counts: RequestCounts,
        items: int | Unasked,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counts = counts
        self._clock = clock
        self._unasked = items if isinstance(items, Unasked) else Unasked(items)
        self._items = 0
        self._call: Call | None = None
        self._left_at: float | None = None
        self._in_flight = self.was_sent = False
        self.connection: Any = None  # for HTTP, the connection in use
        self.reports_use = False  # whether its answer reports what it used
        self.used: Mapping[str, int] | None = None  # as its answer reported; None: no answer yet

    def leaves(self, connection: Any = None) -> None:
        """Note that it has a connection.

        Raises:
            TimeoutError: Its call has ended, and nothing may be sent.
            TidegateError: The bill cannot be written any more.
        """
        billing = self._counts.billing
        if billing is not None and billing.failure is not None:
            raise billing.failure
        self._items = self._unasked.taken()
        if (call := IN_CALL.get()) is not None:
            call.request_left(self._items, self._counts.model)
            self._call = call
        self.connection = connection
        counts = self._counts
        counts.in_flight += 1
        counts.most_at_once = max(counts.most_at_once, counts.in_flight)
        self._in_flight = True
        self._left_at = self._clock()

    def is_written(self) -> None:
        """Count it as sent, right before its first bytes are written.

        A request that has a connection but is cancelled or killed before it writes costs nothing.
        """
        self.was_sent = True
        counts, day = self._counts, _today()
        counts.meter("request", day, 1)
        counts.meter("item", day, self._items)
        if self.reports_use:
            counts.meter(UNKNOWN_USE, day, 1)
        counts.sent[day] += 1
        counts.items[day] += self._items

    def frees_its_connection(self) -> None:
        """Note that its connection is free, even before its caller ends it."""
        if self._in_flight:
            self._in_flight = False
            self._counts.in_flight -= 1

    def ends(self) -> None:
        if self._in_flight:
            self.frees_its_connection()
        if self._left_at is not None:
            self._counts.seconds += self._clock() - self._left_at
            if self._call is not None:
                self._call.request_ended()
        if not self.was_sent:
            self._unasked.give_back(self._items)
            return
        self._counts.ended += 1
        if self.reports_use:
            self._settle()

    def _settle(self) -> None:
        """Count what it used; if that is unknown, it stays so."""
        if self.used is not None:
            self._counts.bill(self.used)  # first, so that a kill in between bills no less
            self._counts.meter(UNKNOWN_USE, _today(), -1)
        else:
            self._counts.unknown_use += 1
            if self._call is not None:
                self._call.note_unknown_use()


def _today(clock: Callable[[], float] = time.time) -> int:
    return int(clock()) // DAY


IN_CALL: ContextVar[Call | None] = ContextVar("in_call", default=None)
# the context's request that waits for a connection
LEAVING: ContextVar[Request] = ContextVar("leaving")


@dataclass
class TaskCounts:
    """The counts of a task.

    Attributes:
        billing: Counts on disk too, if the run has a bill.
        by_lookup: The counts of each lookup.
        earlier: By lookup, the calls of the task's lost attempts, whose answers it reads from the
            ledger.
        spent: What the task's calls cost of the run's cap, also those of lost attempts.
    """

    billing: BillingMeter | None = None
    by_lookup: dict[str, RequestCounts] = field(default_factory=dict)
    earlier: dict[str, int] = field(default_factory=dict)
    spent: float = 0.0


_TASK: ContextVar[TaskCounts] = ContextVar("task")


def task_counts() -> TaskCounts:
    """Return the counts of the context's task."""
    if (task := _TASK.get(None)) is None:
        _TASK.set(task := TaskCounts())
    return task


def counts_of(lookup: str) -> RequestCounts:
    task = task_counts()
    return task.by_lookup.setdefault(lookup, RequestCounts(lookup=lookup, billing=task.billing))


def begin(billing: BillingMeter | None = None) -> None:
    """Reset the counts at the start of a task.

    Args:
        billing: Counts on disk what services bill.
    """
    end()
    _TASK.set(TaskCounts(billing))


def end() -> None:
    """Close what counts on disk, at the end of a task. Later clients of the context do without."""
    task = task_counts()
    if task.billing is not None:
        task.billing.close()
        _TASK.set(replace(task, billing=None, by_lookup=counted()))


def counted() -> dict[str, RequestCounts]:
    """Return the counts by lookup, to be sent to the driver."""
    return {
        name: replace(counter, billing=None) for name, counter in task_counts().by_lookup.items()
    }
