"""Sends a partition's requests to an HTTP service through aiohttp, and returns JSON."""

import io
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from jobs.clients.client import CallFailed, Throttled, Unclear
from jobs.clients.exchanges import EXCHANGES, Exchange, note, trace
from jobs.clients.http import throttling
from jobs.clients.http.answer_body import READ_BYTES, BrokenOff, error_text, loaded, read_body
from jobs.clients.http.authorizing import authorizer
from jobs.clients.http.connections import HEADS, WatchedConnector
from jobs.clients.http.decoding import CODINGS
from jobs.clients.http.refusals import Refusals
from jobs.clients.http.responses import Response
from jobs.clients.http.secret_texts import without_secrets
from jobs.clients.http.transport import Transport
from jobs.clients.http.watched_connection import QUIET_AT_LEAST, QUIET_AT_MOST
from jobs.clients.request_counter import LEAVING, RequestCounts, Unasked
from jobs.declare.answers.json_text import RepeatedMember, read_json
from jobs.declare.answers.usage import UsageReader
from jobs.declare.lookup import Key
from jobs.declare.services import Service
from jobs.declare.values.addresses import path_secrets, with_parameter

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
NOTHING: Mapping[str, int] = MappingProxyType({})  # used
LARGE_BODY = 1 << 20  # bytes; aiohttp sends bytes in one piece, and files in several

Read = Callable[[aiohttp.ClientResponse], Awaitable[Any]]


class TokenRefused(Throttled):
    """The service no longer accepts the token; the next request has a new one."""


async def ask_renewing(ask: Callable[[], Awaitable[Response]], *, is_paid: bool) -> Response:
    """Send a request; if its token is refused, again with a new one, where the call has paid for
    earlier requests, which a new call would repeat.
    """
    try:
        return await ask()
    except TokenRefused:
        if not is_paid:
            raise
    return await ask()


