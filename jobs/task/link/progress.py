"""The progress and attempts of a task, sent to the driver four times a second."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

EVERY = 0.25  # s
STEP = math.log(1.2)  # latency buckets are 20 % wide


@dataclass
class AttemptCounts:
    """Counts finished or timed-out attempts. Plain fields, as a method call per row costs 1 %.

    Attributes:
        answered_us: Latencies of answered attempts in µs, until `take`.
    """

    answered_us: list[int] = field(default_factory=list)
    unanswered: int = 0
    retries: int = 0
    timeouts: int = 0


@dataclass
class TaskProgress:
    """The progress of a task attempt.

    Attributes:
        latencies: Answered calls by bucket number.
    """

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
    unit: str = "rows"  # what `rows` counts: keys during a prefetch
    throttled_s: dict[str, float] = field(default_factory=dict)  # per lookup: throttled
    down_s: dict[str, float] = field(default_factory=dict)  # per lookup: the service was down
    adapted_s: dict[str, float] = field(default_factory=dict)  # per lookup: at its adapted limit
    shared_s: dict[str, float] = field(default_factory=dict)  # per lookup: for limits over runs
    # per lookup: its requests, as RequestCounts.so_far counts them
    requests: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Parse JSON fields. Raises KeyError, TypeError or ValueError for invalid data."""
        counts = ("partition", "attempt", "rows", "in_flight", "calls", "retries", "timeouts")
        return cls(
            **{name: int(message[name]) for name in counts},
            latencies={
                int(bucket): int(calls) for bucket, calls in dict(message["latencies"]).items()
            },
            seconds=float(message["seconds"]),
            loop_s=float(message["loop_s"]),
            unit=str(message["unit"]),
            throttled_s={
                str(name): float(seconds) for name, seconds in dict(message["throttled_s"]).items()
            },
            down_s={str(name): float(seconds) for name, seconds in dict(message["down_s"]).items()},
            adapted_s={
                str(name): float(seconds) for name, seconds in dict(message["adapted_s"]).items()
            },
            shared_s={
                str(name): float(seconds) for name, seconds in dict(message["shared_s"]).items()
            },
            requests={
                str(name): {str(kind): int(many) for kind, many in dict(counts).items()}
                for name, counts in dict(message["requests"]).items()
            },
        )

    def take(self, attempts: AttemptCounts) -> None:
        self.answered(attempts.answered_us)
        attempts.answered_us.clear()
        self.calls = sum(self.latencies.values()) + attempts.unanswered
        self.retries, self.timeouts = attempts.retries, attempts.timeouts

    def answered(self, latencies_us: Sequence[int]) -> None:
        for latency, calls in Counter(latencies_us).items():
            bucket = int(math.log(latency / 1e3 + 1) / STEP)
            self.latencies[bucket] = self.latencies.get(bucket, 0) + calls
