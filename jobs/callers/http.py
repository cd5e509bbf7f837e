"""HttpLookup on an executor: aiohttp in, answers or our own errors out. aiohttp's errors end here."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import math
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import jsonpath
from yarl import URL

from jobs.callers.authorizing import authorizer
from jobs.callers.caller import CallFailed, Key, Throttled
from jobs.errors import RunStopped
from jobs.lookups.answer_types import cast_all
from jobs.lookups.conditions import Conditions

if TYPE_CHECKING:
    from jobs.lookups import HttpLookup

RETRY_AFTER_UNSAID = 1.0  # s, when a throttled answer names no time


class HttpCaller:
    """One aiohttp session for a partition, with as many connections as it may have calls in flight."""

    def __init__(self, lookup: HttpLookup, share: int) -> None:
        self._lookup = lookup
        self._share = share
        self._session: aiohttp.ClientSession | None = None
        self._base = lookup.service.base_url
        self._authorizer = authorizer(lookup.service.auth, lookup.service_name)
        self._names = tuple(lookup.keys)
        self._misses = Conditions("miss_when", lookup.miss_when)
        self._throttles = Conditions("throttled_when", lookup.throttled_when)
        self._columns = lookup.columns
        self._paths = [jsonpath.compile(lookup.paths.get(column.name, f"$.{column.name}")) for column in self._columns]

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._share),
            timeout=aiohttp.ClientTimeout(total=self._lookup.attempt_timeout),
            raise_for_status=False,
        )
        # aiohttp asks again by itself on a connection that was dropped; every attempt must be one that we count
        self._session._retry_connection = False  # noqa: SLF001  # no public switch in aiohttp 3.14
        await self._authorizer.open()

    async def close(self) -> None:
        await self._authorizer.close()
        if self._session is not None:
            await self._session.close()

    async def call(self, key: Key) -> Any | None:
        assert self._session is not None
        lookup = self._lookup
        path = lookup.path.format_map(dict(zip(self._names, map(escaped, key), strict=True)))
        url = URL(self._base + path, encoded=True)
        headers = await self._authorizer.headers()
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                if response.status == 401 and self._authorizer.refused(headers):
                    raise Throttled("401: the token was taken no more, and is renewed", 0.0)
                self._judge_status(response)
                self._authorizer.accepted(headers)
                if response.status in self._misses.statuses:
                    return None
                answer = json.loads(await self._body(response), parse_constant=refuse_constant)
                if self._throttles.hold_for(answer):
                    raise Throttled("throttled, by the answer", retry_after(response.headers.get("Retry-After")))
                return None if self._misses.hold_for(answer) else answer
        except TimeoutError as error:
            raise CallFailed(f"no answer within {lookup.attempt_timeout} s", passing=True) from error
        except aiohttp.ClientConnectorError as error:
            raise CallFailed(f"cannot connect: {error.os_error.strerror or error.os_error}", passing=True) from error
        except aiohttp.ClientError as error:
            raise self._failure(f"connection lost: {error or type(error).__name__}", passing=True) from error
        except (ValueError, RecursionError) as error:
            raise self._failure(f"the answer is not JSON: {error}", passing=False) from error

    def _judge_status(self, response: aiohttp.ClientResponse) -> None:
        """Raise what a status means, unless it means an answer or a miss."""
        lookup, status = self._lookup, response.status
        if status in self._misses.statuses:
            return
        said = self._authorizer.masked(f"{status} {response.reason}")
        if status in self._throttles.statuses:
            raise Throttled(said, retry_after(response.headers.get("Retry-After")))
        if status in lookup.service.stop_on:
            raise RunStopped(f"{lookup.service_name} at {self._base} refuses us: {said}.")
        if status >= 300:
            raise CallFailed(said, passing=status >= 500)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """The body, read no further than it may be long: what is left of a larger one goes with its connection."""
        largest = self._lookup.max_answer_bytes
        body = bytearray()
        async for part in response.content.iter_any():
            body += part
            if len(body) > largest:
                raise CallFailed(f"the answer is larger than {largest:,} bytes (max_answer_bytes)", passing=False)
        return bytes(body)

    def _failure(self, reason: str, *, passing: bool) -> CallFailed:
        """What others said, without our secrets, should they have said one."""
        return CallFailed(self._authorizer.masked(reason), passing=passing)

    def columns(self, answer: Any) -> tuple[Any, ...]:
        if not isinstance(answer, dict | list):
            raise ValueError(f"expected a JSON object or array, got {type(answer).__name__}")  # noqa: TRY004  # Caller's word
        matches = (path.match(answer) for path in self._paths)
        try:
            return cast_all(self._columns, (None if match is None else match.value for match in matches))
        except ValueError as error:
            raise ValueError(self._authorizer.masked(str(error))) from error

    def fallback(self, key: Key) -> None:  # noqa: ARG002  # an HTTP lookup has nothing to fall back on
        return None


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def escaped(value: Any) -> str:
    """A key's value as it stands in a path; a timestamp in UTC as 2013-01-10T05:00:00Z."""
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.UTC) if value.tzinfo else value
        value = utc.replace(tzinfo=None).isoformat(timespec="microseconds" if utc.microsecond else "seconds") + "Z"
    elif isinstance(value, bool):
        value = "true" if value else "false"
    return quote(str(value), safe="")


def retry_after(header: str | None) -> float:
    """Seconds to wait, from either form of Retry-After: a number of seconds, or a date."""
    if header is None:
        return RETRY_AFTER_UNSAID
    try:
        seconds = float(header)
    except ValueError:
        try:
            when = email.utils.parsedate_to_datetime(header)
        except ValueError:
            return RETRY_AFTER_UNSAID
        when = when if when.tzinfo else when.replace(tzinfo=dt.UTC)  # "-0000" is UTC of unknown origin
        seconds = (when - dt.datetime.now(dt.UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else RETRY_AFTER_UNSAID
