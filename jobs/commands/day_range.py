"""The days of a range, for commands and jobs."""

import datetime as dt

from jobs.declare.enrichment import Enrichment
from jobs.declare.values.calendar import day_begin, hours_between, is_day, require_day
from jobs.errors import DeclarationError


def day_range(
    enrichment: Enrichment, first: str, last: str, *, names: tuple[str, str]
) -> list[str]:
    """Return every day from first to last, both included, in order.

    For an enrichment by hours, return every hour of these days, or from hour to hour. A message
    calls the two ends by `names`, such as `--from` and `--to`.

    Raises:
        DeclarationError: An end is not a day, or the last is before the first.
    """
    require_range(enrichment, first, last, names=names)
    if not isinstance(enrichment.input.every, str):
        return [first]
    if enrichment.input.every == "hour":
        return hours_between(day_begin(first, enrichment.zone), day_end(last, enrichment.zone))
    first_day, last_day = (dt.date.fromisoformat(day) for day in (first, last))
    return [
        (first_day + dt.timedelta(days=number)).isoformat()
        for number in range((last_day - first_day).days + 1)
    ]


def require_range(enrichment: Enrichment, first: str, last: str, *, names: tuple[str, str]) -> None:
    """Raise DeclarationError as `day_range`, without a list of the days, which may be many."""
    for day, name in zip((first, last), names, strict=True):
        _require_end(enrichment, day, name)
    if not isinstance(enrichment.input.every, str):
        if first == last:
            return
        raise DeclarationError(
            f"{names[0]} and {names[1]} differ, and partitions with names have no order; "
            "give the same name for both."
        )
    if day_end(last, enrichment.zone) <= day_begin(first, enrichment.zone):
        raise DeclarationError(f"{names[1]} is {last}, before {names[0]}, {first}; exchange them.")


def _require_end(enrichment: Enrichment, day: str, name: str) -> None:
    """Raise DeclarationError unless an option's `day` is a day, an hour or a name, as the input
    requires.
    """
    every = enrichment.input.every
    if not (every == "hour" and is_day(day)):
        require_day(day, name, every)


def has_day(enrichment: Enrichment, day: str) -> bool:
    """Return whether a day or hour lies between `start` and `end` of the enrichment."""
    begin, zone = day_begin(day, enrichment.zone), enrichment.zone
    return day_begin(enrichment.start, zone) <= begin and (
        enrichment.end is None or begin < day_begin(enrichment.end, zone)
    )


def day_end(day: str, zone: str) -> dt.datetime:
    """Return when a day of the time zone, or an hour, ends; in UTC."""
    if is_day(day, "hour"):
        return day_begin(day, zone) + dt.timedelta(hours=1)
    if day == dt.date.max.isoformat():
        return dt.datetime.max.replace(tzinfo=dt.UTC)
    return day_begin((dt.date.fromisoformat(day) + dt.timedelta(days=1)).isoformat(), zone)
