"""HTTP/1.1 connections that detect extra responses.

HTTP/1.1 matches responses to requests only by order. An unrequested response of a broken service or proxy is taken for
the next answer, and every later answer on that connection belongs to another request. No client can detect it at that
moment; later the connection has one response more than requests. So each connection counts requests and responses, is
not used again after data without an open request, is watched for a while after its use, and remembers the keys of its
answers.
"""

import asyncio
import contextvars
import functools
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadStatusLine
from aiohttp.streams import StreamReader

from jobs.declare.lookup import Key

Doubt = Callable[[Sequence[Key]], None]  # receives the keys whose answers may be another key's

ANSWERS_WATCHED = 2_000  # on one connection, which is then retired and judged
CONNECTIONS_KEPT = 100  # closed before their last answer, with the keys of their answers
QUIET_AT_LEAST = 0.05  # s without data, after which a connection counts as sound
QUIET_AT_MOST = 2.0  # s
READ_AT_MOST = 1 << 20  # bytes of a retired connection
TURNS = 4  # turns of the loop to read arrived data
IDLE_TIMEOUT = 408  # announces the close of an idle connection; not an answer
GOODBYES = tuple(f"HTTP/1.{minor} {IDLE_TIMEOUT}".encode() for minor in (1, 0))

_TUNNELS: contextvars.ContextVar[bool] = contextvars.ContextVar("tunnels", default=False)  # through a proxy


