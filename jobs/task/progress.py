"""How far one task is, and how its attempts went: what it says to the driver four times a second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
