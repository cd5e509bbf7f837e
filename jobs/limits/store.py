"""The interface of stores of the books, which all runs share: atomic steps on one book, and one clock."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from jobs.errors import TidegateError
from jobs.limits.lease_book import LeaseBook
from jobs.wording import one_line

Found = TypeVar("Found")
REMOVE_IT = "Remove it once no run is at work; what budgets had spent is forgotten with it"


class StoreLost(TidegateError):  # noqa: N818  # what happened
    """The store of the limits is unreachable, or does not answer in time."""


class BookCorrupt(StoreLost):
    """What the store has is no book, and stays so until somebody removes it."""


class SharedFile(BookCorrupt):
    """Two machines write the file."""


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

    async def check(self) -> None:
        """Raise StoreLost unless books can be written."""

    async def close(self) -> None: ...


def book_in(text: str | None, service: str, place: str) -> LeaseBook:
    """The stored book; an empty one where there is none. place: of the store, to be named in an error.

    Raises:
        BookCorrupt: The text is no book.
    """
    try:
        return LeaseBook(None if text is None else json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BookCorrupt(
            f"the book of the limits of {service} in {place} is corrupt ({type(error).__name__}: "
            f"{one_line(str(error), 60)}). {REMOVE_IT}"
        ) from error
