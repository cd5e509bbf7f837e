"""The driver's desk: each task of an enriched DataFrame reports here before it works, and is told when to stop.

It answers two questions that only the driver can. Was this partition computed before, by another job or another part
of the same one? Then its services would be called, and paid, a second time. And: does Spark still want the stage? Spark
kills the Python workers of a cancelled stage after two seconds and more, in which they go on calling.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY = 0.25  # s, while a task is connected
LONGEST_WORD = 1000  # bytes
GO, STOP, AGAIN = b"go\n", b"stop\n", b"again\n"


@dataclass(frozen=True)
class DeskAddress:
    """Where the tasks of one enriched DataFrame report. Plain data: it travels to the executors."""

    host: str
    port: int
    frame: str  # names the DataFrame; a secret, so that nobody else is heard
    once: bool  # a second computation would call the services again


@dataclass
class _Caller:
    """One connection: a task, once it has said who it is."""

    socket: socket.socket
    heard: bytes = b""
    stage: int | None = None


@dataclass
class _Frame:
    once: bool
    computed: dict[int, tuple[int, int]] = field(default_factory=dict)  # its partition -> stage and partition there


class Desk:
    """One thread of the driver. `is_active(stage)` says whether Spark works on a stage at this moment.

    A task that cannot reach it works all the same: Spark itself is what must reach the driver.
    """

    def __init__(self, host: str, bind_host: str, is_active: Callable[[int], bool]) -> None:
        self._host, self._is_active = host, is_active
        self._frames: dict[str, _Frame] = {}
        self._seen_active: set[int] = set()
        self._looked = 0.0
        self._selector = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._listening.bind((bind_host, 0))
        except OSError:  # the driver's name is for others: behind a container's door it is no address of ours
            self._listening.bind(("", 0))
        self._listening.listen(1000)
        self._listening.setblocking(False)
        self._selector.register(self._listening, selectors.EVENT_READ)
        threading.Thread(target=self._serve, name="driver's desk", daemon=True).start()

    def register(self, *, once: bool) -> DeskAddress:
        """A new DataFrame. once: refuse to compute one of its partitions a second time."""
        frame = uuid.uuid4().hex
        self._frames[frame] = _Frame(once)
        return DeskAddress(self._host, self._listening.getsockname()[1], frame, once)

    def _serve(self) -> None:
        while True:
            connected = len(self._selector.get_map()) > 1
            for key, _ in self._selector.select(LOOK_EVERY if connected else None):
                if key.data is None:
                    self._accept()
                else:
                    self._hear(key.data)
            if connected and time.monotonic() - self._looked >= LOOK_EVERY:
                self._looked = time.monotonic()
                self._look()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:  # it has gone again
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, _Caller(connection))

    def _hear(self, caller: _Caller) -> None:
        try:
            heard = caller.socket.recv(LONGEST_WORD)
        except OSError:
            heard = b""
        caller.heard += heard
        if not heard or len(caller.heard) > LONGEST_WORD:
            self._leave(caller)
        elif caller.stage is None and caller.heard.endswith(b"\n"):
            try:
                said = json.loads(caller.heard)
                answer = self._answer(said)
                caller.stage = int(said["stage"])
            except (ValueError, KeyError, TypeError):  # no task of ours
                self._leave(caller)
            else:
                self._tell(caller, answer)

    def _answer(self, said: dict[str, Any]) -> bytes:
        frame = self._frames[said["frame"]]
        task = (int(said["stage"]), int(said["task"]))
        first = frame.computed.setdefault(int(said["partition"]), task)
        # a retry of Spark's has the stage and the partition of the first attempt, whatever failed
        return GO if first == task or not frame.once else AGAIN

    def _look(self) -> None:
        """Tell the tasks of every stage that was active and is no more."""
        callers = [key.data for key in self._selector.get_map().values() if key.data is not None]
        for stage in {caller.stage for caller in callers if caller.stage is not None}:
            if self._is_active(stage):
                self._seen_active.add(stage)
            elif stage in self._seen_active:
                for caller in callers:
                    if caller.stage == stage:
                        self._tell(caller, STOP)

    def _tell(self, caller: _Caller, word: bytes) -> None:
        try:
            caller.socket.sendall(word)
        except OSError:
            self._leave(caller)
        else:
            if word != GO:
                self._leave(caller)

    def _leave(self, caller: _Caller) -> None:
        self._selector.unregister(caller.socket)
        caller.socket.close()


_desk: Desk | None = None
_opening = threading.Lock()


def desk_of(spark: SparkSession) -> Desk:
    """This driver's desk, opened when it is first wanted."""
    global _desk  # noqa: PLW0603  # one per process, as there is one SparkContext
    with _opening:
        if _desk is None:
            conf = spark.sparkContext.getConf()
            host = conf.get("spark.driver.host", "127.0.0.1")
            _desk = Desk(host, conf.get("spark.driver.bindAddress", host), _is_active)
        return _desk


def _is_active(stage: int) -> bool:
    """Whether Spark works on this stage; True where it cannot be asked, as then nobody is to be stopped."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001  # the driver's own, from another thread
    if context is None:
        return True
    try:
        return stage in context.statusTracker().getActiveStageIds()
    except Exception:  # noqa: BLE001  # Spark is stopping: it ends its workers itself
        return True
