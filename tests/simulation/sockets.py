"""TCP of the driver link in memory: bytes in order, with delay, partitions, and connections that
break.

A connection whose process dies ends at the other side, as the operating system closes it; that of a
host that is cut off stays half-open.
"""

import errno
import math
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any

from tests.simulation.faults import Faults
from tests.simulation.http_service import MemoryTransport
from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process, SimulatedThread

DELAY = 0.005  # s
PARTITION = 60.0  # s at most; longer than the link's deadlines
FIRST_PORT, FIRST_DESCRIPTOR = 20_000, 1 << 24


class Network:
    """The listening sockets of a night, by port, and the clients' connections, by descriptor.

    connection: Of a client to the vendor of this kind of nights.
    """

    def __init__(self, faults: Faults, connection: type[MemoryTransport] = MemoryTransport) -> None:
        self.faults, self.connection = faults, connection
        self.listening: dict[int, SimulatedSocket] = {}
        self.draws = scheduler().stream("network")
        self.cut_until = 0.0  # nothing arrives before
        self.heard: dict[Process, float] = {}  # when a process received something from its driver
        self._ports = FIRST_PORT
        self.transports: dict[int, MemoryTransport] = {}
        self._descriptors = FIRST_DESCRIPTOR

    def cut(self, seconds: float) -> None:
        """Let nothing arrive for so long."""
        self.cut_until = max(self.cut_until, scheduler().now + seconds)

    def next_port(self) -> int:
        self._ports += 1
        return self._ports

    def next_descriptor(self) -> int:
        self._descriptors += 1
        return self._descriptors


def network() -> Network:
    return scheduler().network


