"""What a look of a sensor could not read."""

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.errors import TidegateError


@contextmanager
def noting(unread: list[str], name: str) -> Iterator[None]:
    """Note a failed read of a table, so that it does not silence the tables after it."""
    try:
        yield
    except (OSError, TidegateError) as error:
        unread.append(f"{name}: {error}")
