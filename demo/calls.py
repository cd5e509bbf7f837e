"""The weather service's own log of its calls, and the counts by which others are judged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from demo.draws import FAULTS, Fault

Outcome = Literal["ok", "miss", "gone"] | Fault  # gone: the client left before its answer, or the service was stopped


@dataclass(frozen=True)
class Call:
    """One line of the log. Times are seconds since the epoch, read off a clock that never goes back."""

    t_start: float
    t_end: float
    origin: str
    moment: str
    attempt: int  # of this key since the service started, from 1
    outcome: Outcome
    in_flight: int  # calls under way when this one began, itself included

    @property
    def key(self) -> str:
        return f"{self.origin}/{self.moment}"

    def to_line(self) -> str:
        return json.dumps(vars(self)) + "\n"


def read(log: Path) -> tuple[Call, ...]:
    """The calls that have ended, in the order in which they ended."""
    with log.open() as lines:
        return tuple(Call(**json.loads(line)) for line in lines if line.endswith("\n"))


@dataclass
class Tally:
    """Counts over calls that have ended."""

    calls: int = 0
    highest_in_flight: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    _faultless: Counter[str] = field(default_factory=Counter)  # calls by key, those that met a fault left out

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
        """Calls that repeat one which met no fault: a paid service would bill them again."""
        return sum(max(times - 1, 0) for times in self._faultless.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "distinct_keys": self.distinct_keys,
            "asked_twice": self.asked_twice,
            "highest_in_flight": self.highest_in_flight,
            "outcomes": dict(self.outcomes),
        }
