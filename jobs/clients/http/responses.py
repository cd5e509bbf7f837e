"""A response of an HTTP service that is an answer or a miss."""

from dataclasses import dataclass
from typing import Any

from jobs.clients.http import throttling
from jobs.clients.http.watched_connection import WatchedConnection


@dataclass(slots=True)
class Response:
    """A response that is an answer or a miss.

    Attributes:
        content: The JSON; None for a miss.
    """

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
