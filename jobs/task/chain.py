"""A task's operators and the links between them, for several lookups in a pass."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from asyncio_core import AsyncWaitOperator, StreamElement
from jobs.clients.batcher import batching_in
from jobs.clients.client import Client
from jobs.clients.http.session_client import SessionClient
from jobs.declare.lookup import Lookup
from jobs.task.lease.service_lease import ServiceLease
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.lookup_function import LookupFunction
from jobs.task.threads.call_threads import ENDS_WITHIN

# entries per call in flight: keeps a slow head from starving ordered mode (1.01 x the limit)
CAPACITY_PER_CALL = 16


class Link:
    """Carries an operator's output into the next operator.

    `room` blocks the feeder, or the link before it.
    """

    BOUND = 1000  # waiting elements before the feeder blocks

    def __init__(self, operator: AsyncWaitOperator, onward: Link | None) -> None:
        self._operator = operator
        self._onward = onward
        self._waiting: deque[StreamElement] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._ended = False

    def __len__(self) -> int:
        """Return the number of elements that the operator has not accepted yet."""
        return len(self._waiting)

    def put(self, element: StreamElement) -> None:
        self._waiting.append(element)
        self._arrived.set()

    def end(self) -> None:
        self._ended = True
        self._arrived.set()

    async def room(self) -> None:
        while len(self._waiting) >= self.BOUND:
            self._taken.clear()
            await self._taken.wait()

    async def carry(self) -> None:
        """Carry elements until `end` was called and the next operator is empty."""
        while True:
            while self._waiting:
                if self._onward is not None:
                    await self._onward.room()
                await self._operator.process_element(self._waiting[0])
                self._waiting.popleft()
                self._taken.set()
            if self._ended:
                await self._operator.end_input()
                return
            self._arrived.clear()
            await self._arrived.wait()


async def raise_failure(operator: AsyncWaitOperator) -> None:
    """Raise the operator's error as soon as it fails, even without a waiting element."""
    failed = asyncio.Event()
    operator.call_on_failure(failed.set)
    await failed.wait()
    await operator.end_input()


@dataclass(frozen=True)
class Chain:
    """The operators of a task.

    Lists are in the order of the lookups; `links` begins at the second lookup.

    Attributes:
        links: Each carries an operator's output into the next operator.
    """

    operators: list[AsyncWaitOperator]
    callers: list[Client]
    links: list[Link]
    functions: list[LookupFunction]
    watches: list[CircuitBreaker]  # lookups of the same service share it
    by_service: dict[str, CircuitBreaker]
    leases: list[ServiceLease | None]  # lookups of the same service share it

    async def finish(self, lookups: Sequence[Lookup]) -> list[str]:
        """Wait for the end of calls and of doubts about answers.

        Calls outlive their rows with finish_after_timeout; their answers are stored. A client may
        doubt its answers late.

        Returns:
            The functions that did not end within the time of a call.
        """
        unfinished = []
        for lookup, function in zip(lookups, self.functions, strict=True):
            longest = lookup.longest_call
            try:
                async with asyncio.timeout(None if longest is None else longest + ENDS_WITHIN):
                    await function.finish()
            except TimeoutError:
                unfinished.append(f"lookup {lookup.name}: its function")
        await asyncio.gather(
            *(caller.settle() for caller in self.callers if isinstance(caller, SessionClient))
        )
        return unfinished

    def outstanding(self) -> list[int]:
        """Return the most calls in flight from now on for each lookup, without further rows."""
        before, found = 0, []
        behind = [*map(len, self.links), 0]
        for place, (operator, waiting) in enumerate(zip(self.operators, behind, strict=True)):
            figures = operator.statistics()
            found.append(self._calls(place, before + figures.outstanding))
            before += figures.queued + waiting
        return found

    def _calls(self, place: int, rows: int) -> int:
        """Return a lookup's most calls in flight for these rows, with requests being cancelled."""
        batching = batching_in(self.callers[place])
        leaving = 0 if batching is None else batching.leaving()
        return self.functions[place].calls_of_a_row * rows + leaving

    def running(self) -> int:
        """Return the calls in flight, without those that wait for a lease."""
        leases = {lease for lease in self.leases if lease is not None}
        unleased = (
            operator
            for operator, lease in zip(self.operators, self.leases, strict=True)
            if lease is None
        )
        return sum(lease.running for lease in leases) + sum(
            operator.statistics().running for operator in unleased
        )

    def started(self) -> list[int]:
        """Return the number of calls that have started, for each lookup."""
        return [operator.statistics().attempts for operator in self.operators]

    def wants(self, shares: Sequence[int], began: Sequence[int]) -> dict[str, int]:
        """Return the possible calls in flight within the shares, by service with leased limits.

        A full operator hides how many rows wait, so its whole share is possible.

        Args:
            shares: Calls in flight per lookup.
            began: Recent calls per lookup, because calls that end at once are never seen in flight.
        """
        found: dict[str, int] = {}
        for place, (operator, lease, share) in enumerate(
            zip(self.operators, self.leases, shares, strict=True)
        ):
            if lease is not None:
                figures = operator.statistics()
                hides_rows = (
                    figures.queued >= figures.capacity
                    and figures.outstanding >= figures.concurrency
                )
                could = (
                    share
                    if hides_rows
                    else min(share, max(began[place], self._calls(place, figures.outstanding)))
                )
                found[lease.service] = found.get(lease.service, 0) + could
        return found

    def resize(self, lookups: Sequence[Lookup], shares: Sequence[int]) -> None:
        for operator, caller, lookup, share in zip(
            self.operators, self.callers, lookups, shares, strict=True
        ):
            if (batching := batching_in(caller)) is not None:
                batching.allow(share)
            rows = rows_at_once(lookup, share)
            operator.resize(capacity=CAPACITY_PER_CALL * rows, concurrency=rows)


def rows_at_once(lookup: Lookup, share: int) -> int:
    """Return the most rows in flight; with batches, of `share` requests and one that fills."""
    return share if lookup.batch_size == 1 else (share + 1) * lookup.batch_size
