"""Requests a token with OAuth 2 client credentials."""

import json
import math
from typing import Any
from urllib.parse import quote_plus

import aiohttp

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.http import throttling
from jobs.clients.http.answer_body import read_on
from jobs.clients.http.connections import HEADS, WatchedConnector
from jobs.clients.http.secret_texts import base64_text, read_secret
from jobs.clients.http.transport import Transport
from jobs.clients.http.watched_connection import QUIET_AT_LEAST, WatchedConnection
from jobs.declare.auth import OAuth2ClientCredentials, require_token_url
from jobs.declare.services import without_path
from jobs.declare.values.env import Env, read_from, resolve, variables_in
from jobs.errors import AccessRefused

TOKEN_TIMEOUT = 30.0  # s, for one token request
TOKEN_BYTES = 65_536  # a longer answer is not a token


class TokenRequest:
    """A request for a token.

    Attributes:
        client: Address, client and scope: requests with the same get the same token.
        secrets: What it sends and messages must not show.
    """

    def __init__(
        self, auth: OAuth2ClientCredentials, service: str, transport: Transport | None
    ) -> None:
        """Read the secrets. Raises DeclarationError if one is not set or not valid in a header."""
        self._auth, self._service, self._transport = auth, service, transport
        self._url = resolve(auth.token_url)
        require_token_url(self._url)
        self._shown_url = without_path(self._url) if isinstance(auth.token_url, Env) else self._url
        self._id, self._secret = read_secret(auth.client_id), read_secret(auth.client_secret)
        self._pair = base64_text(f"{quote_plus(self._id)}:{quote_plus(self._secret)}")
        self.client = (self._url, auth.client_auth, auth.scope or "", self._id, self._secret)
        self.secrets = (self._secret, self._pair)

    async def send(self) -> tuple[str, float]:
        """Return a new token and its lifetime in seconds.

        Raises:
            CallFailed: A transient failure.
            Throttled: The server asks to wait.
            AccessRefused: The server refuses a token, or answers with none.
        """
        try:
            status, headers, body, brought_one = await self._exchange()
        except TimeoutError:
            raise self._failed(f"gave no token within {TOKEN_TIMEOUT:g} s") from None
        except aiohttp.ClientError as error:
            raise self._failed(f"gave no token: {type(error).__name__}") from None
        if not brought_one:
            raise self._failed("gave more than one answer: the token may be another's")
        is_about_rate = status == 429 or throttling.is_throttled(status, headers)
        if is_about_rate or (status == 503 and "Retry-After" in headers):
            seconds = throttling.pause(headers)
            again = f"to be asked again in {seconds:.0f} s"
            text = f"{self._shown_url} gave no token: {status}, {again}"
            raise Throttled(text, seconds, status)
        if status >= 500:
            raise self._failed(f"gave no token: {status}")
        if not 200 <= status < 300:  # some answer 201
            raise AccessRefused(
                f"{self._service}: {self._shown_url} refuses a token: {status}{_reason(body)}."
                f"{read_from(variables_in(self._auth))}"
            )
        token, life = _token(body)
        if token is None:
            raise AccessRefused(f"{self._service}: {self._shown_url} gave no bearer token.")
        return token, life

    def paused(self, seconds: float) -> Throttled:
        """Return the error of a call that needs a token before the server gives one again."""
        return Throttled(f"{self._shown_url} asks for no token request", seconds, 429)

    def _failed(self, problem: str) -> CallFailed:
        return CallFailed(f"{self._shown_url} {problem}", passing=True)

    async def _exchange(self) -> tuple[int, Any, bytes, bool]:
        """Return status, headers and body of the answer, and whether no other answer followed."""
        auth, transport = self._auth, self._transport
        form = {"grant_type": "client_credentials"} | ({"scope": auth.scope} if auth.scope else {})
        headers = {"Accept": "application/json"}
        if auth.client_auth == "body":
            form |= {"client_id": self._id, "client_secret": self._secret}
        else:
            headers["Authorization"] = f"Basic {self._pair}"
        connector = _TokenConnector(**({} if transport is None else {"ssl": transport.ssl}))
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TOKEN_TIMEOUT),
            connector=connector,
            **HEADS,
            **({} if transport is None else transport.options_for(self._url)),
        ) as session:
            async with session.post(
                self._url, data=form, headers=headers, allow_redirects=False
            ) as response:
                body = await read_on(response.content, b"", TOKEN_BYTES)
            return response.status, response.headers, body, await connector.brought_one()


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
    if isinstance(code, str) and code.replace("_", "").isalpha() and len(code) < 40:
        return f" {code}"
    return ""
