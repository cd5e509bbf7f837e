"""Reads the weather service's log of its calls, and computes reference counts from it."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from demo.draws import FAULTS, Fault

# gone: the client left first, or the service was stopped
Outcome = Literal["ok", "miss", "gone"] | Fault


@dataclass(frozen=True)
class Call:
    """A line of the log. Times are seconds since the epoch by a monotonic clock."""

    t_start: float
    t_end: float
    origin: str
    moment: str
    attempt: int  # of this key since the service started, from 1
    outcome: Outcome
    in_flight: int  # running calls when this call began, itself included

    @property
    def key(self) -> str:
        return f"{self.origin}/{self.moment}"

    def to_line(self) -> str:
        return json.dumps(vars(self)) + "\n"


def read(log: Path) -> tuple[Call, ...]:
    with log.open(encoding="utf-8") as lines:
        return tuple(Call(**json.loads(line)) for line in lines if line.endswith("\n"))


@dataclass
class Tally:
    calls: int = 0
    highest_in_flight: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    _faultless: Counter[str] = field(default_factory=Counter)  # calls by key without a fault

    @classmethod
    def of(cls, calls: Iterable[Call]) -> Self:
        tally = cls()
        for call in calls:
            tally.add(call)
        return tally

    def add(self, call: Call) -> None:
        self.calls += 1
        self.highest_in_flight = max(self.highest_in_flight, call.in_flight)
        self.outcomes[call.outcome] += 1
        self._faultless[call.key] += call.outcome not in FAULTS

    @property
    def distinct_keys(self) -> int:
        return len(self._faultless)

    @property
    def asked_twice(self) -> int:
        """Repeated calls after a call without a fault, which a paid service would bill again."""
        return sum(max(times - 1, 0) for times in self._faultless.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "distinct_keys": self.distinct_keys,
            "asked_twice": self.asked_twice,
            "highest_in_flight": self.highest_in_flight,
            "outcomes": dict(self.outcomes),
        }
