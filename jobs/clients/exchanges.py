"""What goes over the wire, told to whoever tries a declaration; nobody listens while a job runs."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Exchange:
    """One request and what came back, as text; without headers, so without credentials.

    kind: http, sql or function. request: method and URL, the statement, or the function's name. sent: the body, the
    parameters, or the keys. status: of HTTP.
    """

    kind: str
    request: str
    sent: str = ""
    status: int | None = None
    answer: str = ""


EXCHANGES: ContextVar[list[Exchange] | None] = ContextVar("exchanges", default=None)


def trace(
    kind: str, request: str | Callable[[], str], sent: object = None, masked: Callable[[str], str] = str
) -> Exchange | None:
    """Note a request for the row whose call it is; None when nobody listens. masked: takes secrets out of a text."""
    heard = EXCHANGES.get()
    if heard is None:
        return None
    text = sent.decode("utf-8", "replace") if isinstance(sent, bytes) else "" if sent is None else repr(sent)
    heard.append(Exchange(kind, masked(request if isinstance(request, str) else request()), masked(text)))
    return heard[-1]


def note(exchange: Exchange | None, status: int, answer: str = "") -> None:
    """What came back, if anybody listens."""
    if exchange is not None:
        exchange.status, exchange.answer = status, answer
