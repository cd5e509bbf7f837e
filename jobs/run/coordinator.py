"""The driver's side of the driver link: one TCP connection per task, over which the two exchange lines of JSON.

The coordinator knows what only the driver can know. Whether a partition was computed before, by another job or another
part of the same one: its calls would be repeated, and paid again. Whether Spark still runs the stage: Spark kills the
Python workers of a cancelled stage only after two seconds or more, in which they would call. And each task's share of
the calls in flight, after others have ended. The tasks report their progress here.

The first line of a connection is the run's secret, compared before anything is parsed; the second is the hello.

| from the task | |
|---|---|
| `hello`: frame, partition, stage, task | answered by `go`, `wait` or `again` |
| `since`: µs | answers each share: from then on the task has it, by its own clock |
| `needs`: calls per lookup, `at`: µs | all its rows have come: it never has more than these in flight again |
| `progress`: TaskProgress | four times a second |
| `ended`: µs | all its rows are through |
| `pause`: service, seconds, reason, down | it wants to be left alone, or is down: no task is to call it |
| `leases`: number, services | a heartbeat: what it has in use of the limits over runs, and could use |
| `failed`: error, message | by what another attempt would not mend; at the cap on calls it waits for the others |

| from the driver | |
|---|---|
| `go`, `share`: calls in flight per lookup | begin with this share; from now on have this one |
| `wait` | until `go`: there is no share yet; until `failed`: the others end their calls |
| `again` | the partition was computed before: do not begin |
| `stop` | Spark wants the stage no more |
| `spent` | a task is at the cap on calls: start none, and say `failed` once none is in flight |
| `pause`: service, seconds, down | another task was asked to leave it alone, or finds it down |
| `leases`: number, services | what it may use from now on, in answer to its heartbeat |
| `failed`: error, message | a task has; no other one begins, or goes on |

So each task's shares can be compared with its calls, independent of the hosts' clocks.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.errors import BudgetExhausted, RunStopped
from jobs.limits.store_url import LIMITS_URL
from jobs.run.quota import Quota
from jobs.task.driver_link import (
    AGAIN,
    FAILED,
    GO,
    LEASES,
    LONGEST_LINE,
    LONGEST_READ,
    PAUSE_OF,
    SHARE,
    SPENT,
    STOP,
    WAIT,
    DriverAddress,
)
from jobs.task.service_lease import claims_of, message_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.limits.lease_keeper import LeaseKeeper

LOOK_EVERY = 0.25  # s, while a task is connected
SECRET_BYTES = 32
HELLO_WITHIN = 10.0  # s from the connection to a complete hello
MOST_STRANGERS = 64  # connections without a hello; a new one replaces the oldest
LAST_WORDS = 1.0  # s to wait for the last messages of an ended job's tasks
LOOPBACK = "127.0.0.1"
WITHOUT_STORE = 60.0  # s to wait for the store of the limits
_NOTHING: Mapping[str, Any] = {}
_NO_KEEPERS: Mapping[str, LeaseKeeper] = {}


@dataclass
class Given:
    """A task's share per lookup from `since` on: lower at its own request, 0 at its end."""

    task: int
    shares: tuple[int, ...]
    since: int | None = None  # µs since the epoch by the task's clock; None: never confirmed


@dataclass
class _Frame:
    once: bool
    division: Quota | None
    progress: int | None  # number of its listener
    keepers: Mapping[str, LeaseKeeper]  # by service, the run's leases
    computed: dict[int, tuple[int, int]] = field(default_factory=dict)  # its partition -> stage and partition there
    given: list[Given] = field(default_factory=list)
    tasks: list[_Link] = field(default_factory=list)
    failed: dict[str, Any] | None = None  # the failed task's message
    spent: str = ""  # message of the first task at the cap; its stage is cancelled when no call is in flight


