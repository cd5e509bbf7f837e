"""The task's side of the driver link (coordinator.py): sends progress, receives its share, and stops on order.

A Python worker cannot detect a cancelled stage or a dead driver itself: a task that waits for answers reads and writes
nothing for a while, and makes thousands of calls meanwhile.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from jobs import errors
from jobs.errors import ComputedBefore, TaskFailed, TidegateError
from jobs.wording import one_line

if TYPE_CHECKING:
    from pyspark import TaskContext

    from jobs.task.progress import TaskProgress

LONGEST_LINE = 64 << 10  # bytes
LONGEST_READ = 16 << 10  # bytes
GO, SHARE, WAIT, STOP, AGAIN, FAILED, SPENT = "go", "share", "wait", "stop", "again", "failed", "spent"
PAUSE_OF, LEASES = "pause", "leases"
KINDS = (GO, SHARE, WAIT, STOP, AGAIN, FAILED, SPENT, PAUSE_OF, LEASES)  # of messages from the driver
PARTITION_OF_FRAME = "__partition_of_frame"  # int column: the row's partition, independent of Spark's stages
PATIENCE = 5.0  # s for the driver's first answer
TRIES = 5  # other connections may push out one without a hello
PAUSE = 0.1  # s between them
FLUSH_TIMEOUT = 2.0  # s for the driver to take the last messages
NOT_WANTED = "Spark wants this stage no more"
DRIVER_GONE = "the connection to the driver ended"


@dataclass(frozen=True)
class DriverAddress:
    """The driver's address for the tasks of one enriched DataFrame. Plain data, sent to the executors in the plan."""

    host: str
    port: int
    frame: int  # number of the DataFrame
    once: bool  # refuse a second computation, which would repeat calls
    divides: bool = False  # ended tasks lend their calls in flight to others
    leases: bool = False  # calls need a lease from the driver
    secret: str = field(default="", repr=False)


class Stoppable(Protocol):
    """The run of one task."""

    driver: ToDriver

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def stop(self, reason: str) -> None: ...

    def fail(self, error: Exception) -> None:
        """Stop, and raise this error in the task."""

    def end_calls(self) -> None:
        """Another task is at the cap on calls: start no call, and fail like it once none is in flight."""

    def grow(self, shares: Sequence[int]) -> int:
        """Set the calls in flight per lookup; returns the time in µs since the epoch by the task's clock."""

    def go_alone(self) -> None:
        """Work without a driver, with the initial share."""

    def pause(self, service: str, seconds: float, *, down: bool) -> None:
        """Another task was throttled for this long, or found the service down."""

    def take_leases(self, number: int, answers: Mapping[str, Any]) -> None:
        """Take the leases by service, the driver's answer to the heartbeat with this number."""

    def now_us(self) -> int: ...


class ToDriver:
    """Messages from a task's loop to the driver; dropped if the driver is unreachable."""

    def __init__(self) -> None:
        self._link: DriverLink | None = None

    def connect(self, link: DriverLink | None) -> None:
        self._link = link

    def say_needs(self, calls: Sequence[int]) -> None:
        """Report, per lookup, the highest number of calls that this task can still need; others get the rest of its
        share.
        """
        if self._link is not None:
            self._link.say_needs(calls)

    def say_progress(self, progress: TaskProgress) -> None:
        """Send progress, without blocking the loop or failing the run."""
        if self._link is not None:
            self._link.say_progress(progress)

    def say_ended(self) -> None:
        """Report that all rows are done and no call is running, so that others get this task's share."""
        if self._link is not None:
            self._link.say_ended()

    def say_pause(self, service: str, seconds: float, reason: str, *, down: bool) -> None:
        """Report throttling or an outage, so that no task calls the service for this long."""
        if self._link is not None:
            self._link.say(PAUSE_OF, service=service, seconds=seconds, reason=one_line(reason), down=down)

    def say_leases(self, number: int, services: Mapping[str, Any]) -> None:
        """Report this task's current and possible use of limits over runs."""
        if self._link is not None:
            self._link.say(LEASES, number=number, services=services)

    def say_failed(self, error: BaseException) -> None:
        """Report a failure that a retry would repeat, so that no attempt follows and the other tasks stop."""
        if self._link is not None:
            self._link.say_failed(error)

    def wait_for_others(self) -> None:
        """Wait until the driver reports that the other tasks have no call in flight, or that Spark ended them."""
        if self._link is not None:
            self._link.wait_until_stopped()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()


