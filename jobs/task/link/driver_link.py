"""The task's side of the driver link: sends progress and heartbeats, receives limits and orders.

A Python worker cannot detect a cancelled stage or a dead driver itself: a task that waits for
answers reads and writes nothing for a while, and makes thousands of calls meanwhile. Nor does a
connection end when a host is cut off.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from jobs import errors
from jobs.errors import TaskFailed, TidegateError
from jobs.task.link.link_protocol import (
    ALIVE,
    ASK,
    DEADLINES,
    ENDED,
    FAILED,
    GO,
    HELLO,
    LIMITS,
    OVER,
    PAUSE,
    PROGRESS,
    SPENT,
    STOP,
    Deadlines,
    DriverAddress,
    Lines,
    write_line,
)
from jobs.task.link.progress import TaskProgress
from jobs.wording import described, one_line

PATIENCE = 5.0  # s for the driver's first answer
TRIES = 5  # other connections may push out a connection without a hello
TRY_EVERY = 0.1  # s
FLUSH_TIMEOUT = 2.0  # s for the driver to take the last messages
NOT_WANTED = "Spark no longer wants this stage"
DRIVER_GONE = "the connection to the driver ended"
DRIVER_SILENT = "the driver has not answered for {:.0f} s"


class TaskFacts(Protocol):
    """The facts of a TaskContext that a task reads: Spark's, or of a task in the driver."""

    def stageId(self) -> int: ...  # noqa: N802  # Spark's names

    def partitionId(self) -> int: ...  # noqa: N802

    def attemptNumber(self) -> int: ...  # noqa: N802

    def taskAttemptId(self) -> int: ...  # noqa: N802


class Controlled(Protocol):
    """A task's run, as the driver controls it. Methods may be called from any thread."""

    driver: DriverLink

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def stop(self, reason: str) -> None: ...

    def fail(self, error: Exception) -> None:
        """Stop, and raise this error in the task."""

    def drain(self, reason: str) -> None:
        """Start no call, store the answers of calls in flight, and then fail."""

    def end_calls(self) -> None:
        """Start no call, and fail by the cap once no call is in flight: another task reached it."""

    def take_limits(self, number: int, share: Sequence[int], services: Mapping[str, Any]) -> None:
        """Use the limits that the driver sends in answer to a heartbeat.

        Args:
            number: The heartbeat's number; 0 at the task's beginning.
            share: Calls in flight per lookup.
            services: The leases by service.
        """

    def begin_alone(self) -> None:
        """Work without a driver, with the initial share."""

    def send_heartbeat(self) -> None:
        """Report the use of limits at once."""

    def pause(self, service: str, seconds: float, *, down: bool) -> None:
        """Pause the service for this many seconds, as another task found it throttling or down."""

    def now_us(self) -> int: ...


