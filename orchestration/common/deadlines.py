"""The deadline of a day, and the restart of a day that a service stopped."""

import datetime as dt

from jobs.declare.enrichment import Enrichment

AGAIN_AFTER = dt.timedelta(minutes=15)  # from the end of the run that was stopped


def has_day(enrichment: Enrichment, day: str) -> bool:
    """Whether the day is one of those that the enrichment declares."""
    return enrichment.start <= day and (enrichment.end is None or day < enrichment.end)


def deadline(enrichment: Enrichment, day: str) -> dt.datetime | None:
    """publish_by, UTC, on the day after; None if the enrichment declares none."""
    if enrichment.publish_by is None:
        return None
    after = dt.date.fromisoformat(day) + dt.timedelta(days=1)
    return dt.datetime.combine(after, dt.time.fromisoformat(enrichment.publish_by), dt.UTC)


def next_start(enrichment: Enrichment, day: str, stopped_at: dt.datetime) -> dt.datetime | None:
    """When a day that a service stopped is restarted automatically; None if its deadline comes first."""
    until = deadline(enrichment, day)
    start = stopped_at + AGAIN_AFTER
    return start if until is not None and start < until else None


def day_awaited(enrichment: Enrichment, now: dt.datetime) -> str | None:
    """Yesterday, until its deadline; else None."""
    day = (now.astimezone(dt.UTC).date() - dt.timedelta(days=1)).isoformat()
    until = deadline(enrichment, day)
    return day if until is not None and now < until and has_day(enrichment, day) else None


def day_due(enrichment: Enrichment, now: dt.datetime) -> str | None:
    """The last day whose deadline has passed; None before the first declared day and after the last one."""
    latest = now.astimezone(dt.UTC).date() - dt.timedelta(days=1)
    for day in (latest.isoformat(), (latest - dt.timedelta(days=1)).isoformat()):
        until = deadline(enrichment, day)
        if until is not None and until <= now:
            return day if has_day(enrichment, day) else None
    return None
