"""Calls that start without asking their lease, because their operator counts them.

An operator's concurrency is never above the leased calls in flight (jobs/task/task_limits.py). So
while the lease lasts and the service's gate is open, the operator alone keeps the limit; a call
only looks at the clock.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from asyncio_core import AsyncWaitOperator
from jobs.clients.client import Ask
from jobs.declare.lookup import Key
from jobs.limits.lease_holder import LeaseHolder
from jobs.limits.window_use import WindowUse
from jobs.task.lease.leased_call import Lease, within_lease

BLOCK = 100  # calls
HIGH = 100 * BLOCK  # a limit in a window for which the cost of its counting shows
# the free part of a limit, below which requests are counted singly, so that blocks waste none
PLENTY = 0.2
ASKS, FULL = 0.5, 0.9  # used fractions of a task's part: it asks for more; it reserves no block
AGAIN_AFTER = 0.05  # s


class CountedCalls:
    """The calls, of a request each, of a lookup that alone calls its service in this task.

    Limits on requests in a window are used in blocks as long as there is plenty. A block is
    reserved before its first call, and counts as if all its requests had left at its end.

    Args:
        windows: The limits on requests in a window, by name.
        holder: The task's parts of its limits.
        ask_soon: Requests a share from the driver before the next regular heartbeat.
        is_waiting: Returns whether a task's call waits for the lease.

    Attributes:
        running: Returns the calls that the operator runs, including those that wait for the lease.
        last_start: The loop's time after which no call starts without asking the lease.
    """

    def __init__(
        self,
        windows: Mapping[str, WindowUse],
        holder: LeaseHolder,
        ask_soon: Callable[[], None],
        is_waiting: Callable[[asyncio.Task[Any]], bool],
    ) -> None:
        self.running: Callable[[], int] = lambda: 0
        self.last_start = -math.inf
        self._calls: Callable[[], Iterable[asyncio.Task[Any]]] = lambda: ()
        self._is_waiting = is_waiting
        self._ends: asyncio.TimerHandle | None = None
        self._windows, self._holder, self._ask_soon = windows, holder, ask_soon
        self._block = 0  # calls that were reserved together
        self._left = 0  # of them
        self._reserves_at = -math.inf

    def open(
        self, operator: AsyncWaitOperator, calls: Callable[[], Iterable[asyncio.Task[Any]]]
    ) -> None:
        """Begin to count.

        Args:
            operator: Runs the calls.
            calls: Returns the tasks of the running calls.
        """
        self.running, self._calls = (lambda: operator.statistics().running), calls

    def lasts_until(self, until: float) -> None:
        """End the running calls at this time, when the lease ends.

        A closed gate or other rows may keep calls alive for so long.
        """
        if self._ends is not None:
            self._ends.cancel()
        self._ends = asyncio.get_running_loop().call_at(until, self._end_calls)

    def _end_calls(self) -> None:
        """Fail running calls like a function whose wait was cancelled, because the lease ends."""
        for task in self._calls():
            if not self._is_waiting(task):
                task.cancel("its lease ended")
                task.uncancel()

    def close(self) -> None:
        """Stop the timer that ends calls, because no call runs any more."""
        if self._ends is not None:
            self._ends.cancel()

    def started(self, lease: Lease, ask: Ask) -> Ask:
        """Return an `ask` that asks the lease only where it must.

        It reads the clock each time, because the timers of a process that was stopped are late.
        """
        clock = lease.clock

        def start(key: Key) -> Awaitable[Any]:
            return ask(key) if clock() <= self.last_start else within_lease(lease, ask, key)

        def start_of_block(key: Key) -> Awaitable[Any]:
            now = clock()
            if now <= self.last_start and (self._left or self._reserve(now)):
                self._left -= 1
                return ask(key)
            return within_lease(lease, ask, key)

        return start_of_block if self._windows else start

    def settle(self, now: float) -> None:
        """End the block, and free what is left of it."""
        used, block, self._block, self._left = self._block - self._left, self._block, 0, 0
        for use in self._windows.values() if block else ():
            use.send(used, now, of_reserved=block)

    def _reserve(self, now: float) -> bool:
        """Reserve the next block, if that leaves room in each limit. Return whether it did."""
        self.settle(now)
        if now < self._reserves_at:
            return False
        for name, use in self._windows.items():
            if self._holder.free_share(name) < PLENTY:
                self._reserves_at = now + AGAIN_AFTER
                return False
            in_use, may_use = use.in_use(now) + BLOCK, self._holder.may_use(name, now)
            if in_use > ASKS * may_use:
                self._ask_soon()
            if in_use > FULL * may_use:
                self._reserves_at = now + AGAIN_AFTER
                return False
        for use in self._windows.values():
            use.reserve(now, BLOCK)
        self._block = self._left = BLOCK
        return True
