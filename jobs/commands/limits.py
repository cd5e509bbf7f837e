"""Reads each limit's holders over runs, and the paused services, from the store."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.declare.limits.budgets import MONEY, PARTS
from jobs.limits.lease_book import LeaseBook
from jobs.limits.store_url import in_store
from jobs.schema.facts import Facts
from jobs.wording import priced


@dataclass(frozen=True)
class Holder(Facts):
    """A run's part of a limit.

    Attributes:
        service: The service.
        limit: The limit's name.
        amount: The amount of the whole limit.
        run: The run.
        holds: What it holds.
        due: Its target.
        wants: What it could use.
        expires_in: Seconds until its lease expires; None for what is spent for good.
    """

    service: str
    limit: str
    amount: int
    run: str
    holds: int
    due: int
    wants: int
    expires_in: float | None

    @property
    def limit_shown(self) -> str:
        """The limit's amount, if known, and name: `4 calls`, `20.00 USD on 2026-11-27`."""
        amount = f"{self.shown(self.amount)} " if self.amount else ""
        return amount + self.limit.removeprefix(MONEY)

    def shown(self, amount: int) -> str:
        """Return an amount of the limit as text; money in its currency's unit, as costs have it."""
        is_money = self.limit.startswith(MONEY)
        return priced({"": amount / PARTS}).rstrip() if is_money else f"{amount:,}"


@dataclass(frozen=True)
class Pause(Facts):
    service: str
    seconds: float
    reason: str


def holders_and_pauses(url: str) -> tuple[list[Holder], list[Pause]]:
    """Return the store's holders and pauses. Raises StoreLost and DeclarationError."""
    books, now = asyncio.run(in_store(url, lambda store: store.books()))
    pauses = [
        Pause(service, *pause)
        for service, book in books.items()
        if (pause := book.pause(now)) is not None
    ]
    return [
        holder for service, book in books.items() for holder in _holders(service, book, now)
    ], pauses


def _holders(service: str, book: LeaseBook, now: float) -> Iterator[Holder]:
    book.expire(now)
    for row in book.rows(now):
        if row["holds"] or row["wants"]:
            yield Holder(
                service,
                row["limit"],
                row["amount"],
                row["owner"],
                row["holds"],
                row["due"],
                row["wants"],
                row["expires_in_s"] if row["expires_in_s"] < math.inf else None,
            )