def with_driver(
    run: Stoppable, batches: Iterator[pa.RecordBatch], address: DriverAddress, task: TaskContext
) -> Iterator[pa.RecordBatch]:
    """The run's output. The task registers at the driver with its first row, stops on its order, and reports its end,
    also without rows, if others may use its share.
    """
    driver = run.driver
    stage, number = task.stageId(), task.partitionId()
    reported = False

    def reporting() -> Iterator[pa.RecordBatch]:
        nonlocal reported
        for batch in batches:
            if not reported and batch.num_rows:
                reported = True
                partition = batch.column(PARTITION_OF_FRAME)[0].as_py()
                link = connected(address, run, partition=partition, stage=stage, task=number)
                if link is None and address.leases:
                    raise TaskFailed(
                        f"the driver at {address.host}:{address.port} is not reached, and without it no call may "
                        "start, as limits hold over runs; let executors reach the driver's address."
                    )
                if link is None and address.divides:
                    run.go_alone()
                driver.connect(link)
            yield batch

    try:
        yield from run.run(reporting())
        if address.divides and not reported:
            driver.connect(connected(address, run, partition=number, stage=stage, task=number, waits=False))
        if address.divides or address.leases:
            driver.say_ended()
    finally:
        driver.close()


def connected(
    address: DriverAddress,
    run: Stoppable,
    *,
    partition: int,
    stage: int,
    task: int,
    waits: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> DriverLink | None:
    """Register at the driver and receive a share.

    Args:
        address: The driver's address.
        run: Receives the share and the order to stop.
        partition: Number in the enriched DataFrame.
        stage: Spark's number of the stage.
        task: the task's number in its stage.
        waits: for a share, where there is none yet.
        sleep: between two tries, s.

    Returns:
        The link, which listens; None if the driver is unreachable.

    Raises:
        ComputedBefore: The partition was computed before.
        TidegateError: Another task, or an earlier attempt of this one, failed with it.
    """
    hello = {"kind": "hello", "frame": address.frame, "partition": partition, "stage": stage, "task": task}
    for _ in range(TRIES):
        try:
            lines = Lines(socket.create_connection((address.host, address.port), PATIENCE))
        except OSError as error:
            _warn_not_reached(address, str(error))
            return None
        with suppress(OSError):
            lines.socket.sendall(address.secret.encode() + b"\n" + json.dumps(hello).encode() + b"\n")
        if messages := lines.read():
            return _begun(lines, messages, run, waits=waits)
        lines.socket.close()
        sleep(PAUSE)
    _warn_not_reached(address, "it closes the connection")
    return None


def _warn_not_reached(address: DriverAddress, why: str) -> None:
    logging.getLogger("tidegate").warning(
        "the driver at %s:%d is not reached (%s): a second computation of this DataFrame would not be noticed",
        address.host, address.port, why,
    )  # fmt: skip


def _begun(lines: Lines, messages: list[dict[str, Any]], run: Stoppable, *, waits: bool) -> DriverLink:
    """The link, once the driver has accepted the task."""
    lines.socket.settimeout(None)
    if waits and messages[0]["kind"] == WAIT:
        messages = messages[1:] or lines.read()
    if messages and messages[0]["kind"] == FAILED:
        lines.socket.close()
        raise _error_of(messages[0])
    if messages and messages[0]["kind"] == AGAIN:
        lines.socket.close()
        raise ComputedBefore(
            "this enriched DataFrame was computed before, and its services would be called again: "
            "write it first, then read what was written; enrich() anew calls them anew."
        )
    return DriverLink(lines, run, messages)


class Lines:
    """Reads messages as JSON lines from a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._heard = b""

    def read(self) -> list[dict[str, Any]]:
        """Wait for the next messages. Empty if the connection has ended or sent invalid data."""
        while b"\n" not in self._heard:
            heard = b""
            with suppress(OSError):
                heard = self.socket.recv(LONGEST_READ)
            if not heard or len(self._heard) > LONGEST_LINE:
                return []
            self._heard += heard
        *lines, self._heard = self._heard.split(b"\n")
        try:
            return [_message(line) for line in lines]
        except (ValueError, TypeError, RecursionError):
            return []


def _message(line: bytes) -> dict[str, Any]:
    """Parse a message. Raises ValueError for an invalid one."""
    message = json.loads(line)
    if not isinstance(message, dict) or message.get("kind") not in KINDS:
        raise ValueError(line)
    return message | {"share": [*map(int, message.get("share", ()))]}


def _error_of(message: dict[str, Any]) -> TidegateError:
    """The error of the failed task."""
    kind = vars(errors).get(str(message.get("error")))
    if not (isinstance(kind, type) and issubclass(kind, TidegateError)):
        kind = TaskFailed
    return kind(str(message.get("message")))


class DriverLink:
    """A task's connection to the driver. A thread reads it, and stops the run on the driver's order or when the driver
    is gone.

    `close` ends it.
    """

    def __init__(self, lines: Lines, run: Stoppable, messages: list[dict[str, Any]]) -> None:
        """messages: already received ones."""
        self._lines, self._run = lines, run
        self._socket = lines.socket
        self._unsent = b""
        self._saying = threading.RLock()  # otherwise two moments could be sent in the wrong order
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="tidegate-driver-link", daemon=True)
        if not self._ends(messages):
            self._thread.start()

    def say_needs(self, calls: Sequence[int]) -> None:
        with self._saying:
            self._say(kind="needs", needs=calls, at=self._run.now_us())

    def say_progress(self, progress: TaskProgress) -> None:
        with self._saying:
            self._send()
            if not self._unsent:  # otherwise the driver lags, and the next progress replaces this one
                self._say(kind="progress", progress=vars(progress))

    def say_ended(self) -> None:
        self._say(kind="ended", ended=self._run.now_us())

    def say_failed(self, error: BaseException) -> None:
        message = error if isinstance(error, TidegateError) else TaskFailed(f"{type(error).__name__}: {error}")
        self._say(kind=FAILED, error=type(message).__name__, message=one_line(str(message)))

    def wait_until_stopped(self) -> None:
        """Wait until the driver stops or fails the run, or is gone. Call it before `close`."""
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """Close the link after the driver took all messages, or after FLUSH_TIMEOUT s."""
        self._closed.set()
        with self._saying, suppress(OSError):
            self._socket.settimeout(FLUSH_TIMEOUT)
            self._socket.sendall(self._unsent)
            self._socket.shutdown(socket.SHUT_WR)
        if self._thread.is_alive():
            self._thread.join(FLUSH_TIMEOUT)
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)  # wakes a thread that waits for a driver that hangs
            self._thread.join()
        self._socket.close()

    def say(self, kind: str, **facts: Any) -> None:
        """Send a message without an order among others."""
        self._say(kind=kind, **facts)

    def _say(self, **facts: Any) -> None:
        with self._saying:
            self._unsent += json.dumps(facts).encode() + b"\n"
            self._send()

    def _send(self) -> None:
        """Send as much as the connection accepts without blocking, because it runs in the loop."""
        with suppress(OSError):  # the reader detects the end of the connection
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_DONTWAIT) :]

    def _listen(self) -> None:
        while not self._ends(self._lines.read()):
            pass

    def _ends(self, messages: list[dict[str, Any]]) -> bool:
        """Handle the driver's messages, or the end of the connection: take shares and report their time. True at the
        end.
        """
        for message in messages:
            if message["kind"] in (GO, SHARE) and message["share"]:
                with self._saying:
                    self._say(kind="since", since=self._run.grow(message["share"]))
            elif message["kind"] == STOP:
                self._run.stop(NOT_WANTED)
                return True
            elif message["kind"] == FAILED:
                self._run.fail(_error_of(message))
                return True
            elif message["kind"] == SPENT:
                self._run.end_calls()
            elif message["kind"] == PAUSE_OF:
                self._run.pause(str(message["service"]), float(message["seconds"]), down=bool(message["down"]))
            elif message["kind"] == LEASES:
                self._run.take_leases(int(message["number"]), message["services"])
        if not messages and not self._closed.is_set():
            self._run.stop(DRIVER_GONE)
        return not messages