@dataclass(eq=False)
class _Link:
    """One connection: unknown until its hello, then a task's."""

    socket: socket.socket
    accepted_at: float
    trusted: bool = False  # it knows the secret
    heard: bytes = b""
    frame: _Frame | None = None
    name: str = ""  # of the task's attempt
    stage: int = -1
    partition: int = -1
    reported: tuple[int, ...] | None = None  # its share
    given: list[Given] = field(default_factory=list)
    unanswered: deque[Given] = field(default_factory=deque)
    ended_at: int | None = None
    drained: bool = False  # at the cap on calls, it has none in flight and starts none


class DriverCoordinator:
    """One thread of the driver that survives any input.

    Args:
        host: The name under which tasks reach the driver.
        bind_host: the address to listen on.
        is_active: Whether Spark currently works on this stage.
        cancel: Cancels a stage in Spark with this reason.
        clock: s, monotonic.
    """

    def __init__(
        self,
        host: str,
        bind_host: str,
        is_active: Callable[[int], bool],
        *,
        cancel: Callable[[int, str], None] = lambda _stage, _reason: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        token: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._host, self._is_active, self._cancel, self._clock = host, is_active, cancel, clock
        self._sleep = sleep
        self._secret = token(SECRET_BYTES)
        self._frames: list[_Frame] = []
        self._attempts = 0  # of tasks so far
        self._listeners: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._strangers: dict[_Link, None] = {}  # without a hello, the oldest first
        self._seen_active: set[int] = set()
        self._looked = clock()
        self._selector = selectors.DefaultSelector()
        self._listening = _listening_on(bind_host)
        self._selector.register(self._listening, selectors.EVENT_READ)
        threading.Thread(target=self._serve, name="driver-coordinator", daemon=True).start()

    def register(
        self,
        *,
        once: bool,
        totals: Sequence[int] = (),
        tasks: int = 0,
        progress: int | None = None,
        keepers: Mapping[str, LeaseKeeper] = _NO_KEEPERS,
    ) -> DriverAddress:
        """A new DataFrame.

        Args:
            once: Refuse to compute one of its partitions a second time.
            totals: per lookup, the calls in flight that its tasks divide; () where each keeps what it has.
            tasks: how many divide them.
            progress: Number of the listener for its progress.
            keepers: By service, the run's leases.
        """
        self._frames.append(_Frame(once, Quota(totals, tasks) if totals else None, progress, keepers))
        port = self._listening.getsockname()[1]
        return DriverAddress(
            self._host, port, len(self._frames) - 1, once, bool(totals), leases=bool(keepers), secret=self._secret
        )

    def listen(self, heard: Callable[[dict[str, Any]], None]) -> int:
        """Pass `heard` the progress messages of DataFrames that are registered with this number."""
        number = max(self._listeners, default=-1) + 1
        self._listeners[number] = heard
        return number

    def forget(self, listener: int) -> None:
        del self._listeners[listener]

    def given(self, address: DriverAddress, clock: Callable[[], float] = time.monotonic) -> list[Given]:
        """The changes of its tasks' shares, in order, after its job has ended."""
        frame = self._frames[address.frame]
        until = clock() + LAST_WORDS
        while frame.tasks and clock() < until:
            self._sleep(0.005)
        return list(frame.given)

    def _serve(self) -> None:
        while True:
            try:
                self._serve_once()
            except Exception:
                logging.getLogger("tidegate").exception("the coordinator goes on after an error")
                self._sleep(LOOK_EVERY)  # otherwise a repeated error could use a whole core

    def _serve_once(self) -> None:
        connected = len(self._selector.get_map()) > 1
        for key, _ in self._selector.select(LOOK_EVERY if connected else None):
            if key.data is None:
                self._accept()
            elif key.data.socket.fileno() >= 0:  # otherwise it has left
                self._hear(key.data)
        if connected and self._clock() - self._looked >= LOOK_EVERY:
            self._looked = self._clock()
            self._drop_silent_strangers()
            self._look()

    # -- strangers -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError as error:  # it has gone again
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._sleep(0.02)  # it stays queued, so the selector would return at once
            return
        connection.setblocking(False)
        if len(self._strangers) >= MOST_STRANGERS:
            self._leave(next(iter(self._strangers)))
        link = _Link(connection, self._clock())
        self._strangers[link] = None
        self._selector.register(connection, selectors.EVENT_READ, link)
        self._hear(link)  # a hello often arrived already, and must not wait behind many connections

    def _drop_silent_strangers(self) -> None:
        late = self._clock() - HELLO_WITHIN
        for link in [stranger for stranger in self._strangers if stranger.accepted_at <= late]:
            self._leave(link)

    def _trusts(self, link: _Link) -> bool:
        """Whether its first line is the secret; closes it otherwise."""
        if not link.trusted and len(link.heard) > len(self._secret):
            link.trusted = hmac.compare_digest(link.heard, self._secret.encode() + b"\n")
            link.heard = b""
            if not link.trusted:
                self._leave(link)
        return link.trusted

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _hear(self, link: _Link) -> None:
        """Read arrived data and handle complete lines. Closes a link with invalid data."""
        try:
            # before the secret, no further byte is read
            heard = link.socket.recv(LONGEST_READ if link.trusted else len(self._secret) + 1 - len(link.heard))
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        link.heard += heard
        if not heard or not self._trusts(link):
            if not heard:
                self._leave(link)
            return
        *lines, link.heard = link.heard.split(b"\n")
        try:
            for line in lines:
                if link.socket.fileno() >= 0:
                    self._take(link, json.loads(line))
        except Exception as error:  # noqa: BLE001  # whatever it said: this thread goes on
            logging.getLogger("tidegate").debug("the coordinator closes a connection: %s", type(error).__name__)
            self._leave(link)
        if len(link.heard) > LONGEST_LINE:
            self._leave(link)

    def _take(self, link: _Link, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if link.frame is None:
            if kind != "hello":
                raise ValueError(kind)
            self._welcome(link, message)
        elif kind in ("progress", PAUSE_OF, LEASES):
            self._take_report(link, link.frame, message)
        elif kind == "since":
            link.unanswered.popleft().since = int(message["since"])
        elif kind == "needs":
            self._reduce(link, link.frame, [*map(int, message["needs"])], int(message["at"]))
        elif kind == "ended":
            link.ended_at = int(message["ended"])
        elif kind == FAILED:
            error, text = str(message["error"]), str(message["message"])
            if error == BudgetExhausted.__name__:
                self._drain(link, link.frame, text)
            else:
                self._fail(link, link.frame, error, text)
        else:
            raise ValueError(kind)

    def _take_report(self, link: _Link, frame: _Frame, message: dict[str, Any]) -> None:
        if message["kind"] == PAUSE_OF:
            self._pause(link, frame, message)
        elif message["kind"] == LEASES:
            self._renew(link, frame, int(message["number"]), message["services"])
        elif frame.progress is not None and (listener := self._listeners.get(frame.progress)) is not None:
            listener(message["progress"])

    def _welcome(self, link: _Link, message: dict[str, Any]) -> None:
        frame = self._frames[message["frame"]]
        if frame.failed is not None:  # Spark retries a task after any failure
            self._tell(link, FAILED, frame.failed)
            return
        task = (int(message["stage"]), int(message["task"]))
        link.partition = int(message["partition"])
        first = frame.computed.setdefault(link.partition, task)
        # a retry of Spark's has the stage and the partition of the first attempt, whatever failed
        if first != task and frame.once:
            self._tell(link, AGAIN)
            return
        self._strangers.pop(link, None)
        link.frame, link.stage = frame, task[0]
        self._attempts += 1
        link.name = f"{message['frame']}-{link.partition}-{self._attempts}"
        frame.tasks.append(link)
        link.drained = bool(frame.spent)  # it starts no calls
        if frame.division is not None:
            frame.division.begin(link.partition)
            self._tell_shares(frame, frame.division)
        elif not frame.spent:
            self._tell(link, GO)
            return
        if link.reported is None:
            self._tell(link, WAIT)
        self._fail_when_drained(frame)

    def _tell_shares(self, frame: _Frame, division: Quota) -> None:
        while division.made_room:
            task = division.made_room.pop()
            since = [one.since for one in frame.given if one.task == task and one.since is not None]
            share = division.share_of(task)
            assert share is not None
            frame.given.append(Given(task, share, since[-1] if since else 0))
        for link in list(frame.tasks):  # one that has gone leaves it
            share = division.share_of(link.partition)
            if share is not None and share != link.reported and not link.drained:
                kind, link.reported = GO if link.reported is None else SHARE, share
                given = Given(link.partition, share)
                frame.given.append(given)
                link.given.append(given)
                link.unanswered.append(given)
                self._tell(link, kind, {"share": share})

    def _reduce(self, link: _Link, frame: _Frame, needs: list[int], since: int) -> None:
        division = frame.division
        if division is None or not division.reduce(link.partition, needs):
            return
        link.reported = division.share_of(link.partition)
        assert link.reported is not None
        # it has not heard of these, as it says one thing after the other: of what they gave it has what it keeps
        unheard = [id(one) for one in link.unanswered]
        frame.given[:] = [one for one in frame.given if id(one) not in unheard]
        frame.given.append(Given(link.partition, link.reported, since))
        self._tell_shares(frame, division)

    def _drain(self, drained: _Link, frame: _Frame, message: str) -> None:
        """A task at the cap has no call in flight. Let the others finish theirs before it fails, because Spark cancels
        all tasks when one fails, and the next run would repeat their calls in flight.
        """
        drained.drained = True
        if not frame.spent:
            frame.spent = message
            for link in list(frame.tasks):
                if link is not drained:
                    self._tell(link, SPENT)
        self._fail_when_drained(frame)

    # -- limits over runs ----------------------------------------------------------------------------------------------

    def _pause(self, sender: _Link, frame: _Frame, message: dict[str, Any]) -> None:
        """One task was throttled or found the service down: pause all others."""
        service, seconds = str(message["service"]), float(message["seconds"])
        if service in frame.keepers:
            frame.keepers[service].close_gate(seconds, str(message["reason"]))
        for link in list(frame.tasks):
            if link is not sender:
                self._tell(link, PAUSE_OF, {"service": service, "seconds": seconds, "down": bool(message["down"])})

    def _renew(self, link: _Link, frame: _Frame, number: int, services: Mapping[str, Any]) -> None:
        answers = {}
        for service, message in services.items():
            keeper = frame.keepers[service]
            if message["probed"]:
                keeper.probed(link.name)
            answers[service] = message_of(keeper.heartbeat(link.name, claims_of(message, keeper.declared)))
        self._tell(link, LEASES, {"number": number, "services": answers})

    def _fail_without_store(self, frame: _Frame) -> None:
        """Fail the run, because the store did not return and no call may start."""
        for service, keeper in frame.keepers.items():
            lost = keeper.lost_since
            if frame.tasks and frame.failed is None and lost is not None and self._clock() - lost > WITHOUT_STORE:
                message = (
                    f"The store of the limits ({LIMITS_URL}) has not answered for {WITHOUT_STORE:.0f} s, so no call of "
                    f"{service} may start: what was answered is kept, nothing is published; run the day again."
                )
                self._fail(frame.tasks[0], frame, RunStopped.__name__, message)
                for link in list(frame.tasks):
                    self._tell(link, FAILED, frame.failed or _NOTHING)

    def _fail_when_drained(self, frame: _Frame) -> None:
        """Fail once all are drained, without waiting for tasks that died, ended or have not begun."""
        if frame.spent and frame.failed is None and frame.tasks and all(link.drained for link in frame.tasks):
            self._fail(frame.tasks[0], frame, BudgetExhausted.__name__, frame.spent)

    def _fail(self, failed: _Link, frame: _Frame, error: str, message: str) -> None:
        """Cancel the stage, because Spark would retry this task while its other tasks continue to call."""
        frame.failed = frame.failed or {"error": error, "message": message}
        for link in list(frame.tasks):
            if link is not failed or link.drained:  # it waits for the failure
                self._tell(link, FAILED, frame.failed)
        self._cancel(failed.stage, f"{BudgetExhausted.__module__}.{error}: {message}\n")

    def _look(self) -> None:
        """Stop the tasks of stages that are no longer active, and those that wait for a lost store."""
        for frame in self._frames:
            if frame.keepers:
                self._fail_without_store(frame)
        tasks = [key.data for key in self._selector.get_map().values() if key.data and key.data.frame]
        for stage in {link.stage for link in tasks}:
            if self._is_active(stage):
                self._seen_active.add(stage)
            elif stage in self._seen_active:
                for link in tasks:
                    if link.stage == stage:
                        self._tell(link, STOP)

    def _tell(self, link: _Link, kind: str, facts: Mapping[str, Any] = _NOTHING) -> None:
        try:
            link.socket.sendall(json.dumps({"kind": kind, **facts}).encode() + b"\n")
        except OSError:  # it is gone or does not read
            self._leave(link)
        else:
            if kind in (STOP, AGAIN, FAILED):
                self._leave(link)

    def _leave(self, link: _Link) -> None:
        if link.socket.fileno() < 0:
            return
        self._strangers.pop(link, None)
        self._selector.unregister(link.socket)
        link.socket.close()
        frame = link.frame
        if frame is None:
            return
        frame.tasks.remove(link)
        if link.ended_at is not None:  # otherwise it may have running calls until its leases end
            for keeper in frame.keepers.values():
                keeper.leave(link.name)
        self._fail_when_drained(frame)
        if frame.division is None:
            return
        self._take_back(frame, link)
        gives = frame.division.leave(link.partition, ended=link.ended_at is not None)
        if gives:
            none = (0,) * len(frame.division.totals)
            frame.given.append(Given(link.partition, none, link.ended_at))
        self._tell_shares(frame, frame.division)

    def _take_back(self, frame: _Frame, link: _Link) -> None:
        """Take back a share that reached a task after its end."""
        if link.ended_at is not None:
            late = [id(one) for one in link.given if one.since is None or one.since > link.ended_at]
            frame.given[:] = [one for one in frame.given if id(one) not in late]


def _listening_on(bind_host: str) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.bind((bind_host, 0))
    except OSError:  # the driver's name is for others: behind a container's door it is no address of ours
        found.bind(("", 0))
    found.listen(1000)
    found.setblocking(False)
    return found


_coordinator: DriverCoordinator | None = None
_opening = threading.Lock()


def coordinator_of(spark: SparkSession) -> DriverCoordinator:
    """This driver's coordinator, opened when it is first wanted; on loopback where all tasks are of this machine."""
    global _coordinator  # noqa: PLW0603  # one per process, as there is one SparkContext
    with _opening:
        if _coordinator is None:
            context = spark.sparkContext
            conf = context.getConf()
            host = LOOPBACK if str(context.master).startswith("local") else conf.get("spark.driver.host", LOOPBACK)
            bind_host = host if host == LOOPBACK else conf.get("spark.driver.bindAddress", host)
            _coordinator = DriverCoordinator(host, bind_host, _is_active, cancel=_cancel)
        return _coordinator


def _is_active(stage: int) -> bool:
    """Whether Spark works on this stage; False if Spark does not answer, because it is ending."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001  # the driver's own, from another thread
    try:
        return context is not None and stage in context.statusTracker().getActiveStageIds()
    except Exception:  # noqa: BLE001  # Py4J raises many: the JVM has been killed, or its context is stopped
        return False


def _cancel(stage: int, reason: str) -> None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001
    with suppress(Exception):  # as _is_active; Spark then tries the task again, which fails at its hello
        if context is not None:
            context._jsc.sc().cancelStage(stage, reason)  # noqa: SLF001  # PySpark has no word for it
