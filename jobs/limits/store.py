"""The interface of stores of the books, which all runs share: atomic steps, and a clock."""

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
    """The stored text is no book. Every step fails until the text is removed."""


class SharedFile(BookCorrupt):
    """Two machines write the file."""


class LimitStore(Protocol):
    """A store bound to an event loop.

    Any call may raise StoreLost; it may have taken effect nevertheless.
    """

    async def step(self, service: str, decide: Callable[[LeaseBook, float], Found]) -> Found:
        """Call `decide` with a service's book and the store's time; store the book atomically.

        After a concurrent change, `decide` is called again with the new book.
        """

    async def books(self) -> tuple[dict[str, LeaseBook], float]:
        """Return all books by service, and the store's time."""

    def changes(self) -> AsyncIterator[str]:
        """Yield the names of services whose gate a run closes or opens, as it happens."""

    async def tell(self, service: str) -> None:
        """Notify all runs that iterate over `changes`."""

    async def check(self) -> None:
        """Raise StoreLost unless books can be written."""

    async def close(self) -> None: ...


def book_in(text: str | None, service: str, place: str) -> LeaseBook:
    """Return the stored book, or an empty book.

    Args:
        text: The stored text; None without a stored book.
        service: The service, for the error.
        place: The store's place, for the error.

    Raises:
        BookCorrupt: The text is no book.
    """
    try:
        # `|` raises TypeError for any JSON but an object
        return LeaseBook({} if text is None else {} | json.loads(text))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise BookCorrupt(
            f"the book of the limits of {service} in {place} is corrupt ({type(error).__name__}: "
            f"{one_line(str(error), 60)}). {REMOVE_IT}"
        ) from error
