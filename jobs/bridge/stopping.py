"""When a task is to stop calling: Spark has hung up on its worker, or the driver says that nobody wants the stage.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from jobs.bridge.desk import AGAIN, STOP, DeskAddress
from jobs.errors import ComputedBefore

if TYPE_CHECKING:
    from pyspark import TaskContext

PARTITION_OF_FRAME = "__partition_of_frame"  # int column: the row's partition, whatever Spark puts into one stage
GRACE = 1.0  # s for the calls to be cancelled and the answers to be stored, once Spark has hung up
PATIENCE = 5.0  # s for the driver's answer
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


def report_to_desk(address: DeskAddress, *, partition: int, stage: int, task: int) -> socket.socket | None:
    """Ask the driver whether to begin. The connection on which it will say when to stop; None when it is not reached.

    partition: of the enriched DataFrame; task: the task's number in its stage. Raises ComputedBefore.
    """
    said = {"frame": address.frame, "partition": partition, "stage": stage, "task": task}
    try:
        connection = socket.create_connection((address.host, address.port), PATIENCE)
    except OSError as error:
        logging.getLogger("tidegate").warning(
            "the driver at %s:%d is not reached (%s): a second computation of this DataFrame would not be noticed",
            address.host, address.port, error,
        )  # fmt: skip
        return None
    try:
        connection.sendall(json.dumps(said).encode() + b"\n")
        answer = connection.recv(len(AGAIN))
    except OSError:
        connection.close()
        return None
    if answer == AGAIN:
        connection.close()
        raise ComputedBefore(
            "this enriched DataFrame was computed before, and its services would be called again: "
            "write it first, then read what was written; enrich() anew calls them anew."
        )
    return connection


class Stoppable(Protocol):
    """The run of one task."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def stop(self, reason: str) -> None: ...


def watched(
    run: Stoppable, batches: Iterator[pa.RecordBatch], desk: DeskAddress | None, task: TaskContext
) -> Iterator[pa.RecordBatch]:
    """The run's output. Its task reports to the desk with its first row, and stops when it is wanted no more."""
    watch = StopWatch(spark_socket(), run.stop)

    def reported() -> Iterator[pa.RecordBatch]:
        told = desk is None
        for batch in batches:
            if not told and batch.num_rows and desk is not None:
                told = True
                partition = batch.column(PARTITION_OF_FRAME)[0].as_py()
                watch.listen_to(
                    report_to_desk(desk, partition=partition, stage=task.stageId(), task=task.partitionId())
                )
            yield batch

    try:
        yield from run.run(reported())
    finally:
        watch.close()


class StopWatch:
    """A thread that calls `stop(reason)` once, when it is time. `close` ends it; after a hang-up the process ends in
    GRACE seconds unless `close` came: what Spark's thread, a caller or the ledger still does then is wanted by nobody.
    """

    def __init__(self, spark: int | None, stop: Callable[[str], None]) -> None:
        self._spark, self._stop = spark, stop
        self._desk: socket.socket | None = None
        self._wake, self._woken = os.pipe()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tidegate-stop-watch", daemon=True)
        self._thread.start()

    def listen_to(self, desk: socket.socket | None) -> None:
        """Heed the driver's desk too, from now on; closes the connection at the end."""
        self._desk = desk
        os.write(self._woken, b".")

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
            self._stop(reason)
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
            poll.register(desk, select.POLLIN)
        for number, _ in poll.poll():
            if number == self._spark:
                return "Spark hung up"
            if number == self._wake:
                os.read(self._wake, 1)
            elif desk is not None:
                return self._heard(desk)
        return None

    def _heard(self, desk: socket.socket) -> str | None:
        said = b""
        with suppress(OSError):
            said = desk.recv(len(STOP))
        if said == STOP:
            return "Spark wants this stage no more"
        self._desk = None  # the connection broke, which says nothing: Spark itself notices when the driver is gone
        desk.close()
        return None
