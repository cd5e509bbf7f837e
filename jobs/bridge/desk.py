"""The driver's desk: each task of an enriched DataFrame reports here before it works, and is told when to stop.

It answers what only the driver can. Was this partition computed before, by another job or another part of the same one?
Then its services would be called, and paid, a second time. Does Spark still want the stage? Spark kills the Python
workers of a cancelled stage after two seconds and more, in which they go on calling. And, where the tasks divide the
calls in flight: how many may this one have now, as others have ended?

Lines of text. A task says who it is, as JSON; the desk "go", with the task's share where there is one, or "again", or
"wait" until it says "go"; later "share" and "stop". To a share the task answers since when it has it, by its own clock;
once all its rows are called for, it says how many calls it may still need, and at its end when that was. So what each
was allowed can be held against its calls, whatever the clocks of the hosts.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.bridge.division import Division

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY = 0.25  # s, while a task is connected
LONGEST_WORD = 1000  # bytes
GO, SHARE, WAIT, STOP, AGAIN = "go", "share", "wait", "stop", "again"
LAST_WORDS = 1.0  # s for what the tasks of a job that has ended still have to say


@dataclass(frozen=True)
class DeskAddress:
    """Where the tasks of one enriched DataFrame report. Plain data: it travels to the executors."""

    host: str
    port: int
    frame: str  # names the DataFrame; a secret, so that nobody else is heard
    once: bool  # a second computation would call the services again
    divides: bool = False  # what a task leaves of the calls in flight goes to the others: it says when it has ended


@dataclass
class Given:
    """From `since` on a task might have so many calls in flight, per lookup: fewer by its own word, none at its end."""

    task: int
    shares: tuple[int, ...]
    since: int | None = None  # µs since the epoch by the task's clock; None: it never said that it heard


@dataclass
class _Frame:
    once: bool
    division: Division | None
    computed: dict[int, tuple[int, int]] = field(default_factory=dict)  # its partition -> stage and partition there
    given: list[Given] = field(default_factory=list)
    callers: list[_Caller] = field(default_factory=list)


@dataclass(eq=False)
class _Caller:
    """One connection: a task, once it has said who it is."""

    socket: socket.socket
    heard: bytes = b""
    frame: _Frame | None = None
    stage: int = -1
    partition: int = -1
    told: tuple[int, ...] | None = None  # its share
    given: list[Given] = field(default_factory=list)
    unanswered: deque[Given] = field(default_factory=deque)
    ended_at: int | None = None


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

    def register(self, *, once: bool, totals: Sequence[int] = (), tasks: int = 0) -> DeskAddress:
        """A new DataFrame. once: refuse to compute one of its partitions a second time. totals: per lookup, the calls
        in flight that its tasks divide; () where each keeps what it has.
        """
        frame = uuid.uuid4().hex
        self._frames[frame] = _Frame(once, Division(totals, tasks) if totals else None)
        return DeskAddress(self._host, self._listening.getsockname()[1], frame, once, bool(totals))

    def given(self, address: DeskAddress) -> list[Given]:
        """What its tasks were given, in this order, once its job has ended."""
        frame = self._frames[address.frame]
        until = time.monotonic() + LAST_WORDS
        while frame.callers and time.monotonic() < until:
            time.sleep(0.005)
        return list(frame.given)

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
        *lines, caller.heard = (caller.heard + heard).split(b"\n")
        try:
            for line in lines:
                self._take(caller, json.loads(line))
        except (ValueError, KeyError, TypeError, IndexError):  # no task of ours
            heard = b""
        if not heard or len(caller.heard) > LONGEST_WORD:
            self._leave(caller)

    def _take(self, caller: _Caller, said: dict[str, Any]) -> None:
        if caller.frame is None:
            self._welcome(caller, said)
        elif "since" in said:
            caller.unanswered.popleft().since = int(said["since"])
        elif "needs" in said:
            self._reduce(caller, caller.frame, [*map(int, said["needs"])], int(said["from"]))
        else:
            caller.ended_at = int(said["ended"])

    def _welcome(self, caller: _Caller, said: dict[str, Any]) -> None:
        frame = self._frames[said["frame"]]
        task = (int(said["stage"]), int(said["task"]))
        caller.partition = int(said["partition"])
        first = frame.computed.setdefault(caller.partition, task)
        # a retry of Spark's has the stage and the partition of the first attempt, whatever failed
        if first != task and frame.once:
            self._tell(caller, AGAIN)
            return
        caller.frame, caller.stage = frame, task[0]
        frame.callers.append(caller)
        if frame.division is None:
            self._tell(caller, GO)
            return
        frame.division.begin(caller.partition)
        self._tell_shares(frame, frame.division)
        if caller.told is None:
            self._tell(caller, WAIT)

    def _tell_shares(self, frame: _Frame, division: Division) -> None:
        while division.made_room:
            task = division.made_room.pop()
            since = [one.since for one in frame.given if one.task == task and one.since is not None]
            share = division.share_of(task)
            assert share is not None
            frame.given.append(Given(task, share, since[-1] if since else 0))
        for caller in list(frame.callers):  # one that has gone leaves it
            share = division.share_of(caller.partition)
            if share is not None and share != caller.told:
                word, caller.told = GO if caller.told is None else SHARE, share
                given = Given(caller.partition, share)
                frame.given.append(given)
                caller.given.append(given)
                caller.unanswered.append(given)
                self._tell(caller, " ".join([word, *map(str, share)]))

    def _reduce(self, caller: _Caller, frame: _Frame, needs: list[int], since: int) -> None:
        division = frame.division
        if division is None or not division.reduce(caller.partition, needs):
            return
        caller.told = division.share_of(caller.partition)
        assert caller.told is not None
        # it has not heard of these, as it says one thing after the other: of what they gave it has what it keeps
        unheard = [id(one) for one in caller.unanswered]
        frame.given[:] = [one for one in frame.given if id(one) not in unheard]
        frame.given.append(Given(caller.partition, caller.told, since))
        self._tell_shares(frame, division)

    def _look(self) -> None:
        """Tell the tasks of every stage that was active and is no more."""
        callers = [key.data for key in self._selector.get_map().values() if key.data and key.data.frame]
        for stage in {caller.stage for caller in callers}:
            if self._is_active(stage):
                self._seen_active.add(stage)
            elif stage in self._seen_active:
                for caller in callers:
                    if caller.stage == stage:
                        self._tell(caller, STOP)

    def _tell(self, caller: _Caller, words: str) -> None:
        try:
            caller.socket.sendall(words.encode() + b"\n")
        except OSError:
            self._leave(caller)
        else:
            if words in (STOP, AGAIN):
                self._leave(caller)

    def _leave(self, caller: _Caller) -> None:
        if caller.socket.fileno() < 0:
            return
        self._selector.unregister(caller.socket)
        caller.socket.close()
        frame = caller.frame
        if frame is None:
            return
        frame.callers.remove(caller)
        if frame.division is None:
            return
        self._take_back(frame, caller)
        gives = frame.division.leave(caller.partition, ended=caller.ended_at is not None)
        if gives:
            none = (0,) * len(frame.division.totals)
            frame.given.append(Given(caller.partition, none, caller.ended_at))
        self._tell_shares(frame, frame.division)

    def _take_back(self, frame: _Frame, caller: _Caller) -> None:
        """What a task took after its end, as the word of it was on its way: it had nothing to call for."""
        if caller.ended_at is not None:
            late = [id(one) for one in caller.given if one.since is None or one.since > caller.ended_at]
            frame.given[:] = [one for one in frame.given if id(one) not in late]


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
