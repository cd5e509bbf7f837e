"""Calls that start without asking their lease, because their operator counts them.

An operator's concurrency is never above the leased calls in flight (jobs/task/task_limits.py). So while the lease lasts
and the service's gate is open, the operator alone keeps the limit; a call only looks at the clock.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from jobs.task.leased_call import Lease, within_lease

if TYPE_CHECKING:
    from jobs.declare.lookup import Key

Ask = Callable[["Key"], Awaitable[Any]]


class CountedCalls:
    """The calls of the only lookup of a service in this task.

    Args:
        running: The number of calls that the operator runs, and of those that wait for the lease.
        end: Ends the running calls.

    Attributes:
        last_start: The time, by the loop, after which no call starts without asking the lease.
    """

    def __init__(self, running: Callable[[], int], end: Callable[[], None]) -> None:
        self.running = running
        self.last_start = -math.inf
        self._end = end
        self._ends: asyncio.TimerHandle | None = None

    def lasts_until(self, until: float) -> None:
        """The lease ends then, and with it the calls that a closed gate or other rows keep alive for so long."""
        if self._ends is not None:
            self._ends.cancel()
        self._ends = asyncio.get_running_loop().call_at(until, self._end)

    def started(self, lease: Lease, ask: Ask) -> Ask:
        """`ask`, which asks the lease only where it must."""
        clock = lease.clock

        def start(key: Key) -> Awaitable[Any]:
            # a process that was stopped has late timers, but no late clock
            return ask(key) if clock() <= self.last_start else within_lease(lease, ask, key)

        return start
