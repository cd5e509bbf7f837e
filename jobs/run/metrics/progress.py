"""Live progress: sums the tasks' reports, which arrive four times a second over the driver link."""

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.metrics.limiting_factor import TaskLoad
from jobs.task.link.progress import EVERY, STEP, TaskProgress

PACE = 10.0  # s over which the rate of requests is measured


class RunProgress:
    """Sums every task's last report. While entered, a thread calls `report` twice a second."""

    def __init__(
        self,
        coordinator: DriverCoordinator,
        rows_total: int,
        report: Callable[[dict[str, Any]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._coordinator = coordinator
        self._rows_total = rows_total
        self._total, self._unit = rows_total, "rows"
        self._report = report
        self._tasks: dict[int, TaskProgress] = {}
        self._before: list[TaskProgress] = []  # tasks that called keys before the rows
        self._started: float | None = None
        # of the last seconds: time, and the requests sent by lookup
        self._sent: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=round(PACE / (2 * EVERY)))
        self._changing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._report_now_and_then, name="tidegate-progress", daemon=True
        )
        self.number = coordinator.listen(self.heard)  # for the plan

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._coordinator.forget(self.number)
        self._ended.set()
        self._thread.join()

    def load(self) -> TaskLoad:
        with self._changing:
            return TaskLoad.of(vars(task) for task in [*self._before, *self._tasks.values()])

    def prefetching_keys(self, keys: int | None) -> None:
        """Switch to a prefetch of this many keys; None: to the rows. Calls continue to count."""
        with self._changing:
            self._before += self._tasks.values()
            self._total, self._unit = (self._rows_total, "rows") if keys is None else (keys, "keys")
            self._tasks, self._started = {}, None

    def heard(self, message: dict[str, Any]) -> None:
        """Handle a task's progress. Raises KeyError, TypeError or ValueError for bad data."""
        progress = TaskProgress.from_message(message)
        with self._changing:
            if progress.unit != self._unit:  # a late message of the phase before
                return
            known = self._tasks.get(progress.partition)
            if known is None or progress.attempt >= known.attempt:
                self._tasks[progress.partition] = progress
            self._started = self._started or self._clock()

    def _report_now_and_then(self) -> None:
        while not self._ended.wait(2 * EVERY):
            self._report_all()
        self._report_all()

    def _report_all(self) -> None:
        if self._tasks:
            self._report(self.figures())

    def figures(self) -> dict[str, Any]:
        """Return rows or keys (`unit`), rate, calls and requests, latencies in ms, s left."""
        with self._changing:
            tasks = list(self._tasks.values())
            calling = [*self._before, *tasks]
            started, total, unit = self._started or self._clock(), self._total, self._unit
        rows = sum(task.rows for task in tasks)
        seconds = self._clock() - started
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
            "waits": self._coordinator.waits(self.number),
            "requests": self._requests(calling),
        }

    def _requests(self, calling: Sequence[TaskProgress]) -> dict[str, dict[str, float]]:
        """Return each lookup's requests, and how many per second it sent in the last seconds."""
        counts: dict[str, Counter[str]] = {}
        for task in calling:
            for name, found in task.requests.items():
                counts.setdefault(name, Counter()).update(found)
        now, sent = self._clock(), {name: found["sent"] for name, found in counts.items()}
        since, before = self._sent[0] if self._sent else (now, sent)
        self._sent.append((now, sent))
        seconds = max(now - since, EVERY)
        return {
            # a task that is tried again counts from nothing
            name: {**found, "per_s": round(max(0, sent[name] - before.get(name, 0)) / seconds, 1)}
            for name, found in counts.items()
        }


def quantile(latencies: Mapping[int, int], share: float) -> float | None:
    """Return the upper edge of the bucket that holds this quantile, ms."""
    wanted = share * sum(latencies.values())
    seen = 0
    for bucket in sorted(latencies):
        seen += latencies[bucket]
        if seen >= wanted > 0:
            return round(math.exp((bucket + 1) * STEP) - 1, 1)
    return None