class DriverLink:
    """A task's connection to the driver. Drops messages while it is not connected.

    A thread reads it, and stops the run on the driver's order or when the driver is gone or silent.
    `close` ends it.

    Args:
        deadlines: For silence.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, deadlines: Deadlines = DEADLINES, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._deadlines, self._clock = deadlines, clock
        self._heard_at = clock()  # the driver has received what was sent then
        self._sent_at = self._heard_at
        self._drains = False
        self._lines: Lines | None = None
        self._run: Controlled
        self._unsent = b""
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._listen, name="tidegate-driver-link", daemon=True
        )

    @property
    def is_connected(self) -> bool:
        return self._lines is not None

    def connect(
        self,
        address: DriverAddress,
        run: Controlled,
        *,
        partition: int,
        stage: int,
        attempt: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Register at the driver. Returns whether it is reached.

        Args:
            address: The driver's address.
            run: Receives its limits and the order to stop.
            partition: The task's number.
            stage: The number of its stage.
            attempt: Number of the attempt among all attempts of all tasks.
            sleep: Waits between tries.

        Raises:
            TaskFailed: The task's job has ended.
            TidegateError: Another task, or an earlier attempt of this task, failed with it.
        """
        hello = {"job": address.job, "partition": partition, "stage": stage, "attempt": attempt}
        why = "it closes the connection"
        for _ in range(TRIES):
            try:
                lines = Lines(socket.create_connection((address.host, address.port), PATIENCE))
            except OSError as error:
                why = str(error)
                break
            self._heard_at = self._sent_at = self._clock()
            with suppress(OSError):
                lines.socket.sendall(
                    address.secret.encode() + b"\n" + write_line(HELLO, **hello, at=run.now_us())
                )
            if messages := lines.read():
                self.begin(lines, run, messages)
                return True
            lines.socket.close()
            sleep(TRY_EVERY)
        logging.getLogger("tidegate").warning(
            "the driver at %s:%d is not reached (%s): this task keeps its first share of the calls "
            "in flight",
            address.host, address.port, why,
        )  # fmt: skip
        return False

    def begin(self, lines: Lines, run: Controlled, messages: list[dict[str, Any]]) -> None:
        """Handle the messages received already, then listen.

        Raises:
            TidegateError: The driver refuses the task.
        """
        lines.socket.settimeout(None)
        if messages[0]["kind"] in (FAILED, OVER):
            lines.socket.close()
            raise _refusal(messages[0])
        self._lines, self._run = lines, run
        ends = self._ends(messages)
        with self._sending:
            if self._closed.is_set():  # its run ended meanwhile
                lines.socket.close()
            elif not ends:
                self._thread.start()

    def send_progress(self, progress: TaskProgress) -> None:
        """Send progress, without blocking the loop or failing the run."""
        self._send()
        if not self._unsent:  # otherwise the driver lags, and the next progress replaces this one
            self.send(PROGRESS, progress=vars(progress))

    def send_failure(self, error: BaseException) -> None:
        """Report a failure that a retry would repeat: no attempt follows, and other tasks stop."""
        message = error if isinstance(error, TidegateError) else TaskFailed(described(error))
        self.send(FAILED, error=type(message).__name__, message=one_line(str(message)))

    def send_end(self) -> None:
        """Report that all rows are done and no call is running, so others get this task's share."""
        if self.is_connected:
            self.send(ENDED, ended=self._run.now_us())

    def send(self, kind: str, **facts: Any) -> None:
        self._send(write_line(kind, **facts))

    def _send(self, line: bytes = b"") -> None:
        """Send as much as the connection accepts without blocking, because it runs in the loop."""
        if self._lines is None:
            return
        with self._sending, suppress(OSError):  # the reader detects the end of the connection
            self._unsent += line
            while self._unsent:
                self._unsent = self._unsent[
                    self._lines.socket.send(self._unsent, socket.MSG_DONTWAIT) :
                ]

    def wait_until_stopped(self) -> None:
        """Wait until the driver stops or fails the run, or is gone. Call it before `close`."""
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """Close the link after the driver took all messages, or after FLUSH_TIMEOUT s."""
        with self._sending:
            self._closed.set()
        if self._lines is None:
            return
        connection = self._lines.socket
        with self._sending, suppress(OSError):
            connection.settimeout(FLUSH_TIMEOUT)
            connection.sendall(self._unsent)
            connection.shutdown(socket.SHUT_WR)
        if self._thread.is_alive():
            self._thread.join(FLUSH_TIMEOUT)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # wakes the thread if the driver hangs
            self._thread.join()
        connection.close()

    def _listen(self) -> None:
        assert self._lines is not None
        selector = selectors.DefaultSelector()
        selector.register(self._lines.socket, selectors.EVENT_READ)
        try:
            ended = False
            while not ended:
                arrived = selector.select(self._next_look())
                ended = (self._ends(self._lines.receive()) if arrived else False) or self._look()
        finally:
            selector.close()

    def _next_look(self) -> float | None:
        """Return the seconds until the next message or deadline; None once the link is closed."""
        if self._closed.is_set():
            return None
        silence = self._deadlines.end_calls if self._drains else self._deadlines.start_none
        at = min(self._sent_at + self._deadlines.say_every, self._heard_at + silence)
        return max(0.0, at - self._clock())

    def _look(self) -> bool:
        """Report that the task is alive; end its calls if the driver is silent. True at the end."""
        now = self._clock()
        if self._closed.is_set():
            return False
        if now >= self._sent_at + self._deadlines.say_every:
            self._sent_at = now
            self.send(ALIVE, at=now)
        if now < self._heard_at + self._deadlines.start_none:  # exactly as in `_next_look`
            return False
        reason = DRIVER_SILENT.format(now - self._heard_at)
        if now >= self._heard_at + self._deadlines.end_calls:
            self._run.stop(reason)
            return True
        if not self._drains:
            self._drains = True
            self._run.drain(reason)
        return False

    def _ends(self, messages: list[dict[str, Any]] | None) -> bool:
        """Handle the driver's messages. Return whether the link ends.

        Args:
            messages: None if the connection has ended.
        """
        run = self._run
        for message in messages or ():
            kind = message["kind"]
            if kind in (GO, LIMITS):
                run.take_limits(
                    int(message.get("number", 0)), message["share"], message.get("services", {})
                )
            elif kind == ASK:
                run.send_heartbeat()
            elif kind == PAUSE:
                run.pause(
                    str(message["service"]), float(message["seconds"]), down=bool(message["down"])
                )
            elif kind == SPENT:
                run.end_calls()
            elif kind == ALIVE:
                self._heard_at = max(self._heard_at, float(message["at"]))
            elif kind == STOP:
                run.stop(NOT_WANTED)
                return True
            elif kind == FAILED:
                run.fail(_refusal(message))
                return True
        if messages is None and not self._closed.is_set():
            run.stop(DRIVER_GONE)
        return messages is None


def _refusal(message: dict[str, Any]) -> TidegateError:
    """Return the error for which the task must not go on."""
    if message["kind"] == OVER:
        return TaskFailed("the job of this task has ended")
    kind = vars(errors).get(str(message.get("error")))
    if not (isinstance(kind, type) and issubclass(kind, TidegateError)):
        kind = TaskFailed
    return kind(str(message.get("message")))


def with_driver(
    run: Controlled, batches: Iterator[pa.RecordBatch], address: DriverAddress, task: TaskFacts
) -> Iterator[pa.RecordBatch]:
    """Yield the run's output, controlled by the driver.

    The task registers at the driver with its first row, stops on its order, and reports its end,
    also without rows, if others may use its share.
    """
    link = run.driver
    connect = partial(
        link.connect, address, run,
        partition=task.partitionId(), stage=task.stageId(), attempt=task.taskAttemptId(),
    )  # fmt: skip
    registered = False

    def registering() -> Iterator[pa.RecordBatch]:
        nonlocal registered
        for batch in batches:
            if not registered and batch.num_rows:
                registered = True
                if not connect():
                    if address.leases:
                        raise TaskFailed(
                            f"the driver at {address.host}:{address.port} is not reached, and "
                            "without it no call may start, as limits hold over runs; let executors "
                            "reach the driver's address."
                        )
                    run.begin_alone()
            yield batch

    try:
        yield from run.run(registering())
        if address.divides and not registered:
            connect()
        if address.divides or address.leases:
            link.send_end()
    finally:
        link.close()
