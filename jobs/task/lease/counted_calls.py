"""Calls that start without asking their lease, because their operator counts them.

TaskLimits never lets an operator run more calls than are leased. So while the lease lasts and the
service's gate is open, the operator alone keeps the limit; a call only looks at the clock.
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
PLENTY = 0.2  # share of a limit that must be free at the driver for a task to reserve blocks
ASK_ABOVE = 0.5  # used share of the task's part, above which it asks the driver for more
NO_BLOCK_ABOVE = 0.9  # used share of the task's part, above which requests are counted singly
RETRY_BLOCK_AFTER = 0.05  # s


class CountedCalls:
    """Calls of a lookup, one request each, if no other lookup of the task uses the service.

    Limits on requests in a window are used in blocks as long as there is plenty. A block is
    reserved before its first call; all its requests count from its end.

    Args:
        windows: The limits on requests in a window, by name.
        holder: The task's parts of its limits.
        ask_soon: Requests a share from the driver before the next regular heartbeat.
        is_waiting: Returns whether a task's call waits for the lease.

    Attributes:
        running: Returns how many calls the operator runs, including those that wait for the lease.
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
        self._left = 0  # how many of them have not started
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

        A call may live that long, because its time limit stands still while the gate is closed.
        """
        if self._ends is not None:
            self._ends.cancel()
        self._ends = asyncio.get_running_loop().call_at(until, self._end_calls)

    def _end_calls(self) -> None:
        """Fail running calls like a function whose wait was cancelled, because the lease ends."""
        for task in self._calls():
            if not self._is_waiting(task):
                task.cancel("its lease ended")
                task.uncancel()  # now, because only a cancellation from outside ends the worker

    def close(self) -> None:
        """Stop the timer that ends calls, because no call runs any more."""
        if self._ends is not None:
            self._ends.cancel()

    def without_lease_where_possible(self, lease: Lease, ask: Ask) -> Ask:
        """Return an `ask` that asks the lease only where it must.

        It reads the clock each time, because the timers of a process are late after SIGSTOP.
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
        if self._block:
            for use in self._windows.values():
                use.send(self._block - self._left, now, of_reserved=self._block)
        self._block = self._left = 0

    def _reserve(self, now: float) -> bool:
        """Reserve the next block, if that leaves room in each limit. Return whether it did."""
        self.settle(now)
        if now < self._reserves_at:
            return False
        if not self._has_room_for_block(now):
            self._reserves_at = now + RETRY_BLOCK_AFTER
            return False
        for use in self._windows.values():
            use.reserve(now, BLOCK)
        self._block = self._left = BLOCK
        return True

    def _has_room_for_block(self, now: float) -> bool:
        """Return whether each limit has room; ask the driver for more where little is left."""
        for name, use in self._windows.items():
            if self._holder.free_share(name) < PLENTY:
                return False
            would_use, may_use = use.in_use(now) + BLOCK, self._holder.may_use(name, now)
            if would_use > ASK_ABOVE * may_use:
                self._ask_soon()
            if would_use > NO_BLOCK_ABOVE * may_use:
                return False
        return True
