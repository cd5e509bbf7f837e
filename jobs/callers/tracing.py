"""What goes over the wire, told to whoever tries a declaration; nobody listens while a job runs."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Exchange:
    """One request and what came back; without headers, so without credentials.

    kind: http or sql. request: method and URL, or the statement. sent: the body, or the parameters.
    """

    kind: str
    request: str
    sent: Any = None
    status: int | None = None
    answer: Any = None


EXCHANGES: ContextVar[list[Exchange] | None] = ContextVar("exchanges", default=None)


def trace(kind: str, request: str, sent: Any = None) -> Exchange | None:
    """Note a request for the row whose call it is; None when nobody listens."""
    heard = EXCHANGES.get()
    if heard is None:
        return None
    heard.append(Exchange(kind, request, sent))
    return heard[-1]
