"""The money of jobs in budgets over runs: spent before a job is submitted, as much as it may cost;
what was not billed comes back once it is over.
"""

import datetime as dt
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Self

from jobs.declare.limits.budgets import PARTS, Budget, parts_of
from jobs.declare.lookup import service_identity
from jobs.declare.values.prices import in_force
from jobs.declare.vendor_jobs import JobLookup
from jobs.ledger.job_files import Intent, JobFiles
from jobs.limits.lease_book import JOB, LeaseBook
from jobs.limits.store import Found, StoreLost
from jobs.limits.store_url import in_store, limits_url
from jobs.run.keys.vendor_jobs.job_ends import most_cost

_log = logging.getLogger("tidegate.jobs")


@dataclass(frozen=True)
class Free:
    """What the next job may cost.

    Attributes:
        parts: Billionths; infinite without a budget.
        subject: The budget that sets them, for a sentence; empty without a budget.
    """

    parts: float = math.inf
    subject: str = ""


@dataclass(frozen=True)
class JobBudgets:
    """The budgets of the jobs of a lookup.

    Attributes:
        lookup: As declared.
        budgets: Of its service, and of the enrichment with its name.
    """

    lookup: JobLookup
    budgets: Sequence[tuple[str, Budget]]

    @classmethod
    def of(cls, lookup: JobLookup, own: Sequence[tuple[str, Budget]]) -> Self:
        """Return the budgets of a lookup. own: those of its enrichment."""
        return cls(
            lookup, [*(("", budget) for budget in lookup.budgets), *(own if lookup.prices else ())]
        )

    async def free(self, at: float) -> Free:
        """Return what a job may cost now."""
        if not (amounts := self._amounts(at)):
            return Free()

        def look(book: LeaseBook, now: float) -> tuple[float, str]:
            book.expire(now)
            return min((most - book.held(name), name) for name, most in amounts.items())

        parts, name = await _step(self.lookup, look)
        return Free(parts, self._subject(name, at))

    def affordable(self, items: int, free: Free, at: float) -> int:
        """Return how many of these items a job may have that costs no more than this."""
        prices = in_force(self.lookup.prices, str(_day(at)))
        once = sum(parts_of(price) for price in prices if price.unit == "request")
        each = sum(
            parts_of(price) * (1 if price.unit == "item" else price.at_most or 0)
            for price in prices
            if price.unit != "request"
        )
        if free.parts == math.inf or once > free.parts:
            return items if free.parts == math.inf else 0
        return min(items, int((int(free.parts) - once) / each)) if each else items

    async def spend(self, token: str, intent: Intent) -> tuple[str, bool]:
        """Spend the most that a job may cost, once.

        Returns:
            The budget that does not allow it, empty if all do; and whether this call has spent it,
            not an earlier one.

        Raises:
            StoreLost: Nothing can be spent.
        """
        if not (amounts := self._amounts(intent.at)):
            return "", False
        most = _parts(most_cost(self.lookup.prices, intent))
        spend = partial(_spend, owner=f"{JOB}{token}", amount=most, amounts=amounts)
        short, is_new = await _step(self.lookup, spend)
        return short and self._subject(short, intent.at), is_new

    async def take_back(self, token: str) -> None:
        """Have the budgets count nothing of what `spend` has just spent for a job."""
        await _settle_at(self.lookup, token, 0)

    async def settle_ended(self, files: JobFiles) -> None:
        """Settle the ended jobs of a lookup whose run was killed before it did. Raises StoreLost.

        files: Of the lookup; the budgets know the jobs of all lookups of its service.
        """
        if not self.budgets:
            return
        for token in await _step(self.lookup, _jobs):
            await settle_job(self.lookup, token, files.job(token).done)

    def _amounts(self, at: float) -> dict[str, int]:
        """Return the billionths of each budget of the period of a time, by its name."""
        return {budget.name(_day(at), scope): budget.parts for scope, budget in self.budgets}

    def _subject(self, name: str, at: float) -> str:
        scope, budget = next(
            pair for pair in self.budgets if pair[1].name(_day(at), pair[0]) == name
        )
        payer = scope or self.lookup.service_name
        return f"the budget of {payer}, {budget.amount} per {budget.per},"


async def settle_job(lookup: JobLookup, token: str, done: Mapping[str, Any]) -> None:
    """Have the budgets count what a job was billed. While they have no store it counts at its most.

    done: The stored facts of its end; every program that settles the job counts the same amount.
    """
    if done.get("budgeted"):
        await _settle_at(lookup, token, _parts(done))


async def _settle_at(lookup: JobLookup, token: str, amount: int) -> None:
    try:
        await _step(lookup, partial(_settle, owner=f"{JOB}{token}", amount=amount))
    except StoreLost as lost:
        _log.warning(
            "lookup %s: job %s counts in its budgets at its most until a run settles it: %s",
            lookup.name, token, lost,
        )  # fmt: skip


def _jobs(book: LeaseBook, _now: float) -> list[str]:
    """Return the tokens of the jobs that count at their most."""
    return [owner.removeprefix(JOB) for owner in book.unsettled if owner.startswith(JOB)]


def _spend(
    book: LeaseBook, now: float, *, owner: str, amount: int, amounts: Mapping[str, int]
) -> tuple[str, bool]:
    is_new = owner not in book.unsettled
    return book.spend(owner, amount, amounts, now=now), is_new


def _settle(book: LeaseBook, _now: float, *, owner: str, amount: int) -> None:
    book.settle(owner, dict.fromkeys(book.unsettled.get(owner, ()), amount))


async def _step(lookup: JobLookup, decide: Callable[[LeaseBook, float], Found]) -> Found:
    return await in_store(limits_url(), lambda store: store.step(service_identity(lookup), decide))


def _parts(facts: Mapping[str, Any]) -> int:
    return math.ceil(Decimal(facts.get("cost", 0)) * PARTS)


def _day(at: float) -> dt.date:
    return dt.datetime.fromtimestamp(at, dt.UTC).date()
