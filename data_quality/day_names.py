"""Names of partitions: a day, 2013-01-10; an hour, 2013-01-10T05Z; or a name of the user."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class DayName:
    """A day or an hour.

    Attributes:
        date: The date; of an hour, its date in UTC.
        hour: Such as T05Z; empty for a day.
    """

    date: dt.date
    hour: str

    @classmethod
    def read(cls, day: str) -> Self | None:
        """Parse a day or an hour; return None for a partition with a name that the user chose."""
        return cls(dt.date.fromisoformat(day[:10]), day[10:]) if day[0].isdigit() else None

    def earlier(self, days: Iterable[int]) -> list[str]:
        """Return the names of this day, or hour, so many days earlier; none before the year 1."""
        number = self.date.toordinal()
        known = (dt.date.fromordinal(number - back) for back in days if back < number)
        return [f"{date}{self.hour}" for date in known]
