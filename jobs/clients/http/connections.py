"""The pool of watched connections: open, retired, and closed before their last answer."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp

from jobs.clients.http.watched_connection import WatchedConnection
from jobs.clients.request_counter import Request
from jobs.declare.lookup import Key

# receives the keys whose answers may be another key's
TellDoubt = Callable[[Sequence[Key]], None]

# limits of an answer's head: by default aiohttp refuses heads that other clients read, and each
# retry would be billed
HEADS: Mapping[str, Any] = {"max_line_size": 65_536, "max_field_size": 65_536, "max_headers": 1_000}
CONNECTIONS_KEPT = 100  # connections closed before their last answer, with the answers' keys
CLOSED_WITHIN = 0.5  # s for TLS's close and unsent data; then the connection is aborted


class WatchedConnector(aiohttp.TCPConnector):
    """A pool of watched connections.

    Args:
        quiet: Returns for how long (s) a sound connection is silent after its last answer.
        tell_doubt: Called with the keys of a connection's answers, after an extra response.
        request: Returns the request that waits for a connection, if it wants to be notified.
        options: Options of TCPConnector.
    """

    def __init__(
        self,
        quiet: Callable[[], float],
        tell_doubt: TellDoubt,
        request: Callable[[], Request | None] = lambda: None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.quiet = quiet
        self._request = request
        self._tell_doubt = tell_doubt
        self._has_doubted = False
        self._closed_early: deque[Sequence[Key]] = deque(maxlen=CONNECTIONS_KEPT)
        self._open: dict[WatchedConnection, None] = {}
        self._leaving: dict[WatchedConnection, None] = {}  # retired, not judged yet; oldest first

    async def connect(self, *arguments: Any, **options: Any) -> aiohttp.connector.Connection:
        """Return a connection without unrequested data."""
        request = self._request()
        # a retry that aiohttp makes would not be counted
        if request is not None and request.connection is not None:
            raise request.connection.failure()
        while True:
            connection = await super().connect(*arguments, **options)
            try:
                watched = connection.transport
                if not isinstance(watched, WatchedConnection):
                    watched = self._watch(connection)
                if watched.is_usable() or await watched.becomes_usable():
                    connection.add_callback(watched.released)
                    watched.begins(request)
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()
            if watched.is_new:
                raise watched.refusal()

    def _watch(self, connection: aiohttp.connector.Connection) -> WatchedConnection:
        transport, protocol = connection.transport, connection.protocol
        if transport is None or protocol is None:
            raise aiohttp.ServerDisconnectedError
        if protocol.should_close:  # a new connection should not, so data came
            raise aiohttp.ClientConnectionError("the service answered before it was asked")
        watched = WatchedConnection(transport, protocol, self)
        self._open[watched] = None
        return watched

    async def settle(self) -> None:
        """Retire all unused connections, and wait until they are judged."""
        for watched in [*self._open]:
            if not watched.in_use:
                watched.close()
        for watched in [*self._leaving]:
            await watched.judged.wait()

    async def close(self, **options: Any) -> None:
        """Close everything now, judge each connection by the data so far, and abort stragglers."""
        await super().close(**options)
        for watched in [*self._open]:
            watched.close()
            watched.end()
        try:
            async with asyncio.timeout(CLOSED_WITHIN):
                while self._open:
                    await next(iter(self._open)).lost.wait()
        except TimeoutError:
            for watched in [*self._open]:
                watched.abort()

    # -- called by the connections -----------------------------------------------------------------
    def doubt(self, keys: Sequence[Key]) -> None:
        """Doubt these answers, and those of connections that closed before their last answer."""
        self._has_doubted = True
        for doubted in [keys, *self._closed_early]:
            if doubted:
                self._tell_doubt(doubted)
        self._closed_early.clear()

    def closed_early(self, keys: Sequence[Key]) -> None:
        """Doubt these answers of a connection that closed early, now or with the first doubt."""
        if self._has_doubted:
            self._tell_doubt(keys)
        else:
            self._closed_early.append(keys)

    def retired(self, watched: WatchedConnection) -> None:
        self._leaving[watched] = None
        if len(self._leaving) > self.limit:  # bounds the open connections to a hanging service
            next(iter(self._leaving)).end()

    def left(self, watched: WatchedConnection) -> None:
        self._leaving.pop(watched, None)

    def lost(self, watched: WatchedConnection) -> None:
        self._open.pop(watched, None)
