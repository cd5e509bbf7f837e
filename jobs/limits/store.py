"""The interface of stores of the books, which all runs share: atomic steps on one book, and one clock."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from jobs.errors import TidegateError
from jobs.limits.lease_book import LeaseBook

Found = TypeVar("Found")


class StoreLost(TidegateError):  # noqa: N818  # what happened
    """The store of the limits is unreachable, or does not answer in time."""


class LimitStore(Protocol):
    """Bound to one event loop. Any call may raise StoreLost; its effect may have happened nevertheless."""

    async def step(self, service: str, decide: Callable[[LeaseBook, float], Found]) -> Found:
        """Call `decide` with the book of a service and the store's time, and store the changed book atomically.

        After a concurrent change, `decide` is called again with the new book.
        """

    async def books(self) -> tuple[dict[str, LeaseBook], float]:
        """All books by service, and the store's time."""

    def changes(self) -> AsyncIterator[str]:
        """The names of services whose gate any run closed or opened, as it happens."""

    async def tell(self, service: str) -> None:
        """Notify all runs that iterate over `changes`."""

    async def close(self) -> None: ...
