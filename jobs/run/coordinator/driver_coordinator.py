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
    DriverAddress,
)

SECRET_BYTES = 32
LAST_MESSAGES = 1.0  # s to wait for the last messages of an ended job's tasks
# s to wait for the calls of stopped tasks; Spark kills their processes after 2 to 4 s
LAST_CALLS = 5.0
WITHOUT_STORE = 60.0  # s to wait for the store of the limits
_NO_KEEPERS: Mapping[str, LeaseKeeper] = {}


@dataclass
class _Job:
    shares: CallShares  # without totals each task keeps its share
    listener: int | None  # number of the listener that gets its progress
    keepers: Mapping[str, LeaseKeeper]  # by service, the run's leases
    tasks: dict[str, _Task] = field(default_factory=dict)  # connected tasks, by name
    # lost tasks, by name: until when they may call
    lost: dict[str, float] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # lost tasks that may be at work
    failed: dict[str, Any] | None = None  # the failed task's message
    # message of the first task at the cap; its stage is cancelled when no call is in flight
    spent: str = ""


@dataclass(eq=False)
class _Task:
    connection: Connection[_Task]
    job: _Job
    name: str
    partition: int
    stage: int
    heard_at: float  # s, when its last message came
    ended_at: int | None = None
    drained: bool = False  # at the cap on calls, it has none in flight and starts none


