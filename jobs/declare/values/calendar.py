"""The days, hours, named partitions, times and time zones of a declaration."""

import datetime as dt
import difflib
import re
import zoneinfo
from collections.abc import Sequence
from typing import Literal

from jobs.errors import DeclarationError

Every = Literal["day", "hour"] | Sequence[str]  # a sequence names partitions
FRAME = "frame"  # in place of a day: of `enrich`, `try` and `eval`, which write no record
# UTC: a local hour occurs twice when clocks go back, and with its offset it does not sort by time
HOUR = "%Y-%m-%dT%HZ"
MONTHS, WEEKDAYS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec", "sun|mon|tue|wed|thu|fri|sat"
THIRD_FRIDAY = rf"(\d|{WEEKDAYS})#[1-5]"  # 5#3
ALL = r"\*"
CRON_FIELDS = (  # smallest and largest number, a value, and what else the field may be
    (0, 59, r"\d+", ALL),
    (0, 23, r"\d+", ALL),
    (1, 31, r"\d+", "l"),
    (1, 12, rf"(\d+|{MONTHS})", ALL),
    (0, 7, rf"(\d+|{WEEKDAYS})", rf"{THIRD_FRIDAY}(,{THIRD_FRIDAY})*"),
)


def is_cron(schedule: str) -> bool:
    """Return whether the text is five cron fields with numbers in their ranges.

    Dagster's reader takes more: `?`, `@daily`, `L` with a weekday.
    """
    fields = schedule.lower().split()
    return len(fields) == 5 and all(map(_is_cron_field, fields, CRON_FIELDS))


def _is_cron_field(written: str, field: tuple[int, int, str, str]) -> bool:
    low, high, value, special = field
    item = rf"(\*|{value}(-{value})?)(/0*[1-9]\d*)?"
    return bool(
        re.fullmatch(rf"{item}(,{item})*|{special}", written, re.ASCII)
        and all(low <= int(number) <= high for number in re.findall(r"(?<![/#\d])\d+", written))
    )


def require_zone(zone: str) -> None:
    """Raise DeclarationError unless the text is the name of a time zone."""
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        close = difflib.get_close_matches(zone, zoneinfo.available_timezones(), n=1)
        meant = f" There is {close[0]!r}." if close else ""
        raise DeclarationError(
            f"zone is {zone!r}; it must name a time zone, such as 'Europe/Berlin'.{meant}"
        ) from error


def is_day(text: str, every: Every = "day") -> bool:
    """Return whether the text is a day, 2013-01-10, an hour, 2013-01-10T05Z, or one of the names.

    Only these spellings count (not 20130110), because they name folders.
    """
    if not isinstance(every, str):
        return text in every
    try:
        if every == "hour":
            return dt.datetime.strptime(text, HOUR).replace(tzinfo=dt.UTC).strftime(HOUR) == text
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def require_day(day: str, where: str = "day", every: Every = "day") -> str:
    """Return `day` if it is a day, an hour or a name, as `every` requires.

    Args:
        day: 2013-01-10, 2013-01-10T05Z or a name.
        where: Start of the error message.
        every: The input's `every`.

    Raises:
        DeclarationError: It is any other text.
    """
    if is_day(day, every):
        return day
    if not isinstance(every, str):
        raise DeclarationError(f"{where} is {day!r}; it must be one of: {', '.join(every)}.")
    form = (
        "an hour of UTC, such as 2013-01-10T05Z"
        if every == "hour"
        else "a date, such as 2013-01-10"
    )
    raise DeclarationError(f"{where} is {day!r}; it must be {form}.")


def name_unit(days: Sequence[str]) -> str:
    """Return what these are, for a sentence: day, hour or partition."""
    if all(map(is_day, days)):
        return "day"
    return "hour" if all(is_day(day, "hour") for day in days) else "partition"


def only_name(every: Every) -> str | None:
    """Return the name of the only partition of a table without days; else None."""
    return every[0] if not isinstance(every, str) and len(every) == 1 else None


def day_column(every: Every) -> str:
    """Return the rule for the column of the day in a table that is an input."""
    if not isinstance(every, str):
        return f"the column of the partition must be a string, such as {every[0]}"
    if every == "hour":
        return "the column of the hour must be a string such as 2013-01-10T05Z"
    return "the column of the day must be a date, or a string such as 2013-01-10"


def day_begin(day: str, zone: str) -> dt.datetime:
    """Return when a day of the time zone, or an hour, begins, in UTC; for a name, the epoch."""
    if is_day(day, "hour"):
        return dt.datetime.strptime(day, HOUR).replace(tzinfo=dt.UTC)
    if not is_day(day):
        return dt.datetime.fromtimestamp(0, dt.UTC)
    if day == dt.date.min.isoformat():  # east of Greenwich it begins before the year 1
        return dt.datetime.min.replace(tzinfo=dt.UTC)
    return dt.datetime.combine(
        dt.date.fromisoformat(day), dt.time(), zoneinfo.ZoneInfo(zone)
    ).astimezone(dt.UTC)


def last_ended(now: dt.datetime, every: Every, zone: str) -> str:
    """Return yesterday in the time zone, or the hour before `now`'s; empty for names."""
    if not isinstance(every, str):
        return ""
    if every == "hour":
        return (now.astimezone(dt.UTC) - dt.timedelta(hours=1)).strftime(HOUR)
    return (now.astimezone(zoneinfo.ZoneInfo(zone)).date() - dt.timedelta(days=1)).isoformat()


def hours_between(begin: dt.datetime, end: dt.datetime) -> list[str]:
    """Return the hours that begin in [begin, end), in order, each once however clocks change."""
    seconds = range(-(-int(begin.timestamp()) // 3600) * 3600, int(end.timestamp()), 3600)
    return [dt.datetime.fromtimestamp(second, dt.UTC).strftime(HOUR) for second in seconds]


def column_value(day: str) -> dt.date | str:
    """Return what the day's column holds: a date, or the name of an hour or partition."""
    return dt.date.fromisoformat(day) if is_day(day) else day
