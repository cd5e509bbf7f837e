"""The limits of a service as a run declares them: plain data that is sent to the run's tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.limits.lease_book import Limit
from jobs.limits.window_use import Each

CALLS = "calls"  # in flight; name of a limit


@dataclass(frozen=True)
class Reserved:
    """The use of a limit per window by calls."""

    each: Each  # amount of the limit per unit
    reserve_per_call: int  # reserved before each call
    budget: str = ""  # as the user wrote it, if the limit stops the run; empty: calls wait


@dataclass(frozen=True)
class ServiceLimits:
    service: str
    limits: Mapping[str, Limit]
    longest_call: float  # s
    reserved: Mapping[str, Reserved] = field(default_factory=dict)  # by limit per window
    at_least: int | None = None  # calls in flight with which the search begins

    @property
    def budgets(self) -> tuple[str, ...]:
        """The names of the limits of money."""
        return tuple(name for name, one in self.reserved.items() if one.budget)

    def least(self, name: str) -> int:
        """Return the amount of a limit that a call needs to start."""
        return max(1, self.reserved[name].reserve_per_call) if name in self.reserved else 1
