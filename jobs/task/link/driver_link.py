"""The task's side of the driver link: sends progress and heartbeats, receives its limits, and stops on order.

A Python worker cannot detect a cancelled stage or a dead driver itself: a task that waits for answers reads and writes
nothing for a while, and makes thousands of calls meanwhile. Nor does a connection end when a host is cut off.
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
from typing import TYPE_CHECKING, Any, Protocol

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
from jobs.wording import one_line

if TYPE_CHECKING:
    from jobs.task.link.progress import TaskProgress

PATIENCE = 5.0  # s for the driver's first answer
TRIES = 5  # other connections may push out one without a hello
TRY_EVERY = 0.1  # s
FLUSH_TIMEOUT = 2.0  # s for the driver to take the last messages
NOT_WANTED = "Spark wants this stage no more"
DRIVER_GONE = "the connection to the driver ended"
DRIVER_SILENT = "the driver has not answered for {:.0f} s"


class TaskFacts(Protocol):
    """What a task asks of its TaskContext: Spark's, or that of a task in the driver."""

    def stageId(self) -> int: ...  # noqa: N802  # Spark's names

    def partitionId(self) -> int: ...  # noqa: N802

    def attemptNumber(self) -> int: ...  # noqa: N802

    def taskAttemptId(self) -> int: ...  # noqa: N802


class Controlled(Protocol):
    """The run of one task, as the driver controls it. From any thread."""

    driver: DriverLink

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def stop(self, reason: str) -> None: ...

    def fail(self, error: Exception) -> None:
        """Stop, and raise this error in the task."""

    def drain(self, reason: str) -> None:
        """Start no call, store the answers of those in flight, and fail once there are none."""

    def end_calls(self) -> None:
        """Another task is at the cap on calls: start no call, and fail like it once none is in flight."""

    def take_limits(self, number: int, share: Sequence[int], services: Mapping[str, Any]) -> None:
        """Use these calls in flight per lookup, and these leases by service.

        number: of the heartbeat that the driver answers; 0 where the task begins.
        """

    def begin_alone(self) -> None:
        """Work without a driver, with the initial share."""

    def send_heartbeat(self) -> None:
        """Report the use of limits at once."""

    def pause(self, service: str, seconds: float, *, down: bool) -> None:
        """Another task was throttled for this long, or found the service down."""

    def now_us(self) -> int: ...


