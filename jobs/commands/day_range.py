"""The days of a range, for commands and jobs."""

from __future__ import annotations

import datetime as dt

from jobs.declare.calendar import require_day
from jobs.errors import DeclarationError


def day_range(first: str, last: str, *, names: tuple[str, str]) -> list[str]:
    """Every day from first to last, both included, in order. names: the two options' names for messages.

    Raises:
        DeclarationError: One of them is not a day, or the last is before the first.
    """
    begin, end = (dt.date.fromisoformat(require_day(*given)) for given in zip((first, last), names, strict=True))
    if end < begin:
        raise DeclarationError(f"{names[1]} is {end}, before {names[0]}, {begin}.")
    return [(begin + dt.timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]
