"""Computes the deadline of a day, and the restart of a day that a service stopped."""

import datetime as dt
from zoneinfo import ZoneInfo

from jobs.commands.day_range import has_day
from jobs.declare.enrichment import Enrichment
from jobs.declare.values.calendar import last_ended

AGAIN_AFTER = dt.timedelta(minutes=15)  # from the end of the run that was stopped


def deadline(enrichment: Enrichment, day: str) -> dt.datetime | None:
    """Return publish_by on the day after, in UTC; None without publish_by.

    A time that summer time skips is an hour later.
    """
    if enrichment.publish_by is None or day == dt.date.max.isoformat():
        return None
    after = dt.date.fromisoformat(day) + dt.timedelta(days=1)
    time = dt.time.fromisoformat(enrichment.publish_by)
    return dt.datetime.combine(after, time, ZoneInfo(enrichment.zone)).astimezone(dt.UTC)


def yesterday(enrichment: Enrichment, now: dt.datetime) -> str:
    """Return the day or hour before `now` in the enrichment's zone; empty for named partitions."""
    return last_ended(now, enrichment.input.every, enrichment.zone)


def local_time(enrichment: Enrichment, at: dt.datetime, form: str = "%H:%M") -> str:
    """Return a moment for people, in the enrichment's time zone and with its name: 06:30 UTC."""
    return f"{at.astimezone(ZoneInfo(enrichment.zone)):{form}} {enrichment.zone}"


def next_start(enrichment: Enrichment, day: str, stopped_at: dt.datetime) -> dt.datetime | None:
    """Return when a stopped day is restarted automatically; None if its deadline comes first."""
    until = deadline(enrichment, day)
    start = stopped_at + AGAIN_AFTER
    return start if until is not None and start < until else None


def day_awaited(enrichment: Enrichment, now: dt.datetime) -> str | None:
    """Return yesterday, until its deadline; else None."""
    if enrichment.publish_by is None:
        return None
    day = yesterday(enrichment, now)
    until = deadline(enrichment, day)
    return day if until is not None and now < until and has_day(enrichment, day) else None


def day_due(enrichment: Enrichment, now: dt.datetime) -> str | None:
    """Return the last day whose deadline has passed, if it is declared; else None."""
    if enrichment.publish_by is None:
        return None
    latest = dt.date.fromisoformat(yesterday(enrichment, now))
    for day in (latest.isoformat(), (latest - dt.timedelta(days=1)).isoformat()):
        until = deadline(enrichment, day)
        if until is not None and until <= now:
            return day if has_day(enrichment, day) else None
    return None
