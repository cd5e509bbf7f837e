"""HttpLookup on an executor: its requests go through a ServiceSession, its answers to columns by JSON paths."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonpath
from yarl import URL

from jobs.callers.caller import Key, Throttled
from jobs.callers.service_session import ServiceSession
from jobs.lookups.answer_types import cast_all
from jobs.lookups.conditions import Conditions

if TYPE_CHECKING:
    from jobs.lookups import HttpLookup


class HttpCaller:
    """The requests of one partition."""

    def __init__(self, lookup: HttpLookup, share: int) -> None:
        self._lookup = lookup
        self._names = tuple(lookup.keys)
        self._misses = Conditions("miss_when", lookup.miss_when)
        self._throttles = Conditions("throttled_when", lookup.throttled_when)
        self._columns = lookup.columns
        self._paths = [jsonpath.compile(lookup.paths.get(column.name, f"$.{column.name}")) for column in self._columns]
        self._session = ServiceSession(
            lookup.service,
            share,
            attempt_timeout=lookup.attempt_timeout,
            max_answer_bytes=lookup.max_answer_bytes,
            throttled=self._throttles.statuses,
        )

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        await self._session.close()

    async def call(self, key: Key) -> Any | None:
        path = self._lookup.path.format_map(dict(zip(self._names, map(escaped, key), strict=True)))
        url = URL(self._session.base_url + path, encoded=True)
        response = await self._session.request("GET", url, misses=self._misses.statuses)
        if response.is_miss:
            return None
        if self._throttles.hold_for(response.content):
            raise Throttled("throttled, by the answer", response.retry_after)
        return None if self._misses.hold_for(response.content) else response.content

    def columns(self, answer: Any) -> tuple[Any, ...]:
        if not isinstance(answer, dict | list):
            raise ValueError(f"expected a JSON object or array, got {type(answer).__name__}")  # noqa: TRY004  # Caller's word
        matches = (path.match(answer) for path in self._paths)
        try:
            return cast_all(self._columns, (None if match is None else match.value for match in matches))
        except ValueError as error:
            raise ValueError(self._session.masked(str(error))) from error

    def fallback(self, key: Key) -> None:  # noqa: ARG002  # an HTTP lookup has nothing to fall back on
        return None


def escaped(value: Any) -> str:
    """A key's value as it stands in a path; a timestamp in UTC as 2013-01-10T05:00:00Z."""
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.UTC) if value.tzinfo else value
        value = utc.replace(tzinfo=None).isoformat(timespec="microseconds" if utc.microsecond else "seconds") + "Z"
    elif isinstance(value, bool):
        value = "true" if value else "false"
    return quote(str(value), safe="")
