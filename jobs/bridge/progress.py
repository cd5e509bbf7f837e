"""Live progress: executors tell the driver over UDP, four times a second, what they have done so far."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from jobs.limits import TaskLoad

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


class ProgressSender:
    """Sends a TaskProgress to the driver. A lost packet loses nothing: the next one says it all again."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if address else None

    def send(self, progress: TaskProgress) -> None:
        if self._socket is not None and self._address is not None:
            with suppress(OSError):  # progress is a courtesy; it must never fail a run
                self._socket.sendto(json.dumps(vars(progress)).encode(), self._address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class ProgressListener:
    """The driver's side: the last word of every task, summed. `report` is called twice a second, from a thread."""

    def __init__(self, host: str, rows_total: int, report: Callable[[dict[str, Any]], None]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._host = host
        try:
            self._socket.bind((host, 0))
        except OSError:  # the driver's name is for others: behind a container's door it is no address of ours
            self._socket.bind(("", 0))
        self._socket.settimeout(0.2)
        self._rows_total = rows_total
        self._total, self._unit = rows_total, "rows"
        self._report = report
        self._tasks: dict[int, dict[str, Any]] = {}
        self._before: list[dict[str, Any]] = []  # tasks that asked keys before the rows
        self._started: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="tidegate-progress", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        return self._host, self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def load(self) -> TaskLoad:
        """How the tasks spent their time, as far as they have told."""
        return TaskLoad.of([*self._before, *self._tasks.values()])

    def asking_keys(self, keys: int | None) -> None:
        """From now on so many keys are asked, before the rows; None: the rows are next. Calls are counted on."""
        self._before += self._tasks.values()
        self._total, self._unit = (self._rows_total, "rows") if keys is None else (keys, "keys")
        self._tasks, self._started = {}, None

    def _listen(self) -> None:
        told = 0.0
        while not self._ended.is_set():
            with suppress(TimeoutError):
                said = json.loads(self._socket.recv(65_536))
                if said["unit"] == self._unit:  # else the last word of a task of the phase before, come late
                    self._hear(said)
            if self._tasks and time.monotonic() - told >= 2 * EVERY:
                told = time.monotonic()
                self._report(self.figures())
        if self._tasks:
            self._report(self.figures())

    def _hear(self, said: dict[str, Any]) -> None:
        known = self._tasks.get(said["partition"])
        if known is None or said["attempt"] >= known["attempt"]:
            self._tasks[said["partition"]] = said
        self._started = self._started or time.monotonic()

    def figures(self) -> dict[str, Any]:
        """The event that reporters get: rows or keys (`unit`), rate, calls in flight, latencies in ms, s left."""
        tasks = list(self._tasks.values())
        calling = [*self._before, *tasks]
        rows = sum(task["rows"] for task in tasks)
        seconds = time.monotonic() - (self._started or time.monotonic())
        rate = rows / seconds if seconds > 0.5 else 0.0
        latencies: dict[int, int] = {}
        for task in calling:
            for bucket, count in task["latencies"].items():
                latencies[int(bucket)] = latencies.get(int(bucket), 0) + count
        return {
            "kind": "progress",
            "rows": rows,
            "rows_total": self._total,
            "unit": self._unit,
            "rows_per_s": round(rate, 1),
            "left_s": round((self._total - rows) / rate, 1) if rate else None,
            "in_flight": sum(task["in_flight"] for task in tasks),
            "calls": sum(task["calls"] for task in calling),
            "retries": sum(task["retries"] for task in calling),
            "timeouts": sum(task["timeouts"] for task in calling),
            "p50_ms": quantile(latencies, 0.50),
            "p99_ms": quantile(latencies, 0.99),
        }


def quantile(latencies: dict[int, int], share: float) -> float | None:
    """The upper edge of the bucket that holds this quantile, ms."""
    wanted = share * sum(latencies.values())
    seen = 0
    for bucket in sorted(latencies):
        seen += latencies[bucket]
        if seen >= wanted > 0:
            return round(math.exp((bucket + 1) * STEP) - 1, 1)
    return None
