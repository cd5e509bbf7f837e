"""Runs a user's coroutine on an executor, with requests through the service's session."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Self

from aiohttp import FormData
from yarl import URL

from jobs.clients.client import (
    CallFailed,
    Redirected,
    RunsUserCode,
    Throttled,
    Unclear,
    failed_by_cancel,
    failed_by_user,
    unsettled,
)
from jobs.clients.http.http_session import NO_HEADERS, Read, ServiceSession, ask_renewing
from jobs.clients.http.refusals import StatusFailed
from jobs.clients.http.session_client import SessionClient
from jobs.clients.http.streamed_bodies import json_lines, multipart, read_to_file, spooled_lines
from jobs.clients.request_counter import IN_CALL, LEAVING, RequestCounts, Unasked, counts_of
from jobs.declare.answers.answer_casts import cast_all
from jobs.declare.answers.usage import MOST, as_count
from jobs.declare.coroutine_lookup import NO_BODY, CoroutineLookup, Row
from jobs.declare.limits.rates import REQUEST
from jobs.declare.lookup import Key
from jobs.declare.values.addresses import OF_PATHS, is_below, leads_elsewhere, with_escapes
from jobs.declare.values.prices import SENT, priced_units, reported_units, singular
from jobs.declare.values.templates import as_json, as_text, dumped
from jobs.errors import RunStopped, TidegateError

NDJSON = "application/x-ndjson"

Asking = Coroutine[Any, Any, Any]


class CoroutineClient(SessionClient, RunsUserCode):
    def __init__(self, lookup: CoroutineLookup, share: int) -> None:
        self._lookup = lookup
        self.name = lookup.name
        self._columns = lookup.columns
        self._names = tuple(lookup.keys)
        self._counts = counts_of(lookup.name)
        self._counts.model = lookup.model
        self._is_reported = bool(reported_units(lookup.prices))
        self._session = ServiceSession(
            lookup.service,
            share,
            attempt_timeout=lookup.attempt_timeout,
            max_answer_bytes=lookup.max_answer_bytes,
            throttled=lookup.throttled_when,
            counts=self._counts,
        )

    async def call(self, key: Key) -> Any | None:
        priced = set(priced_units(self._lookup.prices))
        priced |= {rate.unit for rate in self._lookup.rates} - {REQUEST} if priced else set()
        requests = Requests(self._session, self._counts, priced, key)
        has_answer = False
        self._session.call_begins(key)
        try:
            async with requests:
                answer = await self._run(key, requests)
            self._session.refuse_doubtful(key)
            has_answer = True
        except (CallFailed, Throttled) as error:
            if self._lookup.repeatable or not requests.have_acted:
                raise
            raise unsettled(error) from error
        finally:
            if not has_answer:
                self._counts.lost += requests.billed
            if requests.have_lost and (call := IN_CALL.get()) is not None:
                call.note_unknown_use()
            is_known = not requests.have_lost and (has_answer or requests.are_billed)
            self._counts.unknown_use += self._is_reported and not is_known
        return answer

    async def _run(self, key: Key, requests: Requests) -> Any | None:
        try:
            answer = await self._lookup.function(
                Row(dict(zip(self._names, key, strict=True))), requests
            )
        except asyncio.CancelledError as error:
            raise failed_by_cancel(error) from error
        except BaseException as error:
            if requests.about_all is not None:  # takes precedence over the function's result
                raise requests.about_all from error
            if isinstance(error, TidegateError | CallFailed | Throttled):
                raise
            failed = failed_by_user(error, self._lookup.function.__module__)
            reason = self._session.masked(str(failed))
            raise (
                CallFailed(reason, passing=True) if isinstance(error, OSError) else Unclear(reason)
            ) from error
        if requests.about_all is not None:
            raise requests.about_all
        if answer is not None and not isinstance(answer, Mapping):
            raise Unclear(
                f"the function gave {type(answer).__name__}; it must give a dict, or "
                "None for a miss"
            )
        return None if answer is None else dict(answer)

    def columns(self, answer: Any) -> tuple[Any, ...]:
        try:
            return cast_all(self._columns, [answer.get(column.name) for column in self._columns])
        except ValueError as error:
            raise ValueError(self._session.masked(str(error))) from error


class Requests:
    """Http for a run of the coroutine.

    Attributes:
        about_all: Throttling or denied access, even if the function caught it.
        billed: Units that the run billed.
        have_lost: Whether a request was sent that got no whole answer.
        have_acted: Whether a request other than a GET was sent, and not refused.
        are_billed: Whether the run billed after its last answer, or had none.
        are_whole: HTTP marked the end of all lines read; otherwise the connection may have been cut
            after a line.
    """

    are_whole = True

    def __init__(
        self, session: ServiceSession, counts: RequestCounts, priced: Collection[str], key: Key
    ) -> None:
        self._session = session
        self._keys = [key]
        self._has_empty_key = "" in key
        self._counts = counts
        self._priced = priced
        self.billed: Counter[str] = Counter()
        self.have_lost, self.have_acted, self.are_billed = False, False, True
        self._has_answer = False
        self._unasked = Unasked(1)  # counts the run's key once
        self.about_all: Throttled | RunStopped | None = None
        # requests, and the task that awaits each
        self._under_way: dict[Asking, asyncio.Task[Any] | None] = {}
        self._wrappers: dict[Asking, Asking] = {}
        self._is_over = False
        self._unheard: Exception | None = None  # the error of a request that no caller awaits
        self._ended = asyncio.Event()

    def get(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (404,),
    ) -> Asking:
        return self._asked("GET", path, params=params, miss=miss, headers=headers)

    def post(
        self,
        path: str,
        *,
        json: Any = NO_BODY,
        lines: Iterable[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (),
    ) -> Asking:
        body = _body(json, lines)
        return self._asked("POST", path, params=params, body=body, miss=miss, headers=headers)

    def put(
        self,
        path: str,
        *,
        json: Any = NO_BODY,
        lines: Iterable[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (),
    ) -> Asking:
        body, read = _body(json, lines), self._session.read_if_any
        return self._asked(
            "PUT", path, params=params, body=body, miss=miss, headers=headers, read=read
        )

    def delete(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (404,),
    ) -> Asking:
        read = self._session.read_if_any
        return self._asked("DELETE", path, params=params, miss=miss, headers=headers, read=read)

    def upload(
        self,
        path: str,
        *,
        lines: Iterable[Any],
        field: str = "file",
        name: str = "items.jsonl",
        fields: Mapping[str, str] = NO_HEADERS,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Asking:
        body = multipart(spooled_lines(lines), field=field, name=name, fields=fields)
        return self._asked("POST", path, body=body, headers=headers)

    async def lines(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> AsyncIterator[Any]:
        plain = {**headers, "Accept-Encoding": "identity"}
        body = await self._asked("GET", path, params=params, headers=plain, read=read_to_file)
        self.are_whole &= body.is_sized
        for value in json_lines(body):
            yield value

    # -- requests that the function does not await -------------------------------------------------
    def _asked(self, method: str, path: str, **options: Any) -> Asking:
        if self._is_over:
            raise RuntimeError(
                "http is used after the function returned; nothing was sent. Await each request "
                "before the function returns"
            )
        request = self._request(method, path, **options)
        self._under_way[request] = None
        self._wrappers[request] = self._awaited(request)
        return self._wrappers[request]

    async def _awaited(self, request: Asking) -> Any:
        self._under_way[request] = asyncio.current_task()
        try:
            return await request
        except Exception as error:
            if self._is_over:
                self._unheard = error
            raise
        finally:
            del self._under_way[request], self._wrappers[request]
            self._ended.set()

    async def __aenter__(self) -> Self:
        """Begin the run of the function."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        """Wait for requests that the function did not await; cancel them after its failure.

        Raises:
            CallFailed: A request was never awaited.
            Exception: A request failed unnoticed.
        """
        self._is_over = True
        if not self._under_way:
            return
        await asyncio.sleep(0)  # coroutines just passed to a task begin
        never = 0
        for request in [request for request, task in self._under_way.items() if task is None]:
            del self._under_way[request]
            wrapper = self._wrappers.pop(request)
            never += getcoroutinestate(wrapper) == CORO_CREATED  # else cancelled before it began
            wrapper.close()
            request.close()
        try:
            while self._under_way:
                if error is not None:
                    self._cancel()
                self._ended.clear()
                await self._ended.wait()
        finally:
            self._cancel()
        if error is None and never:
            raise CallFailed(
                f"the function does not await {never} of its requests, so nothing was sent: "
                "write `await http...`"
            )
        unheard = self.about_all or self._unheard
        if error is None and unheard is not None:
            raise unheard

    def _cancel(self) -> None:
        for task in self._under_way.values():
            if task is not None and task is not asyncio.current_task():
                task.cancel()

    def bill(self, **units: int) -> None:
        counted: dict[str, int] = {}
        for name, many in units.items():
            unit = singular(name)
            if unit in SENT or (self._priced and unit not in self._priced):
                raise ValueError(
                    f"bill({name}=...): no price of the service is per {unit}; declare one, or "
                    f"leave {name} out"
                )
            count = as_count(many)
            if count is None:
                raise ValueError(
                    f"bill({name}={many!r}): it must be a whole number, from 0 to {MOST:,}"
                )
            counted[unit] = counted.get(unit, 0) + count
        self._counts.bill(counted)
        self.billed.update(counted)
        self.are_billed = True

    def _url(self, path: str) -> URL:
        """Return the URL of a request. Raises ValueError if a key would change the address."""
        segments = path.split("/")[1:]
        # a trailing slash may be intended, unless an empty key makes it
        is_cut = self._has_empty_key and not segments[-1]
        url = URL(self._session.base_url + path)
        if (
            "" in segments[:-1]
            or is_cut
            or leads_elsewhere(path)
            or not is_below(self._session.base_url, url)
        ):
            raise ValueError(
                f"path is {path!r}, which leads to another address of the service; nothing was "
                'sent. Escape a key in a path: urllib.parse.quote(key, safe="")'
            )
        base = URL(self._session.base_url).raw_path.rstrip("/")
        return url.with_path(base + with_escapes(path, OF_PATHS), encoded=True)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        miss: Collection[int] = (),
        headers: Mapping[str, str] = NO_HEADERS,
        read: Read | None = None,
    ) -> Any:
        if not path.startswith("/") or "?" in path or "#" in path:
            raise ValueError(
                f"path is {path!r}; it must start with / and hold no ? and no #: "
                "values go in params"
            )
        if nothing := [name for name, value in (params or {}).items() if _has_none(value)]:
            raise ValueError(
                f"params: {', '.join(nothing)} is None, has None or is an empty list, which a "
                "query cannot express: leave it out"
            )
        query = {name: _parameter(value) for name, value in (params or {}).items()}
        url = self._url(path).with_query(query)
        if body is not None and not isinstance(body, bytes | FormData):
            headers = {"Content-Type": NDJSON, **headers}
        is_refused = False
        ask = partial(
            self._session.request, method, url, body=body, misses=miss, items=self._unasked,
            keys=self._keys, headers=headers, read=read,
        )  # fmt: skip
        # a file cannot be sent again
        is_paid = self._has_answer and isinstance(body, bytes | None)
        try:
            response = await ask_renewing(ask, is_paid=is_paid)
            self._has_answer = True
        except (Throttled, RunStopped) as message:
            is_refused, self.about_all = True, message
            raise
        except (StatusFailed, Redirected):
            is_refused = True  # services do not bill it, as in HttpLookup
            raise
        finally:
            request = LEAVING.get()
            if request.was_sent and not is_refused:
                self.are_billed = False
                self.have_lost |= request.used is None
                self.have_acted |= method != "GET"
        return response.content


def _has_none(value: Any) -> bool:
    """Return whether a parameter is nothing, with which a service would answer for all values."""
    return value is None or (isinstance(value, list | tuple) and (not value or None in value))


def _parameter(value: Any) -> str | list[str]:
    """Return the value of a parameter; a list is a parameter that is repeated."""
    return [as_text(item) for item in value] if isinstance(value, list | tuple) else as_text(value)


def _body(json: Any, lines: Iterable[Any] | None) -> Any:
    """Return the body of a request: JSON as bytes, or a file of lines."""
    if lines is not None and json is not NO_BODY:
        raise ValueError("json and lines are both given; a request has one body: leave one out")
    if json is not NO_BODY:
        return dumped(as_json(json))
    return None if lines is None else spooled_lines(lines)
