"""HTTP/1.1 connections that detect extra responses.

HTTP/1.1 matches responses to requests only by order. If a broken service or proxy sends an
unrequested response, the client takes it for the next answer, and every later answer on that
connection belongs to another request. No client can detect this at that moment; later the
connection has one response more than requests. So each connection counts requests and responses, is
not used again after data without an open request, is watched for a while after its use, and
remembers the keys of its answers.

It sits between asyncio's transport and aiohttp's protocol and uses only asyncio's public
interfaces: it is a protocol to the transport, and a transport to aiohttp. When aiohttp closes it,
it stays open until it is judged, within WATCHED_AT_MOST.
"""

import asyncio
import select
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import aiohttp

from jobs.clients.http.response_counter import ResponseCounter
from jobs.clients.request_counter import Request
from jobs.declare.lookup import Key

ANSWERS_WATCHED = 2_000  # on a connection, which is then retired and judged
QUIET_AT_LEAST = 0.05  # s without data, after which a connection counts as sound
QUIET_AT_MOST = 2.0  # s
WATCHED_AT_MOST = 2 * QUIET_AT_MOST  # s; for an abandoned answer, and for the quiet after it
READ_AT_MOST = 1 << 20  # bytes of a retired connection
TURNS = 4  # turns of the loop to read arrived data
GOODBYES = (b"HTTP/1.1 408", b"HTTP/1.0 408")  # announce the close of an idle connection; no answer
SHOWN_BY = len(GOODBYES[0])  # bytes that distinguish a goodbye from a response


class Pool(Protocol):
    """Receives the events of its connections."""

    def quiet(self) -> float:
        """Return for how long (s) a sound connection is silent after its last answer."""

    def doubt(self, keys: Sequence[Key]) -> None:
        """Handle an extra response on the connection that brought these keys' answers."""

    def closed_early(self, keys: Sequence[Key]) -> None:
        """Handle the end of a connection with these keys' answers before its last answer."""

    def retired(self, watched: "WatchedConnection") -> None:
        """Handle a connection that is out of use, but not judged yet."""

    def left(self, watched: "WatchedConnection") -> None:
        """Handle a connection that is judged."""

    def lost(self, watched: "WatchedConnection") -> None:
        """Handle a connection that is closed."""


