"""Spark as an adversary: it runs a task any number of times, two at once, loses results, and
retries whole stages.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process
from tests.simulation.threads import Event

Task = Callable[..., Iterator[pa.RecordBatch]]

ATTEMPTS = 4
STARTS_WITHIN = 0.2  # s
NOTICES_WITHIN = 0.3  # s from a worker's death
RETRIES_AFTER = 0.05  # s
ENDS_WITHIN = 2.0  # s, and as long again, until Spark kills the worker of a stage that it gave up
LATE_ATTEMPT = 30.0  # s at most


class StageFailed(Exception):  # noqa: N818  # what happened
    """Spark gave the stage up."""


@dataclass(frozen=True)
class TaskFacts:
    """A TaskContext."""

    stage: int
    partition: int
    attempt: int
    number: int  # among all attempts of all tasks

    def stageId(self) -> int:  # noqa: N802  # Spark's names
        return self.stage

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt

    def taskAttemptId(self) -> int:  # noqa: N802
        return self.number


@dataclass
class _Stage:
    """What the scheduler of Spark knows of one stage."""

    number: int
    task: Task
    parts: Sequence[Sequence[pa.RecordBatch]]
    results: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    workers: dict[int, list[Process]] = field(default_factory=dict)
    reported: set[Process] = field(default_factory=set)
    error: Exception | None = None
    over: Event = field(default_factory=Event)

    @property
    def is_over(self) -> bool:
        return self.error is not None or len(self.results) == len(self.parts)


class Spark:
    """One run's Spark, in the process of its driver.

    Attributes:
        workers: All its Python workers so far. Orphans may outlive the driver.
    """

    def __init__(
        self, name: str, faults: Faults, tasks: int, begins: Callable[[Process], None]
    ) -> None:
        """begins: Told of each worker when its task begins."""
        self._name, self._faults, self._tasks, self._begins = name, faults, tasks, begins
        self._driver = scheduler().me().process
        self._draws = scheduler().stream(f"spark:{name}")
        self._active: set[int] = set()
        self._cancelled: dict[int, str] = {}
        self._coordinator: DriverCoordinator | None = None
        self.workers: list[Process] = []

    def coordinator(self) -> DriverCoordinator:
        if self._coordinator is None:
            is_active, cancel = self._active.__contains__, self._cancelled.__setitem__
            self._coordinator = DriverCoordinator(
                "simulated", "simulated", is_active, cancel=cancel
            )
        return self._coordinator

    def divided(self, rows: pa.Table) -> list[pa.Table]:
        """A part of the table for each task."""
        size = max(1, -(-rows.num_rows // self._tasks))
        return [rows.slice(number * size, size) for number in range(self._tasks)]

    def run_stage(
        self, task: Task, parts: Sequence[Sequence[pa.RecordBatch]]
    ) -> list[dict[str, Any]]:
        """The rows that the task gives for all parts, each part once. Raises the error of a part
        that always fails.
        """
        night = scheduler()
        stage = _Stage(night.next_number(), task, parts)
        self._active.add(stage.number)
        for part in range(len(parts)):
            self._launch(stage, part)
        if self._faults.strikes("second copy of a task"):
            scheduler().rules.facts.copied.add(self._name)
            part = self._draws.randrange(len(parts))
            night.after(2 * self._draws.random(), lambda: self._launch(stage, part))
        try:
            self._wait_for(stage)
            if stage.error is None and self._faults.strikes("retry of a stage"):
                self._forget_some(stage)
                self._wait_for(stage)
        finally:
            self._active.discard(stage.number)
            self._end_workers(stage)
        if stage.error is not None:
            raise stage.error
        return [row for part in sorted(stage.results) for row in stage.results[part]]

    def _end_workers(self, stage: _Stage) -> None:
        """Kill the workers of a stage that is over: some seconds later, where it failed or was
        cancelled.
        """
        night = scheduler()
        later = self._draws.choice((0.0, ENDS_WITHIN)) if stage.error is not None else 0.0
        for worker in [worker for workers in stage.workers.values() for worker in workers]:
            worker.unwanted_since = night.now
            if later:
                night.after(
                    later * (1 + self._draws.random()), lambda worker=worker: night.kill(worker)
                )
            else:
                night.kill(worker)

    def _wait_for(self, stage: _Stage) -> None:
        while not stage.over.wait(0.5):
            if stage.number in self._cancelled:
                stage.error = stage.error or StageFailed(self._cancelled[stage.number])
                return

    def _forget_some(self, stage: _Stage) -> None:
        """Lose the results of some tasks with their machine, and count their attempts from
        0 again.
        """
        stage.over.clear()
        lost = [part for part in range(len(stage.parts)) if self._draws.random() < 0.5] or [0]
        for part in lost:
            del stage.results[part]
            for worker in stage.workers[part]:
                worker.has_delivered = False
        for part in lost:
            stage.attempts[part] = 0
            self._launch(stage, part)

    def _launch(self, stage: _Stage, part: int) -> None:
        """Start an attempt, unless it is no longer wanted. Callable from a timer."""
        if stage.is_over or part in stage.results or self._driver.is_dead:
            return
        night, faults = scheduler(), self._faults
        attempt = stage.attempts.get(part, 0)
        stage.attempts[part] = attempt + 1
        starts_after = STARTS_WITHIN * self._draws.random()
        if faults.strikes("late attempt of a task"):
            starts_after = LATE_ATTEMPT * faults.draw("late attempt of a task")
        worker = night.spawn(
            f"{self._name}.s{stage.number}.t{part}.{attempt}",
            self._work,
            stage,
            part,
            attempt,
            starts_after,
        )
        worker.driver = self._driver
        self.workers.append(worker)
        stage.workers.setdefault(part, []).append(worker)
        died = StageFailed("the worker died")
        worker.on_exit.append(
            lambda: night.after(NOTICES_WITHIN, lambda: self._report(stage, part, worker, died))
        )
        if faults.strikes("kill of a task"):
            within = (0.5, 3.0, 10.0)[int(3 * faults.draw("kill of a task"))]
            night.after(within * faults.draw("kill of a task"), lambda: night.kill(worker))

    def _work(self, stage: _Stage, part: int, attempt: int, starts_after: float) -> None:
        """The main thread of a worker."""
        night = scheduler()
        facts = TaskFacts(stage.number, part, attempt, night.next_number())
        me = night.me()
        me.local["task"] = facts
        night.sleep(starts_after)
        self._begins(me.process)
        result: list[dict[str, Any]] | Exception
        try:
            result = [
                row
                for batch in stage.task(iter(stage.parts[part]), facts)
                for row in batch.to_pylist()
            ]
        except Exception as error:  # noqa: BLE001  # Spark hears of it
            result = error
        if not isinstance(result, Exception) and self._faults.strikes("lost result of a task"):
            result = StageFailed("the result was lost")
        self._report(stage, part, me.process, result)
        if isinstance(result, Exception):
            night.kill(me.process)  # as a worker of Spark ends with the failure of its task

    def _report(
        self, stage: _Stage, part: int, worker: Process, result: list[dict[str, Any]] | Exception
    ) -> None:
        """Take what became of an attempt, once: a worker whose task failed ends afterwards. Does not
        wait: callable from a timer.
        """
        night = scheduler()
        if worker in stage.reported:
            return
        stage.reported.add(worker)
        if stage.is_over or part in stage.results or self._driver.is_dead:
            return
        if isinstance(result, Exception):
            stage.failures[part] = stage.failures.get(part, 0) + 1
            night.say("task failed", part, type(result).__name__, result)
            if stage.failures[part] >= ATTEMPTS or stage.number in self._cancelled:
                stage.error = result
            elif not any(
                not other.has_ended for other in stage.workers[part] if other is not worker
            ):
                night.after(RETRIES_AFTER, lambda: self._launch(stage, part))
        else:
            stage.results[part] = result
            worker.has_delivered = True
            for other in stage.workers[part]:
                if other is not worker:
                    night.kill(other)
        if stage.is_over:
            stage.over.set_now()
