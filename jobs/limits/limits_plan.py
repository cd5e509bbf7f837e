"""The limits of a service as a run declares them: plain data that is sent to the run's tasks."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

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
        return tuple(name for name, limit in self.reserved.items() if limit.budget)

    def only(self, names: Collection[str]) -> "ServiceLimits":
        """Return the limits with these names, without the longest call and the first search."""
        limits = {name: limit for name, limit in self.limits.items() if name in names}
        reserved = {name: limit for name, limit in self.reserved.items() if name in names}
        return ServiceLimits(self.service, limits, 0.0, reserved)

    def strictest(self, other: "ServiceLimits") -> "ServiceLimits":
        """Return the limits that hold for calls of both, and for their longest call."""
        limits, reserved = {**self.limits}, {**self.reserved}
        for name, limit in other.limits.items():
            limits[name] = min(limit, limits.get(name, limit), key=attrgetter("amount"))
        for name, use in other.reserved.items():
            reserved[name] = max(use, reserved.get(name, use), key=attrgetter("reserve_per_call"))
        begins = [begin for begin in (self.at_least, other.at_least) if begin is not None]
        return replace(
            self, limits=limits, reserved=reserved, at_least=min(begins, default=None),
            longest_call=max(self.longest_call, other.longest_call),
        )  # fmt: skip

    def least(self, name: str) -> int:
        """Return the amount of a limit that a call needs to start."""
        return max(1, self.reserved[name].reserve_per_call) if name in self.reserved else 1
