"""A cap on a run's calls: a task has a part of it, and waits for the others once it is used."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from asyncio_core import Gate
from jobs.clients.client import Ask, NotSent
from jobs.clients.request_counter import RequestCounts
from jobs.declare.lookup import Key
from jobs.errors import BudgetExhausted
from jobs.ledger.plan import ROUNDING, CallCap

LOOK_EVERY = 0.1  # s


class UsedUp(Exception):  # noqa: N818  # reads as what happened
    """A budget over runs is used up, so a request may not start. Its text names the budget."""


class NoRoom(NotSent):
    """The budget has no room for a request of this weight before others' answers are known."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight


class CallBudget:
    """A task's budget over all its lookups; every attempt costs the weight of its lookup.

    Where an attempt may cost another amount, it reserves its weight until it ends, and what its
    requests and answer cost is spent. When the budget is used up, the calls in flight finish and
    their answers are stored; then the run stops.
    """

    def __init__(
        self, cap: CallCap | None, partition: int, counts: Sequence[RequestCounts] = ()
    ) -> None:
        """Take the task's part of the cap.

        Args:
            cap: The run's cap; None where only budgets over runs bound what it spends
                (service_lease.py).
            partition: The task's number.
            counts: Of the requests of each lookup.
        """
        self._cap = cap
        # by lookup: the weight of an attempt, the most that a request costs, the cost of each unit,
        # and the counts
        self._settled: dict[int, tuple[float, float, Mapping[str, float], RequestCounts]] = {}
        for place, each in enumerate(() if cap is None else cap.settled):
            if each and cap is not None:
                most = cap.most_of_request(place)
                self._settled[place] = cap.weights[place], most, each, counts[place]
        self._at_work = Counter[int]()  # attempts of these lookups
        self._part = math.inf if cap is None else cap.parts[partition % len(cap.parts)]
        self._left = self._part
        self._running = 0
        self._ended = asyncio.Event()  # an attempt has, since it was waited for

    def spent_before(self, place: int, calls: int) -> None:
        """Count the known spending of earlier attempts of this task."""
        if self._cap is not None:
            self._left -= calls * self._cap.weights[place]

    async def charge(
        self, place: int, refuse_in_pause: Callable[[], None], ask: Ask, key: Key
    ) -> Any:
        """Spend an attempt of the lookup at this place, and call.

        Args:
            place: Of the lookup.
            refuse_in_pause: Raises NotSent in a pause of the service, which may have begun while
                the attempt waited.
            ask: Makes the call.
            key: The key.

        Raises:
            NoRoom: The attempt does not fit into the budget now.
            NotSent: A pause of the service began.
        """
        weight = 0.0 if self._cap is None else self._cap.weights[place]
        if not self._has_room(weight):
            raise NoRoom(weight)
        refuse_in_pause()
        if place in self._settled:
            self._at_work[place] += 1
        else:
            self._left -= weight
        self._running += 1
        try:
            return await ask(key)
        except NotSent:
            self._left += 0.0 if place in self._settled else weight
            raise
        finally:
            self._running -= 1
            if place in self._settled:
                self._at_work[place] -= 1
            self._ended.set()

    def _has_room(self, weight: float) -> bool:
        return weight <= self._left - self._reserved() + ROUNDING

    @property
    def spent(self) -> float:
        """What its attempts cost, also those of earlier attempts of the task."""
        return 0.0 if self._cap is None else self._part - self._left + self._reserved()

    def _reserved(self) -> float:
        """Return what settled lookups have spent, and may still spend."""
        return sum(
            weight * self._at_work[place] + spent(most, each, counts)
            for place, (weight, most, each, counts) in self._settled.items()
        )

    async def end(self, subject: str = "") -> NoReturn:
        """Stop new attempts.

        Args:
            subject: What is used up, if it is not the cap.

        Raises:
            BudgetExhausted: Always, once no call is in flight.
        """
        self._left = -math.inf
        while self._running:
            self._ended.clear()
            await self._ended.wait()
        subject = subject or ("a budget" if self._cap is None else self._cap.message)
        raise BudgetExhausted(
            f"{subject} is used up: what was answered is kept; run again, and only the rest is "
            "asked."
        )

    async def until_used_up(self, gate: Gate, ask: Ask, key: Key) -> Any:
        """Call once the budget has room; if it is used up, end with the task's calls.

        The call waits outside its lease, whose time would run. The rows of a batch wait for the
        same request, so the calls are over only once it has told all of them.

        Args:
            gate: Of its service: closed while the attempt waits for others' answers, so that no
                record's clock runs.
            ask: Calls `charge`, within the lease.
            key: The key.

        Raises:
            BudgetExhausted: The budget is used up, and no call is in flight any more.
        """
        while True:
            try:
                return await ask(key)
            except UsedUp as budget:
                await self.end(str(budget))
            except NoRoom as lacking:
                await self._wait_for_room(lacking.weight, gate)

    async def _wait_for_room(self, weight: float, gate: Gate) -> None:
        while not self._has_room(weight):
            if not self._at_work.total():  # no answer can free what an attempt reserved
                await self.end()
            self._ended.clear()
            gate.close(2 * LOOK_EVERY)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._ended.wait()


def spent(most: float, each: Mapping[str, float], counts: RequestCounts) -> float:
    """Return what these requests of a lookup cost.

    Args:
        most: The most that a request may cost, for each whose use is unknown.
        each: The cost per unit.
        counts: Of the requests.
    """
    sent = {"request": counts.sent.total(), "item": counts.items.total()}
    return most * counts.unknown_use + sum(
        cost * (sent[unit] if unit in sent else counts.units.get(unit, Counter()).total())
        for unit, cost in each.items()
    )