class WatchedConnection(ResponseHandler):
    """A connection that counts requests and responses, and knows the keys of its answers.

    quiet: gives how long (s) nothing may come after the last answer before the connection counts as in order. doubt and
    unjudged: called with the keys of its answers at a response too many, or if it is closed before the last one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        quiet: Callable[[], float],
        doubt: Doubt,
        unjudged: Doubt,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(loop)
        self._clock = clock
        self._quiet = quiet
        self._doubt = doubt
        self._unjudged = unjudged
        self._requests = 0
        self._responses = 0
        self._payload_of_last: StreamReader | None = None
        self._unasked = b""  # the first bytes that arrived without an open request
        self._keys: list[Key] = []
        self._poll: select.poll | None = None
        self._asked_at = self._released_at = 0.0  # by the monotonic clock
        self._judging: asyncio.TimerHandle | None = None
        self._judged: Callable[[], None] | None = None  # called once it is retired and judged
        self._read_since = 0  # bytes since the last request, or since it was retired
        self.in_doubt = False

    # -- in use --------------------------------------------------------------------------------------------------------
    async def is_usable(self) -> bool:
        """Whether a request may use it. Buffered data is read first; the end of a TLS session is harmless."""
        for _ in range(TURNS):
            if self._unasked or self.should_close or not self.is_connected():
                return False
            if not self._is_readable():
                return True
            await asyncio.sleep(0)
        return False

    def _is_readable(self) -> bool:
        if self._poll is None:
            assert self.transport is not None
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(self._poll.poll(0))

    @property
    def is_new(self) -> bool:
        return self._requests == 0

    def refusal(self) -> aiohttp.ClientError:
        """Why no request may use it although it is new."""
        if self._unasked:
            return aiohttp.ClientConnectionError("the service answered before it was asked")
        return aiohttp.ServerDisconnectedError()

    def begins(self) -> None:
        self._requests += 1
        self._asked_at, self._read_since = self._clock(), 0

    def brought(self, keys: Sequence[Key]) -> None:
        if self.in_doubt:
            self._doubt(keys)
        elif len(keys) != 1 or self._keys[-1:] != list(keys):  # pages of one answer are one
            self._keys += keys

    def distrust(self) -> None:
        """Note that one of its answers belongs to another request."""
        self._too_many()

    @property
    def may_be_pooled(self) -> bool:
        """Whether it may return to the pool, once its answer was read to the end."""
        unsent = self.transport is not None and self.transport.get_write_buffer_size() > 0
        return not (self.should_close or self._unasked or unsent or len(self._keys) >= ANSWERS_WATCHED)

    # -- received data -------------------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        self._read_since += len(data)
        if self._is_owed_nothing():
            self._take_unasked(data)
            return
        super().data_received(data)
        if self._responses > self._requests or self._is_out_of_step():
            self._too_many()
        if self._judging is not None:
            self._watch_on()

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Count responses as the parser finds them, except an interim one (1xx) of a request, and the 408 of a
        close.
        """
        message, self._payload_of_last = data
        is_owed = self._responses < self._requests
        is_interim, is_goodbye = 100 <= message.code < 200, message.code == IDLE_TIMEOUT
        self._responses += not (is_interim if is_owed else is_goodbye)
        super().feed_data(data, size)

    def _is_owed_nothing(self) -> bool:
        return self._responses == self._requests and (self._payload_of_last is None or self._payload_of_last.is_eof())

    def _is_out_of_step(self) -> bool:
        """Whether the data is not the start of a response, but the rest of something else."""
        error = self.exception()
        return error is not None and isinstance(error.__cause__, BadStatusLine)

    def _take_unasked(self, data: bytes) -> None:
        if self._unasked or data.strip(b"\r\n"):  # some servers end an answer with an extra empty line
            self._unasked = (self._unasked + data)[:64]
            if len(self._unasked) >= len(GOODBYES[0]):
                self._judge_unasked()

    def _judge_unasked(self) -> None:
        if self._unasked and not self._unasked.startswith(GOODBYES):
            self._too_many()

    def _too_many(self) -> None:
        if not self.in_doubt:
            self.in_doubt = True
            self.force_close()
            keys, self._keys = self._keys, []
            if keys:
                self._doubt(keys)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._judge_unasked()
        if self._keys and self._judged is None and not self._is_owed_nothing():
            keys, self._keys = self._keys, []
            self._unjudged(keys)
        super().connection_lost(exc)
        self.end_watch()

    # -- out of use ----------------------------------------------------------------------------------------------------
    def released(self) -> None:
        self._released_at = self._clock()

    def watch(self, judged: Callable[[], None]) -> None:
        """Read until it was quiet for long enough, then close it and call `judged`, possibly at once.

        The answer of an abandoned call is awaited too, unless the connection is silent since the request: a response
        too many would have come as its answer.
        """
        self._judged = judged
        silent, self._read_since = self._read_since == 0, 0
        if not self._keys or self.in_doubt or not self.is_connected():
            self.end_watch()
            return
        self._watch_on(self._patience(silent=silent))

    def _patience(self, *, silent: bool) -> float:
        """The remaining wait in s. silent: nothing came since the last request."""
        if not silent and not self._is_owed_nothing():
            return QUIET_AT_MOST
        since = self._released_at if self._is_owed_nothing() else self._asked_at
        return max(0.0, since + self._quiet() - self._clock())

    def _watch_on(self, seconds: float | None = None) -> None:
        """Restart the wait after new data, or at the start of `watch`."""
        if self.in_doubt or self._read_since > READ_AT_MOST:
            self.end_watch()
            return
        if not self._is_owed_nothing():
            self._drop_payload()
        if seconds is None and self._is_owed_nothing():
            seconds = self._quiet()
        if seconds is not None:
            if self._judging is not None:
                self._judging.cancel()
            self._judging = self._loop.call_later(seconds, self.end_watch)

    def _drop_payload(self) -> None:
        """Discard payload, because the parser would stop reading otherwise."""
        if self._payload_of_last is not None and not self._payload_of_last.is_eof():
            self._payload_of_last._read_nowait(-1)  # noqa: SLF001  # read_nowait raises what the reader was left with

    def end_watch(self) -> None:
        if self._judging is not None:
            self._judging.cancel()
            self._judging = None
        if self._judged is not None:
            judged, self._judged = self._judged, None
            self.end()
            judged()

    def end(self) -> None:
        """Close it and judge it by the data so far; if an answer is outstanding, report its keys as unjudged."""
        self._judge_unasked()
        keys, self._keys = self._keys, []
        if keys and not self._is_owed_nothing():
            self._unjudged(keys)
        self.close()