class WatchedConnection(asyncio.Transport, asyncio.Protocol):
    """A connection that counts requests and responses, and remembers the keys of its answers.

    Args:
        transport: The transport of the connection.
        protocol: The client's protocol, which used the transport so far and notices no change.
        pool: Receives the events of the connection.
        clock: Seconds, monotonic.

    Attributes:
        in_doubt: Whether it brought more responses than requests.
        in_use: Whether a request uses it.
        judged: Set once it is retired and judged.
        lost: Set once it is closed.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        pool: Pool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._transport, self._client, self._pool, self._clock = transport, protocol, pool, clock
        self._counter = ResponseCounter()
        self._requests = 0
        self._unasked = b""  # the first bytes that arrived without an open request
        self._keys: list[Key] = []
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._asked_at = self._heard_at = clock()
        self._read_since = 0  # bytes since the last request, or since it was retired
        self._is_retired = self._is_spent = False
        self._watched_until = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._loss: BaseException | None = None
        self._request: Request | None = None  # that uses it
        self._unwritten: Request | None = None  # the same, until it writes
        self.in_doubt = self.in_use = False
        self.judged, self.lost = asyncio.Event(), asyncio.Event()
        transport.set_protocol(self)
        protocol.connection_made(self)

    # -- for requests ------------------------------------------------------------------------------
    def is_usable(self) -> bool:
        """Return whether a request may use it now: no data came unasked, or waits to be read."""
        return not (self._is_spent or self._unasked or self.is_closing() or self._poll.poll(0))

    async def becomes_usable(self) -> bool:
        """Return whether a request may use it, after reading buffered data."""
        for _ in range(TURNS):
            if self._is_spent or self._unasked or self.is_closing():
                return False
            await asyncio.sleep(0)
            if self.is_usable():
                return True
        return False

    @property
    def is_new(self) -> bool:
        return self._requests == 0

    def refusal(self) -> aiohttp.ClientConnectionError:
        """Return why no request may use it although it is new."""
        if self._unasked:
            return aiohttp.ClientConnectionError("the service answered before it was asked")
        return self.failure()

    def failure(self) -> aiohttp.ClientConnectionError:
        """Return the error of a request whose connection was lost."""
        if isinstance(self._loss, OSError):
            return aiohttp.ClientOSError(*self._loss.args)
        return aiohttp.ServerDisconnectedError()

    def begins(self, request: Request | None) -> None:
        """Begin a request and notify it; raises what it raises."""
        self._requests += 1
        self._asked_at, self._read_since, self.in_use = self._clock(), 0, True
        self._request = self._unwritten = request
        if request is not None:
            request.leaves(self)

    def released(self) -> None:
        """Note that its request is over; the next request would send bytes that it left unsent."""
        request, self._request, self._unwritten, self.in_use = self._request, None, None, False
        if request is not None:
            request.frees_its_connection()
        if len(self._keys) >= ANSWERS_WATCHED or self._transport.get_write_buffer_size():
            self._is_spent = True

    def brought(self, keys: Sequence[Key]) -> None:
        if self.in_doubt:
            self._pool.doubt(keys)
        elif len(keys) != 1 or self._keys[-1:] != list(keys):  # the pages of an answer count once
            self._keys += keys

    def distrust(self) -> None:
        """Note that one of its answers belongs to another request."""
        if not self.in_doubt:
            self.in_doubt = self._is_spent = True
            self._pool.doubt(self._take_keys())

    # -- the transport's protocol ------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        self._heard_at = self._clock()
        self._read_since += len(data)
        while data:
            if self._is_owed_nothing():
                self._take_unasked(data)
                break
            read = self._counter.read(data)
            if self._counter.is_out_of_step:
                self.distrust()
            if not self._is_retired:
                self._client.data_received(data[:read])
            data = data[read:]
        if self._watch is not None:
            self._watch_on()

    def _is_owed_nothing(self) -> bool:
        return self._counter.is_between and self._counter.responses >= self._requests

    def _take_unasked(self, data: bytes) -> None:
        if self._unasked or data.strip(b"\r\n"):  # some services add an empty line to an answer
            self._unasked = (self._unasked + data)[:SHOWN_BY]
            if len(self._unasked) == SHOWN_BY:
                self._judge_unasked()

    def _judge_unasked(self) -> None:
        if self._unasked and self._unasked not in GOODBYES:
            self.distrust()

    def eof_received(self) -> None:
        if not self._is_retired:
            self._client.eof_received()

    def pause_writing(self) -> None:
        self._client.pause_writing()

    def resume_writing(self) -> None:
        self._client.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._loss = exc
        self.lost.set()
        self._pool.lost(self)
        if not self._is_retired:
            self._is_retired = True
            self._client.connection_lost(exc)  # type: ignore[arg-type]  # as asyncio passes it
        self.end()

    # -- the client's transport --------------------------------------------------------------------
    def write(self, data: Any) -> None:
        if self._unwritten is not None:
            self._begin_writing(self._unwritten)
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._unwritten is not None:
            self._begin_writing(self._unwritten)
        self._transport.writelines(list_of_data)

    def _begin_writing(self, request: Request) -> None:
        self._unwritten = None
        request.is_written()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_retired or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        """End its use, and watch it until it was quiet for long enough.

        The answer of an abandoned call is awaited too, unless the connection was silent since the
        request: an extra response would have come as its answer.
        """
        if self._is_retired:
            return
        self._is_retired = True
        asyncio.get_running_loop().call_soon(self._client.connection_lost, None)
        silent, self._read_since = self._read_since == 0, 0
        if not self._keys or self.in_doubt or self._transport.is_closing():
            self.end()
            return
        self._transport.resume_reading()
        self._watched_until = self._clock() + WATCHED_AT_MOST
        self._pool.retired(self)
        if not self._is_owed_nothing():
            since = self._asked_at + self._pool.quiet() if silent else self._clock() + QUIET_AT_MOST
        else:
            since = self._heard_at + self._pool.quiet()
        self._watch_until(since)

    def abort(self) -> None:
        self.close()
        self.end()
        self._transport.abort()

    # -- out of use --------------------------------------------------------------------------------
    def _watch_on(self) -> None:
        """Restart the wait after new data, once the abandoned answer has arrived."""
        if self.in_doubt or self._read_since > READ_AT_MOST:
            self.end()
        elif self._is_owed_nothing():
            self._watch_until(self._heard_at + self._pool.quiet())

    def _watch_until(self, when: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        seconds = max(0.0, min(when, self._watched_until) - self._clock())
        self._watch = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Close it, and judge it by the data so far; if it owes an answer, it cannot be judged."""
        if self.judged.is_set():
            return
        self.judged.set()
        self._is_spent = True
        if self._watch is not None:
            self._watch.cancel()
        self._judge_unasked()
        if (keys := self._take_keys()) and not self._is_owed_nothing():
            self._pool.closed_early(keys)
        self._pool.left(self)
        self._transport.close()

    def _take_keys(self) -> list[Key]:
        keys, self._keys = self._keys, []
        return keys
