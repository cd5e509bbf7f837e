"""The limits of one service as one run declares them: plain data, which is sent to its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from jobs.limits.lease_book import Limit

CALLS = "calls"  # in flight; name of a limit


@dataclass(frozen=True)
class Reserved:
    """The use of a limit per window by calls.

    Attributes:
        unit: Unit of the calls.
        of_a_call: Units that are reserved before each call.
        each: Amount of the limit per unit.
        budget: The user's text of a limit that stops the run when it is used up; empty for a limit that makes calls
            wait.
    """

    unit: str
    of_a_call: int
    each: Fraction = Fraction(1)
    budget: str = ""


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of one service.

    Attributes:
        service: Name of the service.
        limits: The limits, by name.
        longest_call: The longest time that one call may take, in seconds.
        reserved: What a call reserves, by limit per window.
        at_least: The calls in flight with which a search for those that the service bears begins; None: no search.
    """

    service: str
    limits: Mapping[str, Limit]
    longest_call: float
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
    at_least: int | None = None

    def least(self, name: str) -> int:
        """The amount of a limit that a call needs to start."""
        return max(1, self.reserved[name].of_a_call) if name in self.reserved else 1
