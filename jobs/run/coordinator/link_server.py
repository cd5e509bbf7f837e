"""Serves the driver's connections: accepts them, checks the run's secret, reads lines of JSON.

A connection belongs to a task once its first message is accepted. Until then it is closed after a
while, and the oldest such connections give way to new ones; so nothing that connects can keep a
task out, or end the thread.
"""

import errno
import hmac
import itertools
import json
import logging
import math
import os
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jobs.errors import DeclarationError, RunStopped
from jobs.task.link.link_protocol import LONGEST_LINE, LONGEST_READ, write_line

LOOK_EVERY = 0.25  # s, while a task is connected
HELLO_WITHIN = 10.0  # s from the connection to an accepted message
MOST_UNACCEPTED = 64  # connections; a new connection replaces the oldest
LINK_PORT = "TIDEGATE_LINK_PORT"  # variable of the environment
ANY_PORT = (0,)
MOST_UNSENT = 1 << 20  # bytes to a task that does not read; then it counts as gone

Sender = TypeVar("Sender")


@dataclass(eq=False)
class Connection(Generic[Sender]):
    """A connection.

    Attributes:
        sender: The sender of its messages, once the first message is accepted.
        is_ended: The other side ended it, on purpose or with its process; otherwise it broke.
    """

    socket: socket.socket
    accepted_at: float
    has_secret: bool = False
    received: bytes = b""
    unsent: bytes = b""
    waits: bool = False  # until the socket takes more
    ends_by: float = math.inf  # sends what is unsent until then, and is closed
    sender: Sender | None = None
    is_ended: bool = False

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0

    @property
    def ends(self) -> bool:
        """Whether it has its last message."""
        return self.ends_by < math.inf


