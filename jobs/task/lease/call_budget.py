"""A cap on a run's calls: a task has a part of it, and waits for the others once it is used."""

import asyncio
import math
from typing import Any, NoReturn

from jobs.clients.client import Ask
from jobs.declare.lookup import Key
from jobs.errors import BudgetExhausted
from jobs.ledger.plan import CallCap

ROUNDING = 1e-6  # of a call of the dearest lookup, for rounding errors of repeated subtraction


class UsedUp(Exception):  # noqa: N818  # reads as what happened
    """A budget over runs is used up, so a request may not start. Its text names the budget."""


class CallBudget:
    """A task's budget over all its lookups; every attempt costs the weight of its lookup.

    When it is used up, the calls in flight finish and their answers are stored; then the run stops.
    """

    def __init__(self, cap: CallCap | None, partition: int) -> None:
        """Take the task's part of the cap.

        Args:
            cap: The run's cap; None where only budgets over runs bound what it spends
                (service_lease.py).
            partition: The task's number.
        """
        self._cap = cap
        self._left = math.inf if cap is None else cap.parts[partition % len(cap.parts)]
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def spent_before(self, place: int, calls: int) -> None:
        """Count the known spending of earlier attempts of this task."""
        if self._cap is not None:
            self._left -= calls * self._cap.weights[place]

    async def charge(self, place: int, ask: Ask, key: Key) -> Any:
        """Spend an attempt of the lookup at this place, and call.

        Raises:
            BudgetExhausted: The budget is used up, and no call is in flight any more.
        """
        weight = 0.0 if self._cap is None else self._cap.weights[place]
        if weight > self._left + ROUNDING:
            await self.end()
        self._left -= weight
        self._running += 1
        self._idle.clear()
        try:
            return await ask(key)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def end(self, subject: str = "") -> NoReturn:
        """Stop new attempts.

        Args:
            subject: What is used up, if it is not the cap.

        Raises:
            BudgetExhausted: Always, once no call is in flight.
        """
        self._left = -math.inf
        await self._idle.wait()
        subject = subject or ("a budget" if self._cap is None else self._cap.message)
        raise BudgetExhausted(
            f"{subject} is used up: what was answered is kept, nothing is published; run the day "
            "again, and only the "
            "rest is asked."
        )

    async def until_used_up(self, ask: Ask, key: Key) -> Any:
        """Call; if a budget is used up, end with the task's calls.

        The rows of a batch wait for the same request, so the calls are over only once it has told
        all of them.
        """
        try:
            return await ask(key)
        except UsedUp as budget:
            await self.end(str(budget))
