"""Translates what is neither an answer nor a miss into the errors of a call."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import aiohttp

from jobs.clients.client import CallFailed, Redirected, Throttled, Unclear
from jobs.clients.http import throttling
from jobs.clients.http.answer_body import READ_BYTES, SHOWN, TAG
from jobs.clients.http.decoding import NotDecodable
from jobs.declare.services import Service
from jobs.declare.values.env import read_from, variables_in
from jobs.errors import AccessRefused
from jobs.wording import one_line

BEGIN = 100  # displayed characters of an answer that is not JSON
REDIRECTS = (300, 301, 302, 303, 305, 307, 308)
PROXY_WANTS_PASSWORD = 407
PLAIN_PORT = ". The port does not speak TLS: correct it, or write http:// in place of https://"


class StatusFailed(CallFailed):
    """The service answered with a status that is neither an answer nor a miss."""

    def __init__(self, reason: str, status: int, *, passing: bool) -> None:
        super().__init__(reason, passing=passing)
        self.status = status


@dataclass(frozen=True)
class Refusals:
    """The statuses of a service that are no answers, and their errors.

    Attributes:
        service: The service.
        throttled: Statuses that mean throttling.
        errors: Statuses that are errors of the key.
        unanswered: Statuses below 300 that are no answers, with the reason.
        masked: Masks secrets in a text.
    """

    service: Service
    throttled: Collection[int]
    errors: Collection[int]
    unanswered: Mapping[int, str]
    masked: Callable[[str], str]

    @property
    def statuses(self) -> frozenset[int]:
        """The declared statuses that are no answers, some of them below 300."""
        return frozenset((*self.throttled, *self.service.stop_on, *self.errors, *self.unanswered))

    def shown_text(self, response: aiohttp.ClientResponse, text: str) -> str:
        """Return what the body tells, masked; of a redirect, its target."""
        if response.status in REDIRECTS:
            target = self.masked(_location(response))
            return f"redirects to {target}, and redirects are not followed"
        return self.masked(text)

    def error(self, response: aiohttp.ClientResponse, text: str) -> Exception:
        """Return the error for a status that is neither an answer nor a miss.

        `text` is from `shown_text`.
        """
        status, is_of_key = response.status, response.status in self.errors
        message = one_line(self.masked(f"{status} {response.reason}"), SHOWN)
        if status in self.unanswered and not is_of_key:
            text = f"{self.unanswered[status]}: {text}"
        body = one_line(text, SHOWN)
        # frameworks often repeat the status as the body
        if body.replace(":", "") not in ("", "{}", message):
            message = f"{message}: {body}"
        is_about_rate = not is_of_key and throttling.is_throttled(status, response.headers)
        if status in self.throttled or is_about_rate:
            return Throttled(message, throttling.pause(response.headers), status)
        if status in self.service.stop_on or status == PROXY_WANTS_PASSWORD:
            denied = f"{self.service.name} at {self.service.shown_url} denies access"
            auth = self.service.auth
            secrets = read_from(() if auth is None else variables_in(auth))
            return AccessRefused(f"{denied}: {message}.{secrets}", f"{denied}: {status}.{secrets}")
        if status in self.unanswered and not is_of_key:
            return Unclear(message)
        if status in REDIRECTS and not is_of_key:
            return Redirected(message)
        passing = (status >= 500 or status == 408) and not is_of_key
        return StatusFailed(message, status, passing=passing)

    def translated(self, error: Exception, attempt_timeout: float | None) -> Exception:
        """Return the error for one of aiohttp, or of reading an answer."""
        match error:
            case TimeoutError():
                return CallFailed(f"no answer within {attempt_timeout} s", passing=True)
            case aiohttp.ClientHttpProxyError():
                return self._refused_by_proxy(error)
            case aiohttp.ClientConnectorError(os_error=cause):
                is_proxy = isinstance(error, aiohttp.ClientProxyConnectionError)
                to = " to the proxy" if is_proxy else ""
                is_plain = getattr(cause, "reason", "") == "WRONG_VERSION_NUMBER"
                cure = PLAIN_PORT if is_plain else ""
                reason = f"cannot connect{to}: {cause.strerror or cause}{cure}"
                return CallFailed(reason, passing=True)
            # its text contains the URL with the key, and an invented status
            case aiohttp.ClientResponseError():
                reason = f"the answer cannot be read: {one_line(error.message, SHOWN)}"
                return CallFailed(self.masked(reason), passing=True)
            case aiohttp.ClientError():
                reason = f"connection lost: {error or type(error).__name__}"
                return CallFailed(self.masked(reason), passing=True)
        fault = "cannot be decoded" if isinstance(error, NotDecodable) else "is not JSON"
        text = str(error)
        if isinstance(error, json.JSONDecodeError):
            # often a page for people, such as that of a login
            begin = self.masked(TAG.sub(" ", error.doc[:READ_BYTES]))
            text += f": {one_line(begin, BEGIN)}"
        return Unclear(self.masked(f"the answer {fault}: {text}"))

    def _refused_by_proxy(self, error: aiohttp.ClientHttpProxyError) -> CallFailed | AccessRefused:
        message = self.masked(one_line(f"{error.status} {error.message}", SHOWN))
        if error.status == PROXY_WANTS_PASSWORD:
            denied = f"{self.service.name} at {self.service.shown_url}: its proxy denies access"
            return AccessRefused(f"{denied}: {message}.", f"{denied}: {error.status}.")
        return CallFailed(f"the proxy does not connect: {message}", passing=True)


def _location(response: aiohttp.ClientResponse) -> str:
    """Return the target of a redirect without its query, which may contain a login ticket."""
    return (
        re.split(r"[?#]", response.headers.get("Location", ""))[0] or "nowhere (it has no Location)"
    )
