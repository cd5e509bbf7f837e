"""Who holds how much of each limit over runs now, and who waits: what the store of the limits says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.limits.lease_book import LeaseBook
from jobs.limits.store_url import open_store


@dataclass(frozen=True)
class Holder:
    """One run at one limit.

    Attributes:
        service: As the store knows it.
        limit: Name of the limit.
        amount: What there is of it.
        run: Name and host.
        holds: What the run holds.
        due: What it is to have.
        wants: What it could use.
        expires_in: Seconds to the end of its lease.
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
    """A service that nobody calls: for so many seconds more, and why."""

    service: str
    seconds: float
    reason: str


def holders_and_pauses(url: str) -> tuple[list[Holder], list[Pause]]:
    """What the store says at this moment.

    Args:
        url: Of the store.

    Raises:
        StoreLost: It is not reached.
        DeclarationError: It is no address of a store.
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