class LinkServer(Generic[Sender]):
    """Serves connections in a thread, on the first free port.

    Args:
        bind_host: The address to listen on.
        secret: The first line of each connection; others are closed.
        on_message: Handles a message; any error closes the connection.
        on_close: Called when an accepted connection is closed.
        on_look: Called every LOOK_EVERY s.
        on_wake: Called after `wake`.
        ports: The ports to try, in order.
        clock: Seconds, monotonic.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        bind_host: str,
        secret: str,
        *,
        on_message: Callable[[Connection[Sender], dict[str, Any]], None],
        on_close: Callable[[Sender], None],
        on_look: Callable[[], None],
        on_wake: Callable[[], None],
        ports: Sequence[int] = ANY_PORT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._secret = secret.encode() + b"\n"
        self._on_message, self._on_close = on_message, on_close
        self._on_look, self._on_wake = on_look, on_wake
        self._clock, self._sleep = clock, sleep
        self._unaccepted: dict[Connection[Sender], None] = {}  # the oldest first
        self._ending: dict[Connection[Sender], None] = {}  # after their last message
        self._looked = clock()
        self._selector = selectors.DefaultSelector()
        self._listening = _listening_on(bind_host, ports)
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._wakes, self._woken = socket.socketpair()
        self._wakes.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="driver-coordinator", daemon=True)

    @property
    def is_here(self) -> bool:
        """Whether its thread runs: not in a fork of this process."""
        return self._thread.is_alive()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Have the thread call on_wake soon. Callable from any thread."""
        with suppress(BlockingIOError):  # earlier wakes are not read yet
            self._wakes.send(b"\n")

    def accept(self, connection: Connection[Sender], sender: Sender) -> None:
        del self._unaccepted[connection]
        connection.sender = sender

    def send(self, connection: Connection[Sender], kind: str, **facts: Any) -> None:
        """Send at once what the connection takes, and the rest as soon as it takes more."""
        if connection.is_open and not connection.ends:
            connection.unsent += write_line(kind, **facts)
            self._flush(connection)

    def send_last(self, connection: Connection[Sender], kind: str, **facts: Any) -> None:
        """Send nothing more. The connection ends once all is sent; a task's connection ends when
        the task closes it, which is after its calls, or after a while.
        """
        self.send(connection, kind, **facts)
        if connection.is_open and (connection.unsent or connection.sender is not None):
            connection.ends_by = min(connection.ends_by, self._clock() + HELLO_WITHIN)
            self._ending[connection] = None
        else:
            self.close(connection)

    def _flush(self, connection: Connection[Sender]) -> None:
        try:
            while connection.unsent:
                connection.unsent = connection.unsent[connection.socket.send(connection.unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # the connection is gone
            self.close(connection)
            return
        is_ended = (
            not connection.unsent and connection in self._ending and connection.sender is None
        )
        if is_ended or len(connection.unsent) > MOST_UNSENT:
            self.close(connection)
            return
        if connection.waits != bool(connection.unsent):
            connection.waits = not connection.waits
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.waits else 0)
            self._selector.modify(connection.socket, events, connection)

    def close(self, connection: Connection[Sender]) -> None:
        if not connection.is_open:
            return
        self._unaccepted.pop(connection, None)
        self._ending.pop(connection, None)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.sender is not None:
            self._on_close(connection.sender)

    def _serve(self) -> None:
        while True:
            try:
                self._serve_once()
            except Exception:
                logging.getLogger("tidegate").exception("the coordinator goes on after an error")
                self._sleep(LOOK_EVERY)  # otherwise a repeated error could use a whole core

    def _serve_once(self) -> None:
        connected = len(self._selector.get_map()) > 2  # besides what accepts and what wakes
        for key, events in self._selector.select(LOOK_EVERY if connected else None):
            if key.fileobj is self._woken:
                self._woken.recv(LONGEST_READ)
                self._on_wake()
                continue
            if key.data is None:
                self._connect()
                continue
            # otherwise it was closed meanwhile
            if events & selectors.EVENT_WRITE and key.data.is_open:
                self._flush(key.data)
            if events & selectors.EVENT_READ and key.data.is_open:
                self._read(key.data)
        if connected and self._clock() - self._looked >= LOOK_EVERY:
            self._looked = self._clock()
            late = [
                connection
                for connection in self._unaccepted
                if connection.accepted_at <= self._looked - HELLO_WITHIN
            ]
            for connection in [
                *late,
                *(connection for connection in self._ending if connection.ends_by <= self._looked),
            ]:
                self.close(connection)
            self._on_look()

    def _connect(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except OSError as error:  # the client has gone again
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # the connection stays queued, so the selector would return at once
                self._sleep(0.02)
            return
        accepted.setblocking(False)
        if len(self._unaccepted) >= MOST_UNACCEPTED:
            self.close(next(iter(self._unaccepted)))
        connection: Connection[Sender] = Connection(accepted, self._clock())
        self._unaccepted[connection] = None
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        # a hello often arrived already, and must not wait behind many connections
        self._read(connection)

    def _read(self, connection: Connection[Sender]) -> None:
        """Read arrived data and handle complete lines. Closes a connection with invalid data."""
        try:
            # before the secret, no further byte is read
            missing = len(self._secret) - len(connection.received)
            received = connection.socket.recv(LONGEST_READ if connection.has_secret else missing)
            connection.is_ended = not received
        except BlockingIOError:
            return
        except OSError:
            received = b""
        connection.received += received
        if not received or not self._has_secret(connection):
            if not received:
                self.close(connection)
            return
        *lines, connection.received = connection.received.split(b"\n")
        try:
            for line in lines:
                if connection.is_open and (connection.sender or not connection.ends):
                    self._on_message(connection, json.loads(line))
        except Exception as error:  # noqa: BLE001  # this thread must survive any message
            logging.getLogger("tidegate").debug(
                "the coordinator closes a connection: %s", type(error).__name__
            )
            self.close(connection)
        if len(connection.received) > LONGEST_LINE:
            self.close(connection)

    def _has_secret(self, connection: Connection[Sender]) -> bool:
        """Return whether the connection's first line is the secret; close it otherwise."""
        if not connection.has_secret and len(connection.received) >= len(self._secret):
            connection.has_secret = hmac.compare_digest(connection.received, self._secret)
            connection.received = b""
            if not connection.has_secret:
                self.close(connection)
        return connection.has_secret


def link_ports() -> Sequence[int]:
    """Return the ports on which a driver may listen for tasks of other hosts, by the environment.

    Raises:
        DeclarationError: The environment's value is not a port or a range of ports.
    """
    text = os.environ.get(LINK_PORT) or "0"
    named = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", text)
    first, last = (int(named[1]), int(named[2] or named[1])) if named else (1, 0)
    if not first <= last <= 65_535:
        raise DeclarationError(
            f"{LINK_PORT} is {text!r}; it must be a port, such as 7100, or several, such as "
            "7100-7109."
        )
    return range(first, last + 1)


def _listening_on(bind_host: str, ports: Sequence[int]) -> socket.socket:
    """Listen on the first free port: at the host's address, or at all addresses if that address
    belongs to another host, as in a container.

    Raises RunStopped if no port is free.
    """
    for host, port in itertools.product((bind_host, ""), ports):
        with suppress(OSError):
            return _listening(host, port)
    raise RunStopped(
        f"the driver cannot listen for its tasks: no port of {ports[0]}-{ports[-1]} ({LINK_PORT}) "
        "is free. Nothing was called."
    )


def _listening(host: str, port: int) -> socket.socket:
    both = not host and socket.has_dualstack_ipv6()
    found = socket.socket(
        socket.AF_INET6 if both or ":" in host else socket.AF_INET, socket.SOCK_STREAM
    )
    try:
        if both:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # a port of a run that has just ended
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1000)
    except OSError:
        found.close()
        raise
    found.setblocking(False)
    return found