class SimulatedSocket:
    def __init__(self, *_: object) -> None:
        self._number = scheduler().next_number()
        self.inbox = b""
        self.peer: SimulatedSocket | None = None
        self.connected_by: Process | None = None
        self.has_ended = self.is_closed = False  # the peer sends no more; closed here
        self.timeout: float | None = None
        self.selectors: list[Selector] = []
        self.pending: list[SimulatedSocket] = []
        self._readers: list[SimulatedThread] = []
        self._port = 0
        self._last_arrival = 0.0

    # -- a listening one
    # ----------------------------------------------------------------------------------------------
    def bind(self, address: tuple[str, int]) -> None:
        self._port = address[1] or network().next_port()

    def listen(self, backlog: int) -> None:
        network().listening[self._port] = self
        dies_with(scheduler().me().process, self._stop_listening)

    def _stop_listening(self) -> None:
        network().listening.pop(self._port, None)
        for connection in self.pending:
            connection.abandon()

    def getsockname(self) -> tuple[str, int]:
        return "simulated", self._port

    def accept(self) -> tuple["SimulatedSocket", tuple[str, int]]:
        if not self.pending:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = self.pending.pop(0)
        dies_with(scheduler().me().process, accepted.abandon)
        return accepted, ("simulated", 0)

    def setsockopt(self, *_: object) -> None: ...

    # -- both
    # ----------------------------------------------------------------------------------------------
    def setblocking(self, flag: bool) -> None:  # noqa: FBT001
        self.timeout = None if flag else 0.0

    def settimeout(self, value: float | None) -> None:
        self.timeout = value

    def fileno(self) -> int:
        return -1 if self.is_closed else self._number

    def is_ready(self) -> bool:
        return bool(self.pending or self.inbox or self.has_ended or self.is_closed)

    def notify(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            scheduler().wake(reader)
        for selector in self.selectors:
            selector.wake()

    def sendall(self, data: bytes) -> None:
        self.send(data)

    def send(self, data: bytes, flags: int = 0) -> int:
        night, peer, piece = scheduler(), self.peer, bytes(data)
        night.give_way()
        if self.is_closed or peer is None or peer.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        faults = network().faults
        if faults.strikes("connection reset"):
            self._break()
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if faults.strikes("partition of the network"):
            network().cut(PARTITION * faults.draw("partition of the network"))

        def arrives() -> None:
            if not peer.is_closed:
                if peer.connected_by is not None:
                    network().heard[peer.connected_by] = night.now
                peer.inbox += piece
                peer.notify()

        if piece:
            self._deliver(arrives)
        return len(piece)

    def _deliver(self, arrives: Callable[[], None]) -> None:
        """After what was sent before."""
        night, net = scheduler(), network()
        when = max(self._last_arrival, net.cut_until, night.now + DELAY * net.draws.random())
        self._last_arrival = when + 1e-9
        night.at(self._last_arrival, arrives)

    def recv(self, size: int) -> bytes:
        night = scheduler()
        me = night.me()
        end = None if self.timeout is None else night.now + self.timeout
        while not self.inbox:
            if self.is_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if self.has_ended:
                return b""
            if self.timeout == 0:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            if end is not None and night.now >= end:
                raise TimeoutError("timed out")
            self._readers.append(me)
            night.block(None if end is None else end - night.now)
        data, self.inbox = self.inbox[:size], self.inbox[size:]
        return data

    def shutdown(self, how: int) -> None:
        if how in (socket.SHUT_WR, socket.SHUT_RDWR):
            self._end_peer()
        if how in (socket.SHUT_RD, socket.SHUT_RDWR):
            self.has_ended = True
            self.notify()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._end_peer()
            self.notify()

    def abandon(self) -> None:
        """Its process died."""
        self.close()

    def _break(self) -> None:
        """Both ends learn that the connection is gone."""
        self.has_ended = True
        self.notify()
        self._end_peer()

    def _end_peer(self) -> None:
        peer = self.peer

        def ends() -> None:
            assert peer is not None
            peer.has_ended = True
            peer.notify()

        if peer is not None:
            self._deliver(ends)


def dies_with(process: Process, callback: Callable[[], object]) -> None:
    process.on_exit.append(callback)


def create_connection(address: tuple[str, int], timeout: float | None = None) -> SimulatedSocket:
    night = scheduler()
    net = network()
    night.sleep(2 * DELAY * net.draws.random())
    listening = net.listening.get(address[1])
    if listening is None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    here, there = SimulatedSocket(), SimulatedSocket()
    here.peer, there.peer = there, here
    here.connected_by = night.me().process
    here.timeout = timeout
    dies_with(night.me().process, here.abandon)
    listening.pending.append(there)
    listening.notify()
    return here


class PairedSocket(SimulatedSocket):
    """An end of a pair within a process: what is sent has arrived."""

    def send(self, data: bytes, flags: int = 0) -> int:
        assert self.peer is not None
        self.peer.inbox += data
        self.peer.notify()
        return len(data)


def socketpair() -> tuple[PairedSocket, PairedSocket]:
    here, there = PairedSocket(), PairedSocket()
    here.peer, there.peer = there, here
    return here, there


class Selector:
    """selectors.DefaultSelector for simulated sockets, for reading only."""

    def __init__(self) -> None:
        self._sockets: dict[SimulatedSocket, Any] = {}
        self._thread: SimulatedThread | None = None

    def register(
        self, fileobj: SimulatedSocket, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        self._sockets[fileobj] = data
        fileobj.selectors.append(self)
        return self._key(fileobj)

    def unregister(self, fileobj: SimulatedSocket) -> None:
        self._sockets.pop(fileobj, None)
        if self in fileobj.selectors:
            fileobj.selectors.remove(self)

    def close(self) -> None:
        for registered in [*self._sockets]:
            self.unregister(registered)

    def get_map(self) -> dict[SimulatedSocket, Any]:
        return self._sockets

    def wake(self) -> None:
        if self._thread is not None:
            scheduler().wake(self._thread)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        night = scheduler()
        self._thread = night.me()
        night.give_way()
        end = None if timeout is None else night.now + timeout
        if timeout:  # however short, some time passes
            end = max(end or 0.0, math.nextafter(night.now, math.inf))
        while True:
            ready = [
                (self._key(registered), selectors.EVENT_READ)
                for registered in self._sockets
                if registered.is_ready()
            ]
            if ready or (end is not None and night.now >= end):
                return ready
            night.block(None if end is None else end - night.now)

    def _key(self, fileobj: SimulatedSocket) -> selectors.SelectorKey:
        return selectors.SelectorKey(
            fileobj, fileobj.fileno(), selectors.EVENT_READ, self._sockets[fileobj]
        )  # type: ignore[arg-type]
