"""Sends a partition's requests to an HTTP service through aiohttp, and returns JSON."""

import io
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from jobs.clients.client import CallFailed, Redirected, Throttled, Unclear
from jobs.clients.exchanges import Exchange, note, trace
from jobs.clients.http import throttling
from jobs.clients.http.answer_body import SHOWN, BrokenOff, error_text, is_sized, loaded
from jobs.clients.http.authorizing import authorizer
from jobs.clients.http.connections import WatchedConnector
from jobs.clients.http.decoding import CODINGS, NotDecodable, TooLong, decoded, is_coded
from jobs.clients.http.secret_texts import without_secrets
from jobs.clients.http.transport import Transport
from jobs.clients.http.watched_connection import QUIET_AT_LEAST, QUIET_AT_MOST, WatchedConnection
from jobs.clients.request_counter import LEAVING, RequestCounts, Unasked
from jobs.declare.answers.json_text import RepeatedMember, read_json
from jobs.declare.answers.usage import UsageReader
from jobs.declare.lookup import Key
from jobs.declare.services import Service
from jobs.declare.values.addresses import path_secrets, with_parameter
from jobs.declare.values.env import read_from, variables_in
from jobs.errors import AccessRefused
from jobs.wording import one_line

REDIRECTS = (300, 301, 302, 303, 305, 307, 308)
PROXY_WANTS_PASSWORD = 407
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
NOTHING: Mapping[str, int] = MappingProxyType({})  # used
CODING_ADDS = 1_024  # highest number of bytes by which a coding lengthens a body
LARGE_BODY = 1 << 20  # bytes

Read = Callable[[aiohttp.ClientResponse], Awaitable[Any]]


@dataclass(slots=True)
class Response:
    """A response that is an answer or a miss.

    Attributes:
        content: The JSON; None for a miss.
    """

    status: int
    content: Any
    is_miss: bool
    headers: Any  # aiohttp's: names ignore case
    size: int = 0  # bytes of the body, unpacked
    is_ambiguous: bool = False  # an object in the content is an `Ambiguous`
    connection: WatchedConnection | None = None  # the connection that brought it

    @property
    def retry_after(self) -> float:
        """Seconds to wait, if the content means throttling."""
        return throttling.pause(self.headers)


class StatusFailed(CallFailed):
    """The service answered with a status that is neither an answer nor a miss."""

    def __init__(self, reason: str, status: int, *, passing: bool) -> None:
        super().__init__(reason, passing=passing)
        self.status = status


class AnswerTooLarge(Unclear):
    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest:,} bytes (max_answer_bytes)")