class ServiceSession:
    """An aiohttp session with a connection per allowed call in flight.

    It verifies certificates and follows no redirects.
    """

    def __init__(
        self,
        service: Service,
        share: int,
        *,
        attempt_timeout: float | None,
        max_answer_bytes: int,
        throttled: Collection[int],
        errors: Collection[int] = (),
        unanswered: Mapping[int, str] = MappingProxyType({}),
        in_items: bool = False,
        counts: RequestCounts,
        headers: Mapping[str, str] = NO_HEADERS,
        secrets: Sequence[str] = (),
        usage: UsageReader | None = None,
    ) -> None:
        """Prepare the session; `open` creates it.

        Args:
            service: The service.
            share: Calls in flight.
            attempt_timeout: Seconds for a request.
            max_answer_bytes: A larger answer is an error.
            throttled: Statuses that mean throttling.
            errors: Statuses that are errors of the key.
            unanswered: Statuses below 300 that are no answers, with the reason.
            in_items: Whether an answer has the answers of several keys, so that an ambiguous object
                may concern only a single key.
            counts: The lookup's counts.
            headers: Sent with every request.
            secrets: Texts to mask in messages.
            usage: Reads from each answer what its request used; None: no answer reports it.
        """
        self.base_url = service.base_url
        self._shown_url = service.shown_url
        self._transport = Transport(service)
        self._secrets = (
            *secrets,
            *self._transport.url_secrets(self.base_url),
            *path_secrets(self.base_url, self._shown_url),
        )
        self._share = share
        self._attempt_timeout = attempt_timeout
        self._max_answer_bytes = max_answer_bytes
        self._refusals = Refusals(service, throttled, errors, unanswered, self.masked)
        self._refused = self._refusals.statuses
        self._in_items = in_items
        self._usage = usage
        self._counts = counts
        self._headers = CIMultiDict(headers)
        self._headers_of_json = CIMultiDict({"Content-Type": "application/json"})
        self._headers_of_json.update(headers)
        self._authorizer = authorizer(service.auth, service.name, self._transport)
        # keys whose answers came into doubt since their last call began
        self._in_doubt: set[str] = set()
        self._tell_doubt: Callable[[Sequence[Key]], None] = lambda _keys: None
        self._note_used_up: Callable[[float], None] = lambda _seconds: None
        self._connector: WatchedConnector
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._connector = WatchedConnector(
            self._quiet, self._doubt, LEAVING.get, limit=self._share, ssl=self._transport.ssl
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=self._attempt_timeout),
            raise_for_status=False,
            headers={"Accept-Encoding": CODINGS},
            auto_decompress=False,  # otherwise an undecodable body looks like a lost connection
            # a cookie from a row's answer would be sent with other rows
            cookie_jar=aiohttp.DummyCookieJar(),
            **HEADS,
            **self._transport.options_for(self.base_url),
        )
        await self._authorizer.open()

    async def close(self) -> None:
        await self._authorizer.close()
        if self._session is not None:
            await self._session.close()

    # -- answers in doubt --------------------------------------------------------------------------
    def tell_doubt(self, tell: Callable[[Sequence[Key]], None]) -> None:
        """Register `tell`, which is called with keys whose connection brought an extra response."""
        self._tell_doubt = tell

    def note_used_up(self, note: Callable[[float], None]) -> None:
        """Register `note`, which is called with the seconds until a used-up limit is reset."""
        self._note_used_up = note

    async def settle(self) -> None:
        """Wait until every connection was silent for long enough to clear its answers of doubt."""
        if self._session is not None:
            await self._connector.settle()

    def _quiet(self) -> float:
        """Return for how long (s) a connection is watched: the time of two requests."""
        counts = self._counts
        return min(
            max(QUIET_AT_LEAST, 2 * counts.seconds / max(1, counts.sent.total())), QUIET_AT_MOST
        )

    def _doubt(self, keys: Sequence[Key]) -> None:
        self._counts.in_doubt += len(keys)
        self._in_doubt.update(map(repr, keys))
        self._tell_doubt(keys)

    def call_begins(self, key: Key) -> None:
        """Clear an earlier doubt about this key."""
        if self._in_doubt:
            self._in_doubt.discard(repr(key))

    def refuse_doubtful(self, key: Key) -> None:
        """Raise CallFailed if this key's new answer is in doubt."""
        if self._in_doubt and repr(key) in self._in_doubt:
            raise CallFailed(
                "its connection gave an extra response, so the answer may be another key's",
                passing=True,
            )

    # -- requests ----------------------------------------------------------------------------------
    async def request(
        self,
        method: str,
        url: URL,
        *,
        body: Any = None,
        misses: Collection[int] = (),
        received: int = 0,
        items: int | Unasked = 1,
        keys: Sequence[Key] = (),
        headers: Mapping[str, str] = NO_HEADERS,
        read: Read | None = None,
    ) -> Response:
        """Send a request.

        Args:
            method: The HTTP method.
            url: The address.
            body: JSON as bytes, or any other body that aiohttp takes.
            misses: Statuses of a miss.
            received: Bytes of this answer's earlier pages.
            items: The number of its keys, without keys of an earlier page.
            keys: The keys of its answers, unless each answer contains its key.
            headers: Headers of this request only.
            read: Reads the body of an answer; by default as JSON.

        Raises:
            CallFailed: The request failed.
            Throttled: The service throttles.
            AccessRefused: The service denies access.
        """
        request = self._counts.request(items)
        request.reports_use = self._usage is not None
        LEAVING.set(request)
        try:
            response = await self._exchange(
                method, url, body, misses, received, of_request=headers, read=read
            )
        except BaseException as error:
            self._counts.lost.update(request.used or NOTHING)
            if isinstance(error, CallFailed):
                error.may_have_acted = request.was_sent
            is_answer = isinstance(error, Throttled) or (
                isinstance(error, CallFailed) and not error.passing
            )
            if is_answer and request.connection is not None:
                request.connection.brought(keys)
            raise
        finally:
            request.ends()
        self._counts.answered += 1
        if request.connection is not None:
            request.connection.brought(keys)
            response.connection = request.connection
        return response

    async def _exchange(
        self,
        method: str,
        url: URL,
        body: Any,
        misses: Collection[int],
        received: int,
        *,
        of_request: Mapping[str, str],
        read: Read | None,
    ) -> Response:
        assert self._session is not None
        headers = await self._authorizer.headers()
        is_json = isinstance(body, bytes)
        sent = self._headers_of_json if is_json else self._headers
        if headers or of_request:
            sent = sent.copy()
            sent.update(of_request)
            sent.update(headers or {})
        is_traced = EXCHANGES.get() is not None
        shown = body if is_json else None
        exchange = trace("http", f"{method} {url}", shown, self.masked) if is_traced else None
        if self._authorizer.parameter is not None:
            url = with_parameter(url, *self._authorizer.parameter)
        request = (method, url, body)
        try:
            response = await self._session.request(
                method,
                url,
                data=io.BytesIO(body) if is_json and len(body) > LARGE_BODY else body,
                headers=sent,
                allow_redirects=False,
            )
            try:
                note(exchange, response.status)
                status = response.status
                if status in misses or status >= 300:
                    LEAVING.get().used = NOTHING  # services do not bill it, unless its text tells
                if status == 401 and self._authorizer.refused(headers, request):
                    raise TokenRefused(
                        "401: the token is no longer accepted and will be renewed", 0.0, 401
                    )
                if status not in misses and (not 200 <= status < 300 or status in self._refused):
                    raise await self._refusal(response, exchange)
                self._authorizer.accepted(headers, request)
                if (seconds := throttling.until_reset(response.headers)) is not None:
                    self._note_used_up(seconds)
                if status in misses:
                    return Response(None, True, response.headers)
                return await self._answer(response, received, exchange, read)
            finally:
                if not response.closed:  # else its end has freed the connection
                    response.release()
                    await response.wait_for_close()
        except (TimeoutError, aiohttp.ClientError, ValueError, RecursionError) as error:
            raise self._refusals.translated(error, self._attempt_timeout) from error

    async def _answer(
        self,
        response: aiohttp.ClientResponse,
        received: int,
        exchange: Exchange | None,
        read: Read | None,
    ) -> Response:
        if read is not None:
            content = await read(response)
            LEAVING.get().used = NOTHING
            return Response(content, False, response.headers)
        body, is_whole = await read_body(response, received, self._max_answer_bytes)
        if exchange is not None:
            note(exchange, response.status, self.masked(body.decode("utf-8", "replace")))
        is_ambiguous = False
        try:
            content = self._loaded(body, response, is_whole=is_whole)
        except RepeatedMember:
            if not self._in_items:
                raise
            content, is_ambiguous = loaded(body, response.charset, ambiguous=True), True
        LEAVING.get().used = self._used(content) if self._usage is not None else NOTHING
        return Response(content, False, response.headers, len(body), is_ambiguous)

    async def _refusal(
        self, response: aiohttp.ClientResponse, exchange: Exchange | None
    ) -> Exception:
        """Return the error for a status that is neither an answer nor a miss."""
        # the use may be at the end of the answer
        most = READ_BYTES if self._usage is None else max(READ_BYTES, self._max_answer_bytes)
        text = await error_text(response, most)
        with suppress(ValueError):
            LEAVING.get().used = self._used(read_json(text), is_refused=True) or NOTHING
        shown = self._refusals.shown_text(response, text)
        note(exchange, response.status, shown)
        error = self._refusals.error(response, shown)
        if isinstance(error, Throttled):
            self._counts.throttled += 1
        return error

    def _used(self, content: Any, *, is_refused: bool = False) -> Mapping[str, int] | None:
        """Return what the request of this answer used; None if it does not tell."""
        return NOTHING if self._usage is None else self._usage.read(content, is_refused=is_refused)

    def _loaded(self, answer: bytes, response: aiohttp.ClientResponse, *, is_whole: bool) -> Any:
        """Return the answer's JSON. Raises ValueError, or CallFailed if it is empty or cut."""
        if not answer or answer.isspace():
            message = self.masked(f"{response.status} {response.reason}").rstrip()
            empty = f"{message}: the answer has no body"
            if response.status != 200 and not self._in_items:
                miss = f"declare {response.status} as a miss (miss_when; in a function miss=)"
                empty += f"; where that means no such key, {miss}"
            raise Unclear(empty) if is_whole else CallFailed(empty, passing=True)
        try:
            return loaded(answer, response.charset)
        except BrokenOff as error:
            if is_whole:
                raise
            reason = f"the answer broke off after {len(answer):,} bytes: {error}"
            raise CallFailed(self.masked(reason), passing=True) from error

    async def read_if_any(self, response: aiohttp.ClientResponse) -> Any:
        """Return the JSON of a body; None for an empty one. Raises as `read_body` and `_loaded`."""
        body, is_whole = await read_body(response, 0, self._max_answer_bytes)
        return self._loaded(body, response, is_whole=is_whole) if body.strip() else None

    def masked(self, text: str) -> str:
        shown = (
            text.replace(self.base_url, f"{self._shown_url}/***")
            if self._shown_url != self.base_url
            else text
        )
        return without_secrets(self._authorizer.masked(shown), self._secrets)
