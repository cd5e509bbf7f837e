"""The driver's side of the driver link (jobs/task/link/link_protocol.py).

The coordinator knows what only the driver can know. First, whether Spark still runs the stage:
Spark kills the Python workers of a cancelled stage only after two seconds or more, in which they
would call. Second, each task's share of the calls in flight after others have ended or fallen
silent. The tasks also report their progress here.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from jobs.errors import BudgetExhausted, RunStopped
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.run.coordinator.call_shares import CallShares
from jobs.run.coordinator.link_server import ANY_PORT, Connection, LinkServer
from jobs.schema.records import ShareGiven
from jobs.task.lease.lease_messages import parse_claims, parse_seen, write_message
from jobs.task.link.link_protocol import (
    ALIVE,
    ASK,
    DEADLINES,
    ENDED,
    FAILED,
    GO,
    HEARTBEAT,
    HELLO,
    LIMITS,
    OVER,
    PAUSE,
    PROGRESS,
    SPENT,
    STOP,
    Deadlines,
    DriverAddress,
)

SECRET_BYTES = 32
LAST_MESSAGES = 1.0  # s to wait for the last messages of an ended job's tasks
# s to wait for the calls of stopped tasks; Spark kills their processes after 2 to 4 s
LAST_CALLS = 5.0
WITHOUT_STORE = 60.0  # s to wait for the store of the limits
_NO_KEEPERS: Mapping[str, LeaseKeeper] = {}


@dataclass
class _Frame:
    shares: CallShares | None  # None: each task keeps its share
    progress: int | None  # number of its listener
    keepers: Mapping[str, LeaseKeeper]  # by service, the run's leases
    tasks: dict[str, _Task] = field(default_factory=dict)  # connected tasks, by name
    # by name: when their last call has certainly ended
    lost: dict[str, float] = field(default_factory=dict)
    failed: dict[str, Any] | None = None  # the failed task's message
    # message of the first task at the cap; its stage is cancelled when no call is in flight
    spent: str = ""


@dataclass(eq=False)
class _Task:
    connection: Connection[_Task]
    frame: _Frame
    name: str
    partition: int
    stage: int
    heard_at: float  # s, of its last message
    ended_at: int | None = None
    drained: bool = False  # at the cap on calls, it has none in flight and starts none


class DriverCoordinator:
    """Handles the tasks' messages in a thread of the driver that survives any input.

    host: the address by which tasks reach it. bind_host: the address to listen on.
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
        deadlines: Deadlines = DEADLINES,
        ports: Sequence[int] = ANY_PORT,
    ) -> None:
        self._host, self._is_active, self._cancel, self._clock, self._sleep = (
            host,
            is_active,
            cancel,
            clock,
            sleep,
        )
        self._deadlines = deadlines
        self._secret = token(SECRET_BYTES)
        self._frames: dict[int, _Frame] = {}
        self._released: list[_Frame] = []  # since the last look
        self._registered = 0
        self._attempts = 0  # of tasks so far
        self._listeners: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._numbers = count()  # of listeners; never reused, because late messages may name them
        self._seen_active: set[int] = set()
        self._handlers: Mapping[str, Callable[[_Task, dict[str, Any]], None]] = {
            HEARTBEAT: self._answer,
            ALIVE: self._confirm,
            PROGRESS: self._pass_progress,
            PAUSE: self._pause,
            ENDED: self._note_end,
            FAILED: self._take_failure,
        }
        self._server: LinkServer[_Task] = LinkServer(
            bind_host, self._secret,
            on_message=self._take, on_close=self._leave, on_look=self._look, ports=ports,
            clock=clock, sleep=sleep,
        )  # fmt: skip
        self._server.start()

    def register(
        self,
        *,
        totals: Sequence[int] = (),
        tasks: int = 0,
        progress: int | None = None,
        keepers: Mapping[str, LeaseKeeper] = _NO_KEEPERS,
    ) -> DriverAddress:
        """Registers a new job.

        Args:
            totals: Per lookup, the calls in flight that the tasks divide; () if each task keeps its
                share.
            tasks: The number of tasks.
            progress: Number of the listener to its progress.
            keepers: The run's leases by service.

        Returns:
            The address for its tasks.
        """
        number, self._registered = self._registered, self._registered + 1
        self._frames[number] = _Frame(
            CallShares(totals, tasks) if totals else None, progress, keepers
        )
        return DriverAddress(
            self._host,
            self._server.port,
            number,
            bool(totals),
            leases=bool(keepers),
            secret=self._secret,
        )

    def release(self, address: DriverAddress) -> None:
        """Ends the job: refuses its late tasks, and stops those that Spark has not killed yet."""
        if (frame := self._frames.pop(address.frame, None)) is not None:
            self._released.append(frame)

    def end(self, address: DriverAddress, clock: Callable[[], float] = time.monotonic) -> None:
        """Releases the job, and returns when its tasks have ended their calls, or after LAST_CALLS
        s: then other runs may take the keys that the run claims in ledgers.
        """
        frame = self._frames.get(address.frame)
        self.release(address)
        until = clock() + LAST_CALLS
        while frame is not None and frame.tasks and clock() < until:
            self._sleep(0.02)

    def has_failed(self, address: DriverAddress) -> bool:
        """Returns whether a task failed in a way in which another attempt would fail too."""
        return self._frames[address.frame].failed is not None

    def listen(self, listener: Callable[[dict[str, Any]], None]) -> int:
        """Passes `listener` the progress of jobs registered with the returned number."""
        number = next(self._numbers)
        self._listeners[number] = listener
        return number

    def forget(self, listener: int) -> None:
        del self._listeners[listener]

    def waits(self, listener: int) -> str:
        """Returns why no call of its jobs may start, in words; empty if calls may start."""
        frames = [frame for frame in [*self._frames.values()] if frame.progress == listener]
        return next(
            (keeper.waits for frame in frames for keeper in frame.keepers.values() if keeper.waits),
            "",
        )

    def shares_given(
        self, address: DriverAddress, clock: Callable[[], float] = time.monotonic
    ) -> list[ShareGiven]:
        """Returns the changes of its tasks' shares, in order, after its job has ended."""
        frame = self._frames[address.frame]
        until = clock() + LAST_MESSAGES
        while frame.tasks and clock() < until:
            self._sleep(0.005)
        return [] if frame.shares is None else list(frame.shares.given)

    # -- messages ----------------------------------------------------------------------------------

    def _take(self, connection: Connection[_Task], message: dict[str, Any]) -> None:
        kind, task = message["kind"], connection.sender
        if task is not None:
            task.heard_at = self._clock()
            self._handlers[kind](task, message)
        elif kind == HELLO:
            self._welcome(connection, message)
        else:
            raise ValueError(kind)

    def _welcome(self, connection: Connection[_Task], message: dict[str, Any]) -> None:
        frame = self._frames.get(message["frame"])
        if frame is None:  # a late attempt: its job has ended
            self._server.send_last(connection, OVER)
            return
        stage, partition, at = int(message["stage"]), int(message["partition"]), int(message["at"])
        if frame.failed is not None:  # Spark retries a task after any failure
            self._server.send_last(connection, FAILED, **frame.failed)
            return
        self._attempts += 1
        name = f"{message['frame']}-{partition}-{self._attempts}"
        task = _Task(connection, frame, name, partition, stage, self._clock())
        self._server.accept(connection, task)
        frame.tasks[task.name] = task
        attempt = int(message["attempt"])
        share = (
            [] if frame.shares is None else frame.shares.begin(task.name, partition, at, attempt)
        )
        self._send(task, GO, share=share)
        if frame.spent:
            self._send(task, SPENT)

    def _confirm(self, task: _Task, message: dict[str, Any]) -> None:
        self._send(task, ALIVE, at=float(message["at"]))

    def _pass_progress(self, task: _Task, message: dict[str, Any]) -> None:
        if (
            task.frame.progress is not None
            and (listener := self._listeners.get(task.frame.progress)) is not None
        ):
            listener(message["progress"])

    def _note_end(self, task: _Task, message: dict[str, Any]) -> None:
        task.ended_at = int(message["ended"])

    def _take_failure(self, task: _Task, message: dict[str, Any]) -> None:
        error, text = str(message["error"]), str(message["message"])
        if error == BudgetExhausted.__name__:
            self._drain(task, text)
        else:
            self._fail(task, error, text)

    def _answer(self, task: _Task, message: dict[str, Any]) -> None:
        share: list[int] = []
        if task.frame.shares is not None:
            keeps, wants = [*map(int, message["keeps"])], [*map(int, message["wants"])]
            share = task.frame.shares.report(task.name, keeps, wants, int(message["at"]))
        services = {}
        for service, claims in message["services"].items():
            keeper = task.frame.keepers[service]
            if claims["probed"]:
                keeper.probed(task.name)
            answer = keeper.heartbeat(
                task.name, parse_claims(claims, keeper.declared), parse_seen(claims)
            )
            services[service] = write_message(answer)
        self._send(task, LIMITS, number=int(message["number"]), share=share, services=services)
        self._ask_for_more(task.frame)

    def _ask_for_more(self, frame: _Frame) -> None:
        for name in frame.shares.to_ask() if frame.shares is not None else ():
            if name in frame.tasks:
                self._send(frame.tasks[name], ASK)

    def _pause(self, sender: _Task, message: dict[str, Any]) -> None:
        """Pauses all other tasks after a task was throttled or found the service down."""
        service, seconds = str(message["service"]), float(message["seconds"])
        if service in sender.frame.keepers:
            sender.frame.keepers[service].close_gate(seconds, str(message["reason"]))
        for task in list(sender.frame.tasks.values()):
            if task is not sender:
                self._send(
                    task, PAUSE, service=service, seconds=seconds, down=bool(message["down"])
                )

    def _send(self, task: _Task, kind: str, **facts: Any) -> None:
        self._server.send(task.connection, kind, **facts)

    # -- ends --------------------------------------------------------------------------------------

    def _drain(self, drained: _Task, message: str) -> None:
        """Notes that a task at the cap has no call in flight. Lets the others finish their calls
        before it fails, because Spark cancels all tasks when a task fails, and the next run would
        repeat their calls in flight.
        """
        frame = drained.frame
        drained.drained = True
        if not frame.spent:
            frame.spent = message
            for task in list(frame.tasks.values()):
                if task is not drained:
                    self._send(task, SPENT)
        self._fail_when_drained(frame)

    def _fail_when_drained(self, frame: _Frame) -> None:
        """Fails the stage once all its tasks are drained; ignores dead, ended and future tasks."""
        tasks = list(frame.tasks.values())
        if frame.spent and frame.failed is None and tasks and all(task.drained for task in tasks):
            self._fail(tasks[0], BudgetExhausted.__name__, frame.spent)

    def _fail(self, failed: _Task, error: str, message: str) -> None:
        """Cancels the stage, because Spark would retry this task while others still call."""
        frame = failed.frame
        frame.failed = frame.failed or {"error": error, "message": message}
        for task in list(frame.tasks.values()):
            if task is not failed or task.drained:  # it waits for the failure
                self._server.send_last(task.connection, FAILED, **frame.failed)
        self._cancel(failed.stage, f"{BudgetExhausted.__module__}.{error}: {message}\n")

    def _leave(self, task: _Task) -> None:
        frame = task.frame
        del frame.tasks[task.name]
        if task.ended_at is None:
            # its calls may continue until then
            frame.lost[task.name] = over_at = task.heard_at + self._deadlines.lost
            if frame.shares is not None:
                frame.shares.lose(task.name, over_at)
        else:
            self._give_back(frame, task.name)
            if frame.shares is not None:
                frame.shares.end(task.name, task.ended_at)
        self._fail_when_drained(frame)
        self._ask_for_more(frame)

    def _give_back(self, frame: _Frame, task: str) -> None:
        for keeper in frame.keepers.values():
            keeper.leave(task)

    def _give_back_lost(self, frame: _Frame) -> None:
        """Ends silent tasks, and gives the calls of lost tasks to others once these have ended."""
        now = self._clock()
        for task in list(frame.tasks.values()):
            if now >= task.heard_at + self._deadlines.lost:
                logging.getLogger("tidegate").warning(
                    "partition %d: its task has been silent for %.0f s and counts as lost; others "
                    "get its calls",
                    task.partition, now - task.heard_at,
                )  # fmt: skip
                self._server.close(task.connection)
        for name in [name for name, over_at in frame.lost.items() if over_at <= now]:
            del frame.lost[name]
            self._give_back(frame, name)
        if frame.shares is not None:
            frame.shares.expire(now)
        self._ask_for_more(frame)

    def _look(self) -> None:
        self._stop_released()
        frames = list(self._frames.values())
        tasks = [task for frame in frames for task in frame.tasks.values()]
        for frame in frames:
            if frame.tasks:
                self._fail_without_store(frame)
                self._give_back_lost(frame)
        for stage in {task.stage for task in tasks}:
            if self._is_active(stage):
                self._seen_active.add(stage)
            elif stage in self._seen_active:
                for task in tasks:
                    if task.stage == stage:
                        self._server.send_last(task.connection, STOP)

    def _stop_released(self) -> None:
        while self._released:
            for task in list(self._released.pop().tasks.values()):
                if task.ended_at is None:
                    self._server.send_last(task.connection, STOP)

    def _fail_without_store(self, frame: _Frame) -> None:
        for service, keeper in frame.keepers.items():
            lost = keeper.lost_since
            if (
                frame.tasks
                and frame.failed is None
                and lost is not None
                and self._clock() - lost > WITHOUT_STORE
            ):
                message = (
                    f"The store of the limits has not answered for {WITHOUT_STORE:.0f} s "
                    f"({keeper.lost_by}), so no "
                    f"call of {service} may start: what was answered is kept, nothing is "
                    "published; run the day again."
                )
                first = next(iter(frame.tasks.values()))
                self._fail(first, RunStopped.__name__, message)
                self._server.send_last(
                    first.connection, FAILED, error=RunStopped.__name__, message=message
                )
