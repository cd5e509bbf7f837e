"""Records requests and responses for `tidegate try`; disabled in jobs."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Exchange:
    """A request and its response as text, without headers and so without credentials.

    Attributes:
        kind: http, sql or function.
        request: Method and URL, the statement, or the function's name.
        sent: The body, the parameters, or the keys.
        status: The HTTP status.
        answer: The response.
    """

    kind: str
    request: str
    sent: str = ""
    status: int | None = None
    answer: str = ""


EXCHANGES: ContextVar[list[Exchange] | None] = ContextVar("exchanges", default=None)


def trace(
    kind: str, request: str, sent: object, masked: Callable[[str], str] = str
) -> Exchange | None:
    """Record a request of a row, masked by `masked`; return None if recording is off."""
    heard = EXCHANGES.get()
    if heard is None:
        return None
    text = (
        sent.decode("utf-8", "replace")
        if isinstance(sent, bytes)
        else ""
        if sent is None
        else repr(sent)
    )
    heard.append(Exchange(kind, masked(request), masked(text)))
    return heard[-1]


def note(exchange: Exchange | None, status: int, answer: str = "") -> None:
    if exchange is not None:
        exchange.status, exchange.answer = status, answer
