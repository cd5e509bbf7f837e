"""Settles the budgets of killed runs by their bills."""

import asyncio
from contextlib import suppress
from functools import partial

from jobs.errors import TidegateError
from jobs.limits.lease_book import LeaseBook
from jobs.limits.store import LimitStore
from jobs.limits.store_url import in_store, limits_url
from jobs.schema.records import RunBill
from jobs.tables.records import run_bills, run_records


def owner_of_run(process: str, run_id: str) -> str:
    """Return the name under which a run of a driver process holds its leases."""
    return f"{process}/{run_id}"


async def settle(store: LimitStore) -> None:
    """Make budgets of killed runs count what their bills here say, instead of what they held.

    A run is settled once its lease has expired, because then all its calls have ended. Without its
    bill, as on another machine, all that it held counts as spent.
    """
    books, now = await store.books()
    settled: list[RunBill] = []
    for service, book in books.items():
        book.expire(now)
        for owner, held in [*book.unsettled.items()]:
            run_id = owner.partition("/")[2]
            bill = run_records.bill_of(run_id) if run_id else None
            spent = None if bill is None else run_bills.spent(bill, service)
            if bill is not None and spent is not None:
                await store.step(
                    service, partial(_settle, owner=owner, spent=dict.fromkeys(held, spent))
                )
                settled.append(bill)
    for bill in settled:
        if run_records.of_run(bill.enrichment, bill.day, bill.run_id) is not None:
            run_bills.end(bill)


def _settle(book: LeaseBook, now: float, *, owner: str, spent: dict[str, int]) -> None:
    book.expire(now)
    book.settle(owner, spent)


def settle_killed_runs() -> None:
    """Settle in the store of the limits, if it can be used: a report needs no store."""
    with suppress(TidegateError):
        if url := limits_url():
            asyncio.run(in_store(url, settle))
