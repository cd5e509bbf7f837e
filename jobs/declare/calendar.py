"""The days, times and time zones of a declaration."""

from __future__ import annotations

import datetime as dt
import difflib
import re
import zoneinfo

from jobs.errors import DeclarationError

CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def is_cron(schedule: str) -> bool:
    """Whether the text is five cron fields with numbers in their ranges."""
    fields = schedule.split()
    return len(fields) == 5 and all(
        re.fullmatch(r"[0-9A-Za-z*,/#-]+", written) is not None
        and all(low <= int(number) <= high for number in re.findall(r"(?<![/#\d])\d+", written))
        for written, (low, high) in zip(fields, CRON_RANGES, strict=True)
    )


def require_zone(zone: str) -> None:
    """Raises DeclarationError unless the text is the name of a time zone."""
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        close = difflib.get_close_matches(zone, zoneinfo.available_timezones(), n=1)
        meant = f" There is {close[0]!r}." if close else ""
        raise DeclarationError(f"zone is {zone!r}; it must name a time zone, as 'Europe/Berlin'.{meant}") from error


def is_day(text: str) -> bool:
    """Whether the text is a day in the form of folder names, 2013-01-10; no other date format counts."""
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def require_day(day: str, where: str = "day") -> str:
    """Return a `day` of the form 2013-01-10. Raises DeclarationError for any other text."""
    if is_day(day):
        return day
    raise DeclarationError(f"{where} is {day!r}; it must be a date, as 2013-01-10.")
