"""What a task hears from outside: Spark has hung up on its worker; the driver says that nobody wants the stage, or how
many calls the task may have in flight.

Python learns of neither by itself: a task that only waits for answers reads and writes nothing for a while, and makes
thousands of calls meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from jobs.bridge.desk import AGAIN, GO, LONGEST_WORD, SHARE, STOP, WAIT, DeskAddress
from jobs.errors import ComputedBefore

if TYPE_CHECKING:
    from pyspark import TaskContext

PARTITION_OF_FRAME = "__partition_of_frame"  # int column: the row's partition, whatever Spark puts into one stage
GRACE = 1.0  # s for the calls to be cancelled and the answers to be stored, once Spark has hung up
PATIENCE = 5.0  # s for the driver's answer
NOT_WANTED = "Spark wants this stage no more"
HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR if hasattr(select, "POLLRDHUP") else 0


def spark_socket() -> int | None:
    """The file descriptor of the socket between this worker and Spark's JVM; None where there is no such thing.

    Called from Spark's own thread: the socket is what pyspark's main function reads from, further up.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__", "").startswith("pyspark."):
            with suppress(OSError, AttributeError, ValueError):
                number = frame.f_locals["infile"].fileno()
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    return int(number)
        frame = frame.f_back
    return None


class DeskLine:
    """A task's connection to the driver's desk. What breaks it is no matter: Spark itself must reach the driver."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._heard = b""

    def words(self) -> list[list[str]]:
        """What the desk has said since, line by line; waits for a line. None at all: the connection broke."""
        while b"\n" not in self._heard:
            heard = b""
            with suppress(OSError):
                heard = self.socket.recv(LONGEST_WORD)
            if not heard:
                return []
            self._heard += heard
        *lines, self._heard = self._heard.split(b"\n")
        return [line.decode().split() for line in lines]

    def say(self, **facts: int | str | Sequence[int]) -> None:
        with suppress(OSError):
            self.socket.sendall(json.dumps(facts).encode() + b"\n")

    def close(self) -> None:
        self.socket.close()


def report_to_desk(
    address: DeskAddress, run: Stoppable, *, partition: int, stage: int, task: int, waits: bool = True
) -> DeskLine | None:
    """Ask the driver whether to begin, and take the share that it gives. The connection on which it will say more; None
    when it is not reached.

    partition: of the enriched DataFrame; task: the task's number in its stage. waits: for a share, where there is none
    yet. Raises ComputedBefore.
    """
    try:
        line = DeskLine(socket.create_connection((address.host, address.port), PATIENCE))
    except OSError as error:
        logging.getLogger("tidegate").warning(
            "the driver at %s:%d is not reached (%s): a second computation of this DataFrame would not be noticed",
            address.host, address.port, error,
        )  # fmt: skip
        return None
    line.say(frame=address.frame, partition=partition, stage=stage, task=task)
    words = line.words()
    if waits and words == [[WAIT]]:
        line.socket.settimeout(None)
        words = line.words()
    if words == [[AGAIN]]:
        line.close()
        raise ComputedBefore(
            "this enriched DataFrame was computed before, and its services would be called again: "
            "write it first, then read what was written; enrich() anew calls them anew."
        )
    if not words:
        line.close()
        return None
    if take(words, run, line):
        run.stop(NOT_WANTED)
    return line


def take(said: list[list[str]], run: Stoppable, line: DeskLine) -> bool:
    """Take the shares that the desk gives, and say since when; whether it says to stop."""
    for word, *share in said:
        if word in (GO, SHARE) and share:
            line.say(since=run.widen([*map(int, share)]))
    return [STOP] in said


class Stoppable(Protocol):
    """The run of one task."""

    def run(
        self, batches: Iterator[pa.RecordBatch], say_needs: Callable[[Sequence[int]], None]
    ) -> Iterator[pa.RecordBatch]:
        """say_needs: for its loop, when all its rows are called for: at most so many in flight from now, per lookup."""

    def stop(self, reason: str) -> None: ...

    def widen(self, shares: Sequence[int]) -> int:
        """From now on so many calls in flight, per lookup. Since when: µs since the epoch by the task's clock."""

    def go_alone(self) -> None:
        """The desk is not reached: so many as each task has at first."""

    def now_us(self) -> int: ...