class DriverCoordinator:
    """Handles the tasks' messages in a thread of the driver that survives any input.

    Args:
        host: The address by which tasks reach the driver.
        bind_host: The address to listen on.
        is_active: Returns whether Spark runs a stage, by its id.
        cancel: Cancels a stage, with a reason.
        clock: Seconds, monotonic.
        sleep: Waits for so many seconds.
        token: Returns a random text made of so many bytes.
        ports: The ports to try, in order.
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
        ports: Sequence[int] = ANY_PORT,
    ) -> None:
        self._host = host
        self._is_active, self._cancel = is_active, cancel
        self._clock, self._sleep = clock, sleep
        self._secret = token(SECRET_BYTES)
        self._jobs: dict[int, _Job] = {}
        self._released: list[_Job] = []  # until all their tasks have ended or are lost for good
        self._registered = 0
        self._tasks_begun = 0
        self._listeners: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._numbers = count()  # of listeners; never reused, because late messages may name them
        # stages that Spark was seen to run; a stage that was not may still begin
        self._stages_begun: set[int] = set()
        self._handlers: Mapping[str, Callable[[_Task, dict[str, Any]], None]] = {
            HEARTBEAT: self._on_heartbeat,
            ALIVE: self._on_alive,
            PROGRESS: self._on_progress,
            PAUSE: self._on_pause,
            ENDED: self._on_ended,
            FAILED: self._on_failed,
        }
        self._server: LinkServer[_Task] = LinkServer(
            bind_host, self._secret,
            on_message=self._on_message, on_close=self._on_close, on_look=self._tick,
            on_wake=self._ask_all, ports=ports, clock=clock, sleep=sleep,
        )  # fmt: skip
        self._server.start()

    @property
    def is_here(self) -> bool:
        """Whether its thread runs: not in a fork of this process."""
        return self._server.is_here

    def register(
        self,
        *,
        totals: Sequence[int] = (),
        tasks: int = 0,
        progress: int | None = None,
        keepers: Mapping[str, LeaseKeeper] = _NO_KEEPERS,
    ) -> DriverAddress:
        """Register a new job.

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
        for keeper in keepers.values():
            keeper.listeners.add(self._server.wake)
        self._jobs[number] = _Job(CallShares(totals, tasks), progress, keepers)
        return DriverAddress(
            self._host,
            self._server.port,
            number,
            bool(totals),
            leases=bool(keepers),
            secret=self._secret,
        )

    def release(self, address: DriverAddress) -> None:
        """End the job: refuse its late tasks, and stop those that Spark has not killed yet."""
        if (job := self._jobs.pop(address.job, None)) is not None:
            self._released.append(job)
            for keeper in job.keepers.values():
                keeper.release()

    def end(self, address: DriverAddress, clock: Callable[[], float] = time.monotonic) -> None:
        """Release the job, and return when its tasks have ended their calls, or after LAST_CALLS
        s. Only then may other runs take the keys that this run claims in ledgers.
        """
        job = self._jobs.get(address.job)
        self.release(address)
        until = clock() + LAST_CALLS
        while job is not None and (job.tasks or job.broken) and clock() < until:
            self._sleep(0.02)

    def has_failed(self, address: DriverAddress) -> bool:
        """Return whether a task failed for good, so that another attempt would fail too."""
        return self._jobs[address.job].failed is not None

    def listen(self, listener: Callable[[dict[str, Any]], None]) -> int:
        """Pass `listener` the progress of jobs registered with the returned number."""
        number = next(self._numbers)
        self._listeners[number] = listener
        return number

    def forget(self, listener: int) -> None:
        del self._listeners[listener]

    def waits(self, listener: int) -> str:
        """Return why no call of its jobs may start, in words; empty if calls may start."""
        jobs = [job for job in [*self._jobs.values()] if job.listener == listener]
        why = (keeper.why_no_call() for job in jobs for keeper in job.keepers.values())
        return next(filter(None, why), "")

    def shares_given(
        self, address: DriverAddress, clock: Callable[[], float] = time.monotonic
    ) -> list[ShareGiven]:
        """Return the changes of its tasks' shares, in order, after its job has ended."""
        job = self._jobs[address.job]
        until = clock() + LAST_MESSAGES
        while job.tasks and clock() < until:
            self._sleep(0.005)
        return list(job.shares.given)

    # -- messages ----------------------------------------------------------------------------------

    def _on_message(self, connection: Connection[_Task], message: dict[str, Any]) -> None:
        kind, task = message["kind"], connection.sender
        if task is not None:
            task.heard_at = self._clock()
            # after a task's last message only its heartbeats count: its calls may still run
            if kind == HEARTBEAT or not connection.ends:
                self._handlers[kind](task, message)
        elif kind == HELLO:
            self._on_hello(connection, message)
        else:
            raise ValueError(kind)

    def _on_hello(self, connection: Connection[_Task], message: dict[str, Any]) -> None:
        job = self._jobs.get(message["job"])
        if job is None:  # a late attempt: its job has ended
            self._server.send_last(connection, OVER)
            return
        stage, partition, at = int(message["stage"]), int(message["partition"]), int(message["at"])
        if job.failed is not None:  # a retry by Spark
            self._server.send_last(connection, FAILED, **job.failed)
            return
        self._tasks_begun += 1
        name = f"{message['job']}-{partition}-{self._tasks_begun}"
        task = _Task(connection, job, name, partition, stage, self._clock())
        self._server.accept(connection, task)
        job.tasks[task.name] = task
        attempt = int(message["attempt"])
        share = job.shares.begin(task.name, partition, at, attempt)
        self._send(task, GO, share=share)
        if job.spent:
            self._send(task, SPENT)

    def _on_alive(self, task: _Task, message: dict[str, Any]) -> None:
        self._send(task, ALIVE, at=float(message["at"]))

    def _on_progress(self, task: _Task, message: dict[str, Any]) -> None:
        if (
            task.job.listener is not None
            and (listener := self._listeners.get(task.job.listener)) is not None
        ):
            listener(message["progress"])

    def _on_ended(self, task: _Task, message: dict[str, Any]) -> None:
        task.ended_at = int(message["ended"])

    def _on_failed(self, task: _Task, message: dict[str, Any]) -> None:
        error, text = str(message["error"]), str(message["message"])
        if error == BudgetExhausted.__name__:
            self._drain(task, text)
        else:
            self._fail(task, error, text)

    def _on_heartbeat(self, task: _Task, message: dict[str, Any]) -> None:
        keeps, wants = ([*map(int, message.get(name, ()))] for name in ("keeps", "wants"))
        share = task.job.shares.report(task.name, keeps, wants, int(message["at"]))
        services = {}
        for service, claims in message["services"].items():
            keeper = task.job.keepers[service]
            if claims["probed"]:
                keeper.probed(task.name)
            answer = keeper.heartbeat(
                task.name, parse_claims(claims, keeper.declared), parse_seen(claims)
            )
            services[service] = write_message(answer)
        self._send(task, LIMITS, number=int(message["number"]), share=share, services=services)
        self._ask_for_more(task.job)

    def _ask_for_more(self, job: _Job) -> None:
        for name in job.shares.to_ask():
            if name in job.tasks:
                self._send(job.tasks[name], ASK)

    def _ask_all(self) -> None:
        """Ask the tasks with leases for a heartbeat, as what they may use has changed."""
        for job in list(self._jobs.values()):
            for task in list(job.tasks.values()) if job.keepers else ():
                self._send(task, ASK)

    def _on_pause(self, sender: _Task, message: dict[str, Any]) -> None:
        """Pause all other tasks after a task was throttled or found the service down."""
        service, seconds = str(message["service"]), float(message["seconds"])
        if service in sender.job.keepers:
            sender.job.keepers[service].close_gate(seconds, str(message["reason"]))
        for task in list(sender.job.tasks.values()):
            if task is not sender:
                self._send(
                    task, PAUSE, service=service, seconds=seconds, down=bool(message["down"])
                )

    def _send(self, task: _Task, kind: str, **facts: Any) -> None:
        self._server.send(task.connection, kind, **facts)

    # -- ends --------------------------------------------------------------------------------------

    def _drain(self, drained: _Task, message: str) -> None:
        """Note that a task at the cap has no call in flight.

        It waits until all others have ended their calls: when a task fails, Spark cancels all, and
        the next run would repeat the calls in flight.
        """
        job = drained.job
        drained.drained = True
        if not job.spent:
            job.spent = message
            for task in list(job.tasks.values()):
                if task is not drained:
                    self._send(task, SPENT)
        self._fail_when_drained(job)

    def _fail_when_drained(self, job: _Job) -> None:
        """Fail the stage once all its connected tasks are drained."""
        tasks = list(job.tasks.values())
        if job.spent and job.failed is None and tasks and all(task.drained for task in tasks):
            self._fail(tasks[0], BudgetExhausted.__name__, job.spent)

    def _fail(self, failed: _Task, error: str, message: str) -> None:
        """Cancel the stage, because Spark would retry this task while others still call."""
        job = failed.job
        job.failed = job.failed or {"error": error, "message": message}
        for task in list(job.tasks.values()):
            if task is not failed or task.drained:  # a drained task fails only on this message
                self._server.send_last(task.connection, FAILED, **job.failed)
        # in the form of a traceback's last line, which spark_failures.py looks for
        self._cancel(failed.stage, f"{BudgetExhausted.__module__}.{error}: {message}\n")

    def _on_close(self, task: _Task) -> None:
        job = task.job
        del job.tasks[task.name]
        if task.ended_at is None:
            job.lost[task.name] = over_at = task.heard_at + DEADLINES.lost
            if not task.connection.is_ended:
                job.broken.add(task.name)
            job.shares.lose(task.name, over_at)
        else:
            self._give_back(job, task.name)
            job.shares.end(task.name, task.ended_at)
        self._fail_when_drained(job)
        self._ask_for_more(job)

    def _give_back(self, job: _Job, task: str) -> None:
        for keeper in job.keepers.values():
            keeper.leave(task)

    def _give_back_lost(self, job: _Job) -> None:
        """Close silent tasks, and give a lost task's calls to others once they have ended."""
        now = self._clock()
        for task in list(job.tasks.values()):
            if now >= task.heard_at + DEADLINES.lost:
                logging.getLogger("tidegate").warning(
                    "partition %d: its task has been silent for %.0f s and counts as lost; others "
                    "get its calls",
                    task.partition, now - task.heard_at,
                )  # fmt: skip
                self._server.close(task.connection)
        for name in [name for name, over_at in job.lost.items() if over_at <= now]:
            del job.lost[name]
            job.broken.discard(name)
            self._give_back(job, name)
        job.shares.expire(now)
        self._ask_for_more(job)

    def _tick(self) -> None:
        self._stop_released()
        jobs = list(self._jobs.values())
        tasks = [task for job in jobs for task in job.tasks.values()]
        for job in jobs:
            self._fail_without_store(job)
        for job in [*jobs, *self._released]:
            if job.tasks or job.lost:
                self._give_back_lost(job)
        for stage in {task.stage for task in tasks}:
            if self._is_active(stage):
                self._stages_begun.add(stage)
            elif stage in self._stages_begun:
                for task in tasks:
                    if task.stage == stage:
                        self._server.send_last(task.connection, STOP)

    def _stop_released(self) -> None:
        for job in list(self._released):
            for task in list(job.tasks.values()):
                if task.ended_at is None:
                    self._server.send_last(task.connection, STOP)
            if not (job.tasks or job.lost):
                self._released.remove(job)

    def _fail_without_store(self, job: _Job) -> None:
        for service, keeper in job.keepers.items():
            lost = keeper.lost_since
            if (
                job.tasks
                and job.failed is None
                and lost is not None
                and self._clock() - lost > WITHOUT_STORE
            ):
                message = (
                    f"The store of the limits has not answered for {WITHOUT_STORE:.0f} s "
                    f"({keeper.lost_by}), so no call of {service} may start: what was answered is "
                    "kept; run again."
                )
                first = next(iter(job.tasks.values()))
                self._fail(first, RunStopped.__name__, message)
                self._server.send_last(
                    first.connection, FAILED, error=RunStopped.__name__, message=message
                )
