"""Alerts people by a webhook: a message per cause and night, and another when the cause is over.

The sensor's cursor keeps what was sent. A message that cannot be delivered is tried again at the
next look, and later messages wait for it; a message that was delivered just before Dagster died is
sent twice. A table whose records cannot be read is named, and looked at again.
"""

import dataclasses
import datetime as dt
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import dagster as dg

from orchestration.common.deadlines import day_due, deadline, local_time
from orchestration.common.states import NO_ALARM, WAITING
from orchestration.common.webhook import WEBHOOK, host, post, reason
from orchestration.dagster.assets.day_status import (
    StatusEvent,
    failed_runs,
    last_number,
    latest_status,
    published_times,
    status_events,
)
from orchestration.dagster.declared import Declared, shared_name
from orchestration.dagster.errors import noting
from orchestration.dagster.home import UI_URL
from orchestration.dagster.sensors.starts_days import Clock, utc_now

LOOK_EVERY = 30  # s
NIGHT_ENDS = dt.timedelta(hours=12)  # after midnight, UTC


@dataclass(frozen=True)
class Message:
    """A message to the webhook.

    Attributes:
        text: For people; the other fields are for machines.
        state: "not published" or "published".
    """

    text: str
    state: str
    cause: str
    enrichment: str
    day: str
    url: str


@dataclass
class Open:
    """A reported cause that is not over."""

    night: str  # of the last message about it
    since: str  # when it last occurred
    days: list[list[str]]  # enrichment and day of each day that it kept from readers


