"""The current holders of each limit over runs, and the paused services, from the store of the limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.limits.lease_book import LeaseBook
from jobs.limits.store_url import open_store


@dataclass(frozen=True)
class Holder:
    """One run's part of one limit.

    Attributes:
        service: Name of the service in the store.
        limit: Name of the limit.
        amount: The whole amount of the limit.
        run: Name and host of the run.
        holds: The amount that the run has.
        due: Its target.
        wants: The amount that it could use.
        expires_in: Seconds until its lease expires.
    """

    service: str
    limit: str
    amount: int
    run: str
    holds: int
    due: int
    wants: int
    expires_in: float


@dataclass(frozen=True)
class Pause:
    service: str
    seconds: float
    reason: str


def holders_and_pauses(url: str) -> tuple[list[Holder], list[Pause]]:
    """Read the holders and the pauses.

    Args:
        url: Address of the store.

    Returns:
        The holders and the pauses at this moment.

    Raises:
        StoreLost: The store is unreachable.
        DeclarationError: The address is not that of a store.
    """
    books, now = asyncio.run(_books(url))
    pauses = [Pause(service, *pause) for service, book in books.items() if (pause := book.pause(now)) is not None]
    return [one for service, book in books.items() for one in _holders(service, book, now)], pauses


async def _books(url: str) -> tuple[dict[str, LeaseBook], float]:
    store = open_store(url)
    try:
        return await store.books()
    finally:
        await store.close()


def _holders(service: str, book: LeaseBook, now: float) -> Iterator[Holder]:
    book.expire(now)
    for row in book.rows(now):
        if row["holds"] or row["wants"]:
            yield Holder(
                service, row["limit"], row["amount"], row["owner"], row["holds"], row["due"], row["wants"],
                row["expires_in_s"],
            )  # fmt: skip
