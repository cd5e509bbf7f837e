"""Authentication on an executor: the headers of each request, and a token per process.

Secrets are read here when a task starts, and are sent only in headers and token requests. Each
process has at most one token request in flight.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, quote_plus

import aiohttp

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.http import throttling
from jobs.clients.http.connections import WatchedConnector
from jobs.clients.http.transport import Transport
from jobs.clients.http.watched_connection import QUIET_AT_LEAST, WatchedConnection
from jobs.declare.auth import (
    ApiKey,
    Auth,
    Basic,
    Bearer,
    OAuth2ClientCredentials,
    require_token_url,
)
from jobs.declare.services import without_path
from jobs.declare.values.env import Env, read_from, resolve, variables_in
from jobs.errors import AccessRefused, DeclarationError, ServiceDown
from jobs.wording import counted

TOKEN_TIMEOUT = 30.0  # s, for one token request
TOKEN_TRIES = 3
TOKEN_PAUSE = 0.5  # s between them, unless the server says how long
PATIENCE = 60.0  # s; a longer pause is not waited for when a task starts
SHORTEST_ENCODED = 6  # bytes of a secret whose base64 and hexadecimal digits are masked too
URL_SAFE = str.maketrans("+/", "-_")
SHOWN_OF_A_SECRET = 3  # characters; a shorter start of a secret is not masked
TOKEN_BYTES = 65_536  # a longer answer is not a token


def authorizer(auth: Auth | None, service: str, transport: Transport | None = None) -> Authorizer:
    """Return the authorizer of a service.

    Args:
        auth: The declared authentication.
        service: The service's name, for messages.
        transport: For token requests.

    Raises:
        DeclarationError: A secret is not set or not valid in a header.
    """
    match auth:
        case None:
            return Authorizer()
        case ApiKey():
            key = _read(auth.key)
            if auth.query is not None:
                return Authorizer({}, (key,), (auth.query, key))
            return Authorizer({auth.header: key}, (key,))
        case Bearer():
            token = _read(auth.token)
            return Authorizer({"Authorization": f"Bearer {token}"}, (token,))
        case Basic():
            user, password = _read(auth.user), _read(auth.password)
            if ":" in user:
                raise DeclarationError(
                    f"{auth.user.name} holds a colon, which a user of HTTP Basic cannot."
                )
            pair = _base64(f"{user}:{password}")
            return Authorizer({"Authorization": f"Basic {pair}"}, (pair, password))
    return TokenHeaders(auth, service, transport)


def _read(variable: Env) -> str:
    value = variable.read()
    if not value.isprintable() or value != value.strip():
        raise DeclarationError(
            f"{variable.name} holds a line break, a space at an end, or another character that a "
            "header cannot hold."
        )
    return value


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return `text` with *** for each secret in any encoding."""
    for secret in secrets:
        for written in _spellings(secret):
            text = text.replace(written, "***")
            if "..." in text:  # a long value may have been cut in the middle of a secret
                for length in range(len(written) - 1, SHOWN_OF_A_SECRET, -1):
                    text = text.replace(f"{written[:length]}...", "***...")
    return text


def _spellings(secret: str) -> list[str]:
    """Return the forms in which an error may repeat a secret, longest first: they overlap."""
    octets = secret.encode()
    texts = {
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
        quote(secret, safe=""),
        quote_plus(secret),
    }
    if len(octets) >= SHORTEST_ENCODED:  # shorter digits would mask other texts
        texts |= {octets.hex(), octets.hex().upper()}
        for place in range(3):
            inside = _base64_inside(octets, place)
            texts |= {inside, inside.translate(URL_SAFE)}
    return sorted(texts, key=len, reverse=True)