class WatchedConnector(aiohttp.TCPConnector):
    """A pool of watched connections. quiet and doubt: as of WatchedConnection."""

    def __init__(self, quiet: Callable[[], float], doubt: Doubt, **options: Any) -> None:
        super().__init__(**options)
        self._doubt = doubt
        self._has_doubted = False
        self._not_judged: deque[Sequence[Key]] = deque(maxlen=CONNECTIONS_KEPT)  # keys of connections closed like this
        self._factory = functools.partial(  # type: ignore[assignment]
            WatchedConnection, quiet=quiet, doubt=self._doubt_all, unjudged=self._keep_unjudged, loop=self._loop
        )
        self._leaving: dict[WatchedConnection, None] = {}  # retired, not judged yet; the oldest first
        self._all_judged: asyncio.Future[None] | None = None

    def _doubt_all(self, keys: Sequence[Key]) -> None:
        """Doubt all answers after an extra response, also those of connections that were closed before their last
        answer.
        """
        self._has_doubted = True
        self._doubt(keys)
        while self._not_judged:
            self._doubt(self._not_judged.popleft())

    def _keep_unjudged(self, keys: Sequence[Key]) -> None:
        if self._has_doubted:
            self._doubt(keys)
        else:
            self._not_judged.append(keys)

    async def _create_proxy_connection(self, req: Any, *arguments: Any) -> Any:
        token = _TUNNELS.set(req.is_ssl())
        try:
            return await super()._create_proxy_connection(req, *arguments)
        finally:
            _TUNNELS.reset(token)

    async def _create_direct_connection(self, *arguments: Any, **options: Any) -> Any:
        transport, protocol = await super()._create_direct_connection(*arguments, **options)
        if _TUNNELS.get():  # aiohttp requests the tunnel on it, before TLS starts on its own protocol
            assert isinstance(protocol, WatchedConnection)
            protocol.begins()
        return transport, protocol

    async def connect(self, *arguments: Any, **options: Any) -> aiohttp.connector.Connection:
        """A connection without unrequested data."""
        while True:
            connection = await super().connect(*arguments, **options)
            watched = connection.protocol
            assert isinstance(watched, WatchedConnection)
            try:
                usable = await watched.is_usable()
            except BaseException:
                connection.close()
                raise
            if usable:
                watched.begins()
                return connection
            connection.close()
            if watched.is_new:
                raise watched.refusal()

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        """Hook of aiohttp to return a connection: to the pool, or to be watched and closed."""
        assert isinstance(protocol, WatchedConnection)
        protocol.released()
        if self._closed or (not should_close and protocol.may_be_pooled):
            super()._release(key, protocol, should_close=should_close)
            return
        self._release_acquired(key, protocol)
        self._watch(protocol)

    def _watch(self, watched: WatchedConnection) -> None:
        self._leaving[watched] = None
        watched.watch(functools.partial(self._judged, watched))
        if len(self._leaving) > self.limit:  # bounded, so that a hanging service does not see ever more connections
            next(iter(self._leaving)).end_watch()

    def _judged(self, watched: WatchedConnection) -> None:
        self._leaving.pop(watched, None)
        if not self._leaving and self._all_judged is not None and not self._all_judged.done():
            self._all_judged.set_result(None)

    async def settle(self) -> None:
        pooled = [watched for waiting in self._conns.values() for watched, _ in waiting]
        self._conns.clear()
        for watched in pooled:
            assert isinstance(watched, WatchedConnection)
            self._watch(watched)
        if self._leaving:
            self._all_judged = asyncio.get_running_loop().create_future()
            await self._all_judged

    def _close(self, **options: Any) -> Any:
        """Close everything now, and judge each connection by the data so far."""
        leaving = [*self._leaving]
        self._leaving.clear()
        waiters = [closed for watched in leaving if (closed := watched.closed)]
        for watched in leaving:
            watched.end()
        return [*super()._close(**options), *waiters]