class DriverLink:
    """A task's connection to the driver. Without one, messages are dropped.

    A thread reads it, and stops the run on the driver's order or when the driver is gone or silent. `close` ends it.

    Args:
        deadlines: For silence.
        clock: Seconds, monotonic.
    """

    def __init__(self, deadlines: Deadlines = DEADLINES, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._deadlines, self._clock = deadlines, clock
        self._heard_at = clock()  # the driver has received what was sent then
        self._said_at = self._heard_at
        self._drains = False
        self._lines: Lines | None = None
        self._run: Controlled
        self._unsent = b""
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="tidegate-driver-link", daemon=True)

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

        run: receives its limits and the order to stop. attempt: number among all attempts of all tasks.

        Raises TaskFailed for a task whose job has ended, and the TidegateError with which another task, or an earlier
        attempt of this one, failed.
        """
        hello = {"frame": address.frame, "partition": partition, "stage": stage, "attempt": attempt}
        why = "it closes the connection"
        for _ in range(TRIES):
            try:
                lines = Lines(socket.create_connection((address.host, address.port), PATIENCE))
            except OSError as error:
                why = str(error)
                break
            self._heard_at = self._said_at = self._clock()
            with suppress(OSError):
                lines.socket.sendall(address.secret.encode() + b"\n" + write_line(HELLO, **hello, at=run.now_us()))
            if messages := lines.read():
                self.begin(lines, run, messages)
                return True
            lines.socket.close()
            sleep(TRY_EVERY)
        logging.getLogger("tidegate").warning(
            "the driver at %s:%d is not reached (%s): this task keeps its first share of the calls in flight",
            address.host, address.port, why,
        )  # fmt: skip
        return False

    def begin(self, lines: Lines, run: Controlled, messages: list[dict[str, Any]]) -> None:
        """Listen from now on. messages: already received ones. Raises if the driver refuses the task."""
        lines.socket.settimeout(None)
        if messages[0]["kind"] in (FAILED, OVER):
            lines.socket.close()
            raise _refusal(messages[0])
        self._lines, self._run = lines, run
        if not self._ends(messages):
            self._thread.start()

    def send_progress(self, progress: TaskProgress) -> None:
        """Send progress, without blocking the loop or failing the run."""
        self._send()
        if not self._unsent:  # otherwise the driver lags, and the next progress replaces this one
            self.send(PROGRESS, progress=vars(progress))

    def send_failure(self, error: BaseException) -> None:
        """Report a failure that a retry would repeat, so that no attempt follows and the other tasks stop."""
        message = error if isinstance(error, TidegateError) else TaskFailed(f"{type(error).__name__}: {error}")
        self.send(FAILED, error=type(message).__name__, message=one_line(str(message)))

    def send_end(self) -> None:
        """Report that all rows are done and no call is running, so that others get this task's share."""
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
                self._unsent = self._unsent[self._lines.socket.send(self._unsent, socket.MSG_DONTWAIT) :]

    def wait_until_stopped(self) -> None:
        """Wait until the driver stops or fails the run, or is gone. Call it before `close`."""
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """Close the link after the driver took all messages, or after FLUSH_TIMEOUT s."""
        if self._lines is None:
            return
        self._closed.set()
        connection = self._lines.socket
        with self._sending, suppress(OSError):
            connection.settimeout(FLUSH_TIMEOUT)
            connection.sendall(self._unsent)
            connection.shutdown(socket.SHUT_WR)
        if self._thread.is_alive():
            self._thread.join(FLUSH_TIMEOUT)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # wakes a thread that waits for a driver that hangs
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
        """Seconds until something is to be said, or done about silence; None: a closed link only ends."""
        if self._closed.is_set():
            return None
        silence = self._deadlines.end_calls if self._drains else self._deadlines.start_none
        at = min(self._said_at + self._deadlines.say_every, self._heard_at + silence)
        return max(0.0, at - self._clock())

    def _look(self) -> bool:
        """Say that this task is alive, and end its calls if the driver does not answer. True at the end."""
        now = self._clock()
        if self._closed.is_set():
            return False
        if now >= self._said_at + self._deadlines.say_every:
            self._said_at = now
            self.send(ALIVE, at=now)
        if now < self._heard_at + self._deadlines.start_none:  # as `_next_look` computes it, to the last digit
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
        """Handle the driver's messages, or the end of the connection: None. True at the end."""
        run = self._run
        for message in messages or ():
            kind = message["kind"]
            if kind in (GO, LIMITS):
                run.take_limits(int(message.get("number", 0)), message["share"], message.get("services", {}))
            elif kind == ASK:
                run.send_heartbeat()
            elif kind == PAUSE:
                run.pause(str(message["service"]), float(message["seconds"]), down=bool(message["down"]))
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
    """The reason for which the task must not go on."""
    if message["kind"] == OVER:
        return TaskFailed("the job of this task has ended")
    kind = vars(errors).get(str(message.get("error")))
    if not (isinstance(kind, type) and issubclass(kind, TidegateError)):
        kind = TaskFailed
    return kind(str(message.get("message")))


def with_driver(
    run: Controlled, batches: Iterator[pa.RecordBatch], address: DriverAddress, task: TaskFacts
) -> Iterator[pa.RecordBatch]:
    """The run's output. The task registers at the driver with its first row, stops on its order, and reports its end,
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
                            f"the driver at {address.host}:{address.port} is not reached, and without it no call may "
                            "start, as limits hold over runs; let executors reach the driver's address."
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