@dataclass
class AlertCursor:
    """The cursor: read observations by enrichment, open causes, and checked deadlines."""

    read: dict[str, int] = field(default_factory=dict)
    open: dict[str, Open] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(
            values["read"],
            {cause: Open(**alarm) for cause, alarm in values["open"].items()},
            values["missed"],
        )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def alerts(all_declared: Sequence[Declared], now: Clock = utc_now) -> dg.SensorDefinition:
    """Return the sensor for all enrichments: a service that is down causes a single message,
    however many enrichments call it.
    """

    @dg.sensor(
        name=shared_name(all_declared, "alerts"),
        minimum_interval_seconds=LOOK_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Posts to the webhook in {WEBHOOK}: once per cause and night when a day is not "
            "published, and once when all the days of that cause are."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        webhook = os.environ.get(WEBHOOK)
        if not webhook:
            return dg.SensorResult(skip_reason=f"{WEBHOOK} is not set: no alert is sent.")
        reported = AlertCursor.from_json(context.cursor) if context.cursor else AlertCursor()
        sent, unread = 0, list[str]()
        try:
            for message in news(context.instance, all_declared, reported, now(), unread):
                post(webhook, dataclasses.asdict(message))
                sent += 1
            result = f"{sent} messages sent."
        except OSError as error:  # the message counts as unsent, and is tried again
            result = f"The webhook{host(webhook)} took {sent} messages, then none: {reason(error)}."
        result = " ".join([result, *dict.fromkeys(unread)])
        return dg.SensorResult(skip_reason=result, cursor=reported.to_json())

    return sensor


def news(
    instance: dg.DagsterInstance,
    all_declared: Sequence[Declared],
    reported: AlertCursor,
    now: dt.datetime,
    unread: list[str],
) -> Iterator[Message]:
    """Yield the messages to send; a message counts as sent when the next is requested.

    Adds to `unread` what cannot be read.
    """
    by_name = {declared.name: declared for declared in all_declared}
    for declared in all_declared:
        if declared.name not in reported.read:  # events before the first look are not reported
            reported.read[declared.name] = last_number(instance, declared)
            reported.missed[declared.name] = day_due(declared.enrichment, now) or ""
        for status in status_events(instance, declared, reported.read[declared.name]):
            yield from _not_published(status, declared, reported)
            reported.read[declared.name] = status.number
        with noting(unread, declared.name):
            yield from _missed(instance, declared, reported, now)
    for cause, alarm in list(reported.open.items()):
        with noting(unread, alarm.days[0][0]):
            yield from _over(cause, by_name, reported)


def _not_published(
    status: StatusEvent, declared: Declared, reported: AlertCursor
) -> Iterator[Message]:
    if status.state in NO_ALARM:
        return
    night, day = _night(status.at), [status.enrichment, status.day]
    known = reported.open.get(status.cause)
    if known is None or known.night != night:
        text = (
            f"{_who(declared)} {status.day} not published ({status.state}). "
            f"{status.reason.rstrip('.')}. Readers see: {status.readers_see}. "
            f"Next: {status.next_step}"
        )
        yield _message(
            text,
            "not published",
            status.cause,
            declared,
            day=status.day,
            page=f"runs/{status.run_id}",
        )
    days = known.days if known else []
    reported.open[status.cause] = Open(
        night, status.at.isoformat(), days if day in days else [*days, day]
    )


def _missed(
    instance: dg.DagsterInstance, declared: Declared, reported: AlertCursor, now: dt.datetime
) -> Iterator[Message]:
    """Yield a message for a day past its deadline without a cause: the run is late or absent."""
    day = day_due(declared.enrichment, now)
    if day is None or reported.missed.get(declared.name) == day:
        return
    at_work = any([declared.name, day] in alarm.days for alarm in reported.open.values())
    until = deadline(declared.enrichment, day)
    if not published_times(declared, day) and not at_work and until is not None:
        cause = f"{declared.name} {day} late"
        page, runs = _page(declared, day), "no run of it has failed"
        # without an observation, as when a declaration cannot be loaded
        if failed := failed_runs(instance, declared, day):
            page, runs = f"runs/{failed[0].run_id}", "a run of it failed, and its page says why"
        status = latest_status(instance, declared, day)
        if status and status.state == WAITING:  # its run failed, too
            page, runs = f"runs/{status.run_id}", f"it waits: {status.reason.rstrip('.')}"
        text = (
            f"{_who(declared)} {day} not published by {local_time(declared.enrichment, until)}, "
            f"its deadline; {runs}."
        )
        yield _message(text, "not published", cause, declared, day=day, page=page)
        reported.open[cause] = Open(_night(now), until.isoformat(), [[declared.name, day]])
    reported.missed[declared.name] = day


def _over(cause: str, by_name: dict[str, Declared], reported: AlertCursor) -> Iterator[Message]:
    alarm = reported.open[cause]
    days = [(by_name[name], day) for name, day in alarm.days if name in by_name]
    published = [max(published_times(declared, day), default=None) for declared, day in days]
    since = dt.datetime.fromisoformat(alarm.since)
    if any(at is None or at < since for at in published):
        return
    if days:
        at, declared, day = max(
            ((at, *pair) for at, pair in zip(published, days, strict=True) if at),
            key=lambda pair: pair[0],
        )
        days_named = day if len(days) == 1 else f"{day}, the last of {len(days)} days of one cause,"
        late = _after_deadline(declared, day, at)
        text = (
            f"{_who(declared)} {days_named} published {local_time(declared.enrichment, at)}{late}. "
            f"Over: {cause.rstrip('.')}."
        )
        yield _message(text, "published", cause, declared, day=day, page=_page(declared, day))
    del reported.open[cause]


def _after_deadline(declared: Declared, day: str, at: dt.datetime) -> str:
    until = deadline(declared.enrichment, day)
    # a backfill has no deadline to miss
    if until is None or at <= until or at - until > dt.timedelta(days=1):
        return ""
    return f", {(at - until) // dt.timedelta(minutes=1)} min after its deadline"


def _night(at: dt.datetime) -> str:
    return (at.astimezone(dt.UTC) - NIGHT_ENDS).date().isoformat()


def _who(declared: Declared) -> str:
    return f"[{', '.join(declared.enrichment.owners) or 'no owner'}] {declared.name}"


def _page(declared: Declared, day: str) -> str:
    return f"assets/{declared.key.to_user_string()}?view=partitions&partition={day}"


def _message(
    text: str, state: str, cause: str, declared: Declared, *, day: str, page: str
) -> Message:
    place = os.environ.get(UI_URL) or "http://127.0.0.1:3000"
    url = f"{place.rstrip('/')}/{page}"
    return Message(f"{text} {url}", state, cause, declared.name, day, url)
