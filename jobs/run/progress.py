"""Live progress: what every task has done so far, as it says four times a second over the driver link, and its sum."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from jobs.run.limiting_factor import TaskLoad

if TYPE_CHECKING:
    from jobs.run.coordinator import DriverCoordinator

EVERY = 0.25  # s
STEP = math.log(1.2)  # latency buckets are 20 % wide


@dataclass
class AttemptCounts:
    """Attempts that ended, or whose time limit ended the wait for them. Plain fields: a call per row costs 1 %.

    answered_us: how long each took that was answered, in µs, until somebody takes them.
    """

    answered_us: list[int] = field(default_factory=list)
    unanswered: int = 0
    retries: int = 0
    timeouts: int = 0


@dataclass
class TaskProgress:
    """Of one attempt of one task, since it began. latencies: bucket number -> answered calls."""

    partition: int
    attempt: int
    rows: int = 0
    in_flight: int = 0
    calls: int = 0
    retries: int = 0
    timeouts: int = 0
    latencies: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    loop_s: float = 0.0  # of CPU, in the event loop's thread
    unit: str = "rows"  # what `rows` counts: keys, while they are asked before the rows
    throttled_s: dict[str, float] = field(default_factory=dict)  # per lookup: its gate closed as the service asked
    down_s: dict[str, float] = field(default_factory=dict)  # per lookup: its gate closed as the service was down

    @classmethod
    def of_message(cls, message: Mapping[str, Any]) -> TaskProgress:
        """From its fields as JSON. Raises KeyError, TypeError or ValueError for what no task says."""
        counts = ("partition", "attempt", "rows", "in_flight", "calls", "retries", "timeouts")
        return cls(
            **{name: int(message[name]) for name in counts},
            latencies={int(bucket): int(calls) for bucket, calls in dict(message["latencies"]).items()},
            seconds=float(message["seconds"]),
            loop_s=float(message["loop_s"]),
            unit=str(message["unit"]),
            throttled_s={str(name): float(seconds) for name, seconds in dict(message["throttled_s"]).items()},
            down_s={str(name): float(seconds) for name, seconds in dict(message["down_s"]).items()},
        )

    def take(self, attempts: AttemptCounts) -> None:
        """All attempts so far; the latencies of those answered since the last time are taken away."""
        self.answered(attempts.answered_us)
        attempts.answered_us.clear()
        self.calls = sum(self.latencies.values()) + attempts.unanswered
        self.retries, self.timeouts = attempts.retries, attempts.timeouts

    def answered(self, latencies_us: Sequence[int]) -> None:
        """Count calls that were answered, by how many µs each took."""
        buckets = np.log(np.array(latencies_us) / 1e3 + 1) / STEP
        for bucket, count in zip(*np.unique(buckets.astype(int), return_counts=True), strict=True):
            self.latencies[int(bucket)] = self.latencies.get(int(bucket), 0) + int(count)


class RunProgress:
    """The last word of every task, summed. `report` is called twice a second, from a thread, for one `with`."""

    def __init__(
        self, coordinator: DriverCoordinator, rows_total: int, report: Callable[[dict[str, Any]], None]
    ) -> None:
        self._coordinator = coordinator
        self._rows_total = rows_total
        self._total, self._unit = rows_total, "rows"
        self._report = report
        self._tasks: dict[int, TaskProgress] = {}
        self._before: list[TaskProgress] = []  # tasks that asked keys before the rows
        self._started: float | None = None
        self._changing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report_now_and_then, name="tidegate-progress", daemon=True)
        self.number = coordinator.listen(self.heard)  # for the plan

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._coordinator.forget(self.number)
        self._ended.set()
        self._thread.join()

    def load(self) -> TaskLoad:
        """How the tasks spent their time, as far as they have told."""
        with self._changing:
            return TaskLoad.of(vars(task) for task in [*self._before, *self._tasks.values()])

    def asking_keys(self, keys: int | None) -> None:
        """From now on so many keys are asked, before the rows; None: the rows are next. Calls are counted on."""
        with self._changing:
            self._before += self._tasks.values()
            self._total, self._unit = (self._rows_total, "rows") if keys is None else (keys, "keys")
            self._tasks, self._started = {}, None

    def heard(self, message: dict[str, Any]) -> None:
        """What a task said. Raises KeyError, TypeError or ValueError for what none says."""
        said = TaskProgress.of_message(message)
        with self._changing:
            if said.unit != self._unit:  # the last word of a task of the phase before, come late
                return
            known = self._tasks.get(said.partition)
            if known is None or said.attempt >= known.attempt:
                self._tasks[said.partition] = said
            self._started = self._started or time.monotonic()

    def _report_now_and_then(self) -> None:
        while not self._ended.wait(2 * EVERY):
            self._report_all()
        self._report_all()

    def _report_all(self) -> None:
        if self._tasks:
            self._report(self.figures())

    def figures(self) -> dict[str, Any]:
        """The event that reporters get: rows or keys (`unit`), rate, calls in flight, latencies in ms, s left."""
        with self._changing:
            tasks = list(self._tasks.values())
            calling = [*self._before, *tasks]
            started, total, unit = self._started or time.monotonic(), self._total, self._unit
        rows = sum(task.rows for task in tasks)
        seconds = time.monotonic() - started
        rate = rows / seconds if seconds > 0.5 else 0.0
        latencies: Counter[int] = Counter()
        for task in calling:
            latencies.update(task.latencies)
        return {
            "kind": "progress",
            "rows": rows,
            "rows_total": total,
            "unit": unit,
            "rows_per_s": round(rate, 1),
            "left_s": round((total - rows) / rate, 1) if rate else None,
            "in_flight": sum(task.in_flight for task in tasks),
            "calls": sum(task.calls for task in calling),
            "retries": sum(task.retries for task in calling),
            "timeouts": sum(task.timeouts for task in calling),
            "p50_ms": quantile(latencies, 0.50),
            "p99_ms": quantile(latencies, 0.99),
        }


def quantile(latencies: Mapping[int, int], share: float) -> float | None:
    """The upper edge of the bucket that holds this quantile, ms."""
    wanted = share * sum(latencies.values())
    seen = 0
    for bucket in sorted(latencies):
        seen += latencies[bucket]
        if seen >= wanted > 0:
            return round(math.exp((bucket + 1) * STEP) - 1, 1)
    return None