def _base64_inside(octets: bytes, place: int) -> str:
    """Return the base64 characters that depend only on these bytes, wherever they are in the input.

    Args:
        octets: The bytes.
        place: Their distance from a multiple of 3.
    """
    encoded = base64.b64encode(bytes(place) + octets).decode()
    end = (place + len(octets)) * 8 // 6
    return encoded[-(-place * 8 // 6) : end]


class Authorizer:
    """Adds authentication to requests: headers, or a query parameter with its secret.

    Bound to the event loop of one partition.
    """

    def __init__(
        self,
        headers: Mapping[str, str] = MappingProxyType({}),
        secrets: tuple[str, ...] = (),
        parameter: tuple[str, str] | None = None,
    ) -> None:
        self._headers: Mapping[str, str] = headers
        self.parameter = parameter
        self._secrets = secrets

    async def open(self) -> None:
        """Fetch what the first request needs. Raises ServiceDown if that fails."""

    async def close(self) -> None:
        """End the requests that `open` and `headers` began."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers of a request.

        Raises:
            CallFailed: No token is available now.
            Throttled: The server of tokens asks to wait.
            AccessRefused: The server refuses a token.
        """
        return self._headers

    def accepted(self, headers: Mapping[str, str]) -> None:
        """Note that the service accepted these headers."""

    def refused(self, headers: Mapping[str, str]) -> bool:  # noqa: ARG002  # the headers never change
        """Handle a 401 to these headers; return True if the next request will have new headers."""
        return False

    def masked(self, text: str) -> str:
        return without_secrets(text, self._secrets)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    renew_at: float  # both by the monotonic clock, which every loop uses
    ends_at: float


# by client, address and scope; only in this process's memory
_TOKENS: dict[tuple[str, ...], _Token] = {}


class TokenHeaders(Authorizer):
    """OAuth 2 client credentials: a token for all requests of this process.

    Spark runs the tasks of a slot in one process, so a run fetches a token per slot, not per task.
    One request at a time renews the token, in the background before it expires, and once after a
    401. Calls wait only while no token is valid.
    """

    def __init__(
        self, auth: OAuth2ClientCredentials, service: str, transport: Transport | None = None
    ) -> None:
        super().__init__()
        self._transport = transport
        self._auth = auth
        self._url = resolve(auth.token_url)
        require_token_url(self._url)
        self._shown_url = without_path(self._url) if isinstance(auth.token_url, Env) else self._url
        self._service = service
        self._id, self._secret = _read(auth.client_id), _read(auth.client_secret)
        self._kept_as = (self._url, auth.client_auth, auth.scope or "", self._id, self._secret)
        # the last two, as a late answer may be about the previous token
        self._tokens: tuple[str, ...] = ()
        self._renew_at = self._ends_at = 0.0
        self._paused_until = 0.0  # by the server of tokens
        self._taken = False  # the service accepted this token
        self._after_refusal = False  # fetched because the previous token got a 401
        self._fetching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fetch the first token, before any clock starts. Raises ServiceDown if that fails."""
        if self._takes_kept(asyncio.get_running_loop().time()):
            return
        for attempt in range(1, TOKEN_TRIES + 1):
            try:
                await self._fetch()
            except (CallFailed, Throttled) as failure:
                pause = failure.seconds if isinstance(failure, Throttled) else TOKEN_PAUSE
                if attempt == TOKEN_TRIES or pause > PATIENCE:
                    message = f"{self._service}: {failure} ({counted(attempt, 'try', 'tries')})."
                    raise ServiceDown(message) from None
                await asyncio.sleep(pause)
            else:
                return

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    async def headers(self) -> Mapping[str, str]:
        now = asyncio.get_running_loop().time()
        if (
            self._fetching is None
            and now >= min(self._renew_at, self._ends_at)
            and not self._takes_kept(now)
        ):
            if now < self._paused_until:
                if now < self._ends_at:
                    return self._headers
                left = self._paused_until - now
                raise Throttled(f"{self._shown_url} asks for no token request", left, 429)
            self._fetching = asyncio.create_task(self._fetch(), name="tidegate token")
            self._fetching.add_done_callback(self._fetched)
        if now >= self._ends_at and self._fetching is not None:
            await asyncio.shield(self._fetching)
        return self._headers

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        # a waiting call raises it, or the next call retries
        if not task.cancelled() and task.exception() is not None:
            self._renew_at = asyncio.get_running_loop().time() + TOKEN_PAUSE

    def accepted(self, headers: Mapping[str, str]) -> None:
        if headers is self._headers:
            self._taken, self._after_refusal = True, False

    def refused(self, headers: Mapping[str, str]) -> bool:
        if headers is not self._headers:
            return True  # already renewed
        kept = _TOKENS.get(self._kept_as)
        if kept is not None and kept.text == self._tokens[0]:
            del _TOKENS[self._kept_as]
        if self._after_refusal and not self._taken:
            return False
        self._after_refusal, self._taken = True, False
        self._renew_at = self._ends_at = 0.0
        self._headers = {}
        return True

    def masked(self, text: str) -> str:
        kept = _TOKENS.get(self._kept_as)
        tokens = self._tokens if kept is None else (kept.text, *self._tokens)
        pair = _base64(f"{quote_plus(self._id)}:{quote_plus(self._secret)}")
        return without_secrets(text, (self._secret, pair, *tokens))

    async def _fetch(self) -> None:
        """Fetch a new token.

        Raises CallFailed for a transient failure, Throttled where the server asks to wait, or
        AccessRefused.
        """
        auth = self._auth
        form = {"grant_type": "client_credentials"} | ({"scope": auth.scope} if auth.scope else {})
        headers = {"Accept": "application/json"}
        if auth.client_auth == "body":
            form |= {"client_id": self._id, "client_secret": self._secret}
        else:
            headers["Authorization"] = (
                f"Basic {_base64(f'{quote_plus(self._id)}:{quote_plus(self._secret)}')}"
            )
        timeout = aiohttp.ClientTimeout(total=TOKEN_TIMEOUT)
        connector = _TokenConnector(
            **({} if self._transport is None else {"ssl": self._transport.ssl})
        )
        try:
            async with aiohttp.ClientSession(
                timeout=timeout, connector=connector, **self._reached()
            ) as session:
                async with session.post(
                    self._url, data=form, headers=headers, allow_redirects=False
                ) as response:
                    status, body = response.status, await _read_whole(response.content)
                brought_one = await connector.brought_one()
        except TimeoutError:
            raise CallFailed(
                f"{self._shown_url} gave no token within {TOKEN_TIMEOUT:g} s", passing=True
            ) from None
        except aiohttp.ClientError as error:
            raise CallFailed(
                f"{self._shown_url} gave no token: {type(error).__name__}", passing=True
            ) from None
        if not brought_one:
            raise CallFailed(
                f"{self._shown_url} gave more than one answer: the token may be another's",
                passing=True,
            )
        is_about_rate = status == 429 or throttling.is_throttled(status, response.headers)
        if is_about_rate or (status == 503 and "Retry-After" in response.headers):
            seconds = throttling.pause(response.headers)
            self._paused_until = asyncio.get_running_loop().time() + seconds
            raise Throttled(
                f"{self._shown_url} gave no token: {status}, to be asked again in {seconds:.0f} s",
                seconds,
                status,
            )
        if status >= 500:
            raise CallFailed(f"{self._shown_url} gave no token: {status}", passing=True)
        if not 200 <= status < 300:  # some answer 201
            raise AccessRefused(
                f"{self._service}: {self._shown_url} refuses a token: {status}{_reason(body)}."
                f"{read_from(variables_in(self._auth))}"
            )
        self._keep(body)

    def _reached(self) -> dict[str, Any]:
        return {} if self._transport is None else dict(self._transport.options_for(self._url))

    def _keep(self, body: bytes) -> None:
        token, life = _token(body)
        if token is None:
            raise AccessRefused(f"{self._service}: {self._shown_url} gave no bearer token.")
        now = asyncio.get_running_loop().time()
        fetched = _Token(
            token, now + max(life - self._auth.refresh_before.total_seconds(), life / 2), now + life
        )
        _TOKENS[self._kept_as] = fetched
        self._use(fetched)

    def _takes_kept(self, now: float) -> bool:
        """Use a token that this process fetched meanwhile, if it stays valid long enough."""
        kept = _TOKENS.get(self._kept_as)
        if kept is None or kept.text in self._tokens or now >= kept.renew_at:
            return False
        self._use(kept)
        return True

    def _use(self, token: _Token) -> None:
        self._headers = {"Authorization": f"Bearer {token.text}"}
        self._tokens = (token.text, *self._tokens[:1])
        self._taken = False
        self._renew_at, self._ends_at = token.renew_at, token.ends_at


class _TokenConnector(WatchedConnector):
    """A connector for a single request, whose answer is rejected if another answer follows it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: QUIET_AT_LEAST, lambda _: None, **options)
        self._used: WatchedConnection | None = None

    async def connect(self, *arguments: Any, **options: Any) -> aiohttp.connector.Connection:
        connection = await super().connect(*arguments, **options)
        assert isinstance(connection.transport, WatchedConnection)
        self._used = connection.transport
        return connection

    async def brought_one(self) -> bool:
        """Return whether no data followed the answer for a while."""
        assert self._used is not None
        self._used.brought([()])
        await self.settle()
        return not self._used.in_doubt


async def _read_whole(content: aiohttp.StreamReader) -> bytes:
    """Return the body, which may arrive in pieces; cut if it is too long for a token."""
    body = b""
    while len(body) < TOKEN_BYTES and not content.at_eof():
        body += await content.readany()
    return body


def _token(body: bytes) -> tuple[str | None, float]:
    """Return the bearer token in an answer, or None, and its lifetime in seconds.

    Many servers leave out `token_type`, or write it differently. If the lifetime is unreadable or
    not positive, the token is used until a 401.
    """
    try:
        answer = json.loads(body)
        token, kind = answer["access_token"], answer.get("token_type")
        is_bearer = (
            (kind is None or kind.strip().lower().startswith("bearer"))
            and token != ""
            and token.isprintable()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, 0.0
    return (token if is_bearer else None), _lifetime(answer.get("expires_in"))


def _lifetime(given: Any) -> float:
    try:
        seconds = math.inf if given is None or isinstance(given, bool) else float(given)
    except (ValueError, TypeError, OverflowError):
        return math.inf
    return seconds if seconds > 0 else math.inf  # NaN is not


def _reason(body: bytes) -> str:
    """Return the error code of RFC 6749, section 5.2, if present; nothing else of the body."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return (
        f" {code}"
        if isinstance(code, str) and code.replace("_", "").isalpha() and len(code) < 40
        else ""
    )