def watched(
    run: Stoppable, batches: Iterator[pa.RecordBatch], desk: DeskAddress | None, task: TaskContext
) -> Iterator[pa.RecordBatch]:
    """The run's output. Its task reports to the desk with its first row, stops when it is wanted no more, and says when
    it has ended, one without rows too, where others may have what it leaves.
    """
    watch = StopWatch(spark_socket(), run)
    stage, number = task.stageId(), task.partitionId()
    reported = False

    def reporting() -> Iterator[pa.RecordBatch]:
        nonlocal reported
        for batch in batches:
            if not reported and batch.num_rows and desk is not None:
                reported = True
                partition = batch.column(PARTITION_OF_FRAME)[0].as_py()
                line = report_to_desk(desk, run, partition=partition, stage=stage, task=number)
                if line is None and desk.divides:
                    run.go_alone()
                watch.listen_to(line)
            yield batch

    try:
        yield from run.run(reporting(), watch.say_needs)
        if desk is not None and desk.divides:
            if not reported:
                watch.listen_to(report_to_desk(desk, run, partition=number, stage=stage, task=number, waits=False))
            watch.say_ended()
    finally:
        watch.close()


class StopWatch:
    """A thread that hears what the desk says, and calls `run.stop(reason)` once, when it is time. `close` ends it.

    After a hang-up the process ends in GRACE seconds unless `close` came: what Spark's thread, a caller or the ledger
    still does then is wanted by nobody.
    """

    def __init__(self, spark: int | None, run: Stoppable) -> None:
        self._spark, self._run = spark, run
        self._desk: DeskLine | None = None
        self._wake, self._woken = os.pipe()
        self._closed = threading.Event()
        self._saying = threading.Lock()  # else two moments could be told in the wrong order
        self._thread = threading.Thread(target=self._watch, name="tidegate-stop-watch", daemon=True)
        self._thread.start()

    def listen_to(self, desk: DeskLine | None) -> None:
        """Heed the driver's desk too, from now on; closes the connection at the end."""
        self._desk = desk
        os.write(self._woken, b".")

    def say_needs(self, calls: Sequence[int]) -> None:
        """Never again so many in flight as this task may have: others may have what is above these, per lookup."""
        desk = self._desk
        if desk is not None:
            with self._saying:
                desk.say(needs=calls, **{"from": self._run.now_us()})

    def say_ended(self) -> None:
        """All rows are through, and no call is under way: what this task had may go to others."""
        desk = self._desk
        if desk is not None:
            desk.say(ended=self._run.now_us())

    def close(self) -> None:
        self._closed.set()
        os.write(self._woken, b".")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        os.close(self._wake)
        os.close(self._woken)
        if self._desk is not None:
            self._desk.close()

    def _watch(self) -> None:
        reason = None
        while reason is None and not self._closed.is_set():
            reason = self._look()
        if reason is not None:
            self._run.stop(reason)
            if reason == "Spark hung up" and not self._closed.wait(GRACE):
                os._exit(1)

    def _look(self) -> str | None:
        """Wait for something to happen; why the task is to stop, if that was it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._spark is not None and HUNG_UP:
            poll.register(self._spark, HUNG_UP)
        desk = self._desk
        if desk is not None:
            poll.register(desk.socket, select.POLLIN)
        for number, _ in poll.poll():
            if number == self._spark:
                return "Spark hung up"
            if number == self._wake:
                os.read(self._wake, 1)
            elif desk is not None:
                return self._heard(desk)
        return None

    def _heard(self, desk: DeskLine) -> str | None:
        said = desk.words()
        if not said:  # the connection broke, which says nothing: Spark itself notices when the driver is gone
            self._desk = None
            desk.close()
        with self._saying:
            return NOT_WANTED if take(said, self._run, desk) else None