class _Connector(WatchedConnector):
    """Notifies each request when it gets or loses its connection."""

    async def connect(self, *arguments: Any, **options: Any) -> aiohttp.connector.Connection:
        request = LEAVING.get()
        # aiohttp retries by itself, but every attempt must be counted
        if request.connection is not None:
            raise request.connection.failure()
        connection = await super().connect(*arguments, **options)
        watched = connection.transport
        assert isinstance(watched, WatchedConnection)
        try:
            request.leaves(watched)
        except BaseException:
            connection.close()
            raise
        watched.before_writing(request.is_written)
        connection.add_callback(request.frees_its_connection)
        return connection


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
        self._service = service
        self._share = share
        self._attempt_timeout = attempt_timeout
        self._max_answer_bytes = max_answer_bytes
        self._throttled = throttled
        self._errors = errors
        self._unanswered = unanswered
        # below 300 too
        self._refused = frozenset((*throttled, *service.stop_on, *errors, *unanswered))
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
        self._connector: _Connector
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._connector = _Connector(
            self._quiet, self._doubt, limit=self._share, ssl=self._transport.ssl
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=self._attempt_timeout),
            raise_for_status=False,
            headers={"Accept-Encoding": CODINGS},
            auto_decompress=False,  # otherwise an undecodable body looks like a lost connection
            # a cookie from a row's answer would be sent with other rows
            cookie_jar=aiohttp.DummyCookieJar(),
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
        request.tells = self._usage is not None
        LEAVING.set(request)
        try:
            response = await self._exchange(
                method, url, body, misses, received, own=headers, read=read
            )
        except BaseException as error:
            self._counts.lost.update(request.used or NOTHING)
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
        own: Mapping[str, str],
        read: Read | None,
    ) -> Response:
        assert self._session is not None
        headers = await self._authorizer.headers()
        is_json = isinstance(body, bytes)
        sent = self._headers_of_json if is_json else self._headers
        if headers or own:
            sent = sent.copy()
            sent.update(own)
            sent.update(headers or {})
        exchange = trace("http", lambda: f"{method} {url}", body if is_json else None, self.masked)
        if self._authorizer.parameter is not None:
            url = with_parameter(url, *self._authorizer.parameter)
        try:
            async with self._session.request(
                method, url, data=_in_pieces(body), headers=sent, allow_redirects=False
            ) as response:
                note(exchange, response.status)
                if response.status in misses or response.status >= 400:
                    LEAVING.get().used = NOTHING  # services do not bill it, unless its text tells
                if response.status == 401 and self._authorizer.refused(headers):
                    raise Throttled(
                        "401: the token is no longer accepted and will be renewed", 0.0, 401
                    )
                if response.status not in misses and (
                    not 200 <= response.status < 300 or response.status in self._refused
                ):
                    await self._refuse(response, exchange)
                self._authorizer.accepted(headers)
                if (seconds := throttling.until_reset(response.headers)) is not None:
                    self._note_used_up(seconds)
                if response.status in misses:
                    return Response(response.status, None, True, response.headers)
                if read is not None:
                    content = await read(response)
                    LEAVING.get().used = NOTHING
                    return Response(response.status, content, False, response.headers)
                return await self._answer(response, received, exchange)
        except (TimeoutError, aiohttp.ClientError, ValueError, RecursionError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> CallFailed | AccessRefused:
        match error:
            case TimeoutError():
                return CallFailed(f"no answer within {self._attempt_timeout} s", passing=True)
            case aiohttp.ClientHttpProxyError():
                return self._refused_by_proxy(error)
            case aiohttp.ClientConnectorError(os_error=cause):
                to = (
                    " to the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
                )
                return CallFailed(f"cannot connect{to}: {cause.strerror or cause}", passing=True)
            # its text contains the URL with the key, and an invented status
            case aiohttp.ClientResponseError():
                read = one_line(error.message, SHOWN)
                return self._failure(f"the answer cannot be read: {read}", passing=True)
            case aiohttp.ClientError():
                return self._failure(
                    f"connection lost: {error or type(error).__name__}", passing=True
                )
        what = "cannot be decoded" if isinstance(error, NotDecodable) else "is not JSON"
        return Unclear(self.masked(f"the answer {what}: {error}"))

    async def _answer(
        self, response: aiohttp.ClientResponse, received: int, exchange: Exchange | None
    ) -> Response:
        body, is_whole = await self._body(response, received)
        if exchange is not None:
            note(exchange, response.status, self.masked(body.decode("utf-8", "replace")))
        is_ambiguous = False
        try:
            content = self._loaded(body, response, is_whole=is_whole)
        except RepeatedMember:
            if not self._in_items:
                raise
            content, is_ambiguous = loaded(body, response.charset, ambiguous=True), True
        LEAVING.get().used = self._used(content)
        return Response(response.status, content, False, response.headers, len(body), is_ambiguous)

    async def _refuse(self, response: aiohttp.ClientResponse, exchange: Exchange | None) -> None:
        """Raise the error for a status that is neither an answer nor a miss."""
        status = response.status
        text = await error_text(response)
        with suppress(ValueError):
            LEAVING.get().used = self._used(read_json(text), is_refused=True) or NOTHING
        text = self.masked(text)
        if status in REDIRECTS:
            text = (
                f"redirects to {self.masked(_location(response))}, and redirects are not followed"
            )
        note(exchange, status, text)
        message = one_line(self.masked(f"{status} {response.reason}"), SHOWN)
        if status in self._unanswered and status not in self._errors:
            text = f"{self._unanswered[status]}: {text}"
        body = one_line(text, SHOWN)
        # frameworks often repeat the status as the body
        if body.replace(":", "") not in ("", "{}", message):
            message = f"{message}: {body}"
        is_about_rate = status not in self._errors and throttling.is_throttled(
            status, response.headers
        )
        if status in self._throttled or is_about_rate:
            self._counts.throttled += 1
            raise Throttled(message, throttling.pause(response.headers), status)
        if status in self._service.stop_on or status == PROXY_WANTS_PASSWORD:
            denied = f"{self._service.name} at {self._shown_url} denies access"
            auth = self._service.auth
            secrets = read_from(() if auth is None else variables_in(auth))
            raise AccessRefused(f"{denied}: {message}.{secrets}", f"{denied}: {status}.{secrets}")
        if status in REDIRECTS and status not in self._errors:
            raise Redirected(message)
        raise StatusFailed(
            message, status, passing=(status >= 500 or status == 408) and status not in self._errors
        )

    def _used(self, content: Any, *, is_refused: bool = False) -> Mapping[str, int] | None:
        """Return what the request of this answer used; None if it does not tell."""
        return NOTHING if self._usage is None else self._usage.read(content, is_refused=is_refused)

    def _loaded(self, answer: bytes, response: aiohttp.ClientResponse, *, is_whole: bool) -> Any:
        """Return the answer's JSON. Raises ValueError, or CallFailed if it is empty or cut."""
        if not answer.strip():
            message = self.masked(f"{response.status} {response.reason}")
            cure = f"; where that means no such key, write {response.status} into miss_when"
            empty = f"{message}: the answer has no body{cure if response.status != 200 else ''}"
            raise Unclear(empty) if is_whole else CallFailed(empty, passing=True)
        try:
            return loaded(answer, response.charset)
        except BrokenOff as error:
            if is_whole:
                raise
            raise self._failure(
                f"the answer broke off after {len(answer):,} bytes: {error}", passing=True
            ) from error

    async def _body(self, response: aiohttp.ClientResponse, received: int) -> tuple[bytes, bool]:
        """Return the decoded body and whether it is whole.

        A body above the size limit is dropped with its connection.

        Raises:
            CallFailed: The body breaks off inside its coding, or is too large.
            NotDecodable: The body is not in its coding.
        """
        coding = response.headers.get("Content-Encoding", "")
        largest, content = self._max_answer_bytes - received, response.content
        at_most = largest + (CODING_ADDS if coding else 0)
        arrived = content.read_nowait()  # data that came with the headers, often the whole answer
        if not content.at_eof():
            arrived = await _read_on(content, arrived, at_most)
        if len(arrived) > at_most:
            raise AnswerTooLarge(self._max_answer_bytes)
        if not arrived or not is_coded(coding):  # no coding marks the end of this body
            return arrived, is_sized(response)
        try:
            body, has_end = decoded(arrived, coding, largest)
        except TooLong:
            raise AnswerTooLarge(self._max_answer_bytes) from None
        if not has_end:
            raise self._failure(
                f"the answer broke off inside its {coding[:40]} after {len(arrived):,} bytes",
                passing=True,
            )
        return body, True

    async def read_if_any(self, response: aiohttp.ClientResponse) -> Any:
        """Return the JSON of a body; None for an empty body. Raises as `_body` and `_loaded`."""
        body, is_whole = await self._body(response, 0)
        return self._loaded(body, response, is_whole=is_whole) if body.strip() else None

    def masked(self, text: str) -> str:
        shown = (
            text.replace(self.base_url, f"{self._shown_url}/***")
            if self._shown_url != self.base_url
            else text
        )
        return without_secrets(self._authorizer.masked(shown), self._secrets)

    def _refused_by_proxy(self, error: aiohttp.ClientHttpProxyError) -> CallFailed | AccessRefused:
        message = self.masked(one_line(f"{error.status} {error.message}", SHOWN))
        if error.status == PROXY_WANTS_PASSWORD:
            denied = f"{self._service.name} at {self._shown_url}: its proxy denies access"
            return AccessRefused(f"{denied}: {message}.", f"{denied}: {error.status}.")
        return CallFailed(f"the proxy does not connect: {message}", passing=True)

    def _failure(self, reason: str, *, passing: bool) -> CallFailed:
        return CallFailed(self.masked(reason), passing=passing)


async def _read_on(content: aiohttp.StreamReader, begin: bytes, at_most: int) -> bytes:
    """Return `begin` and the data after it, up to the end or just over `at_most` bytes."""
    arrived = bytearray(begin)
    while len(arrived) <= at_most and not content.at_eof():
        arrived += await content.readany()
    return bytes(arrived)


def _location(response: aiohttp.ClientResponse) -> str:
    """Return the target of a redirect without its query, which may contain a login ticket."""
    return (
        re.split(r"[?#]", response.headers.get("Location", ""))[0] or "nowhere (it has no Location)"
    )


def _in_pieces(body: Any) -> Any:
    """Return the body as a file if it is large: aiohttp would send its bytes in one piece."""
    return io.BytesIO(body) if isinstance(body, bytes) and len(body) > LARGE_BODY else body
