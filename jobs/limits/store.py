"""Where the books of all services lie, so that runs meet: one step on one book at a time, by one clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from jobs.errors import TidegateError
from jobs.limits.lease_book import LeaseBook

Found = TypeVar("Found")


class StoreLost(TidegateError):  # noqa: N818  # what happened
    """The store of the limits is not reached, or does not answer in time."""


class LimitStore(Protocol):
    """Lives on one event loop. Any call may raise StoreLost; what it was to do may have been done all the same."""

    async def step(self, service: str, decide: Callable[[LeaseBook, float], Found]) -> Found:
        """Give the book of a service and the store's time to `decide`, alone, and keep the book that it leaves.

        `decide` may be called again, with the book as it was.
        """

    async def books(self) -> tuple[dict[str, LeaseBook], float]:
        """All books, by service, and the store's time."""

    def changes(self) -> AsyncIterator[str]:
        """Names of services whose gate was closed or opened by anybody, as soon as it is known."""

    async def tell(self, service: str) -> None:
        """Have it told to all who follow `changes`."""

    async def close(self) -> None: ...
