"""The limits of one service as one run declares them: plain data, which is sent to its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from jobs.limits.lease_book import Limit

CALLS = "calls"  # in flight; name of a limit


@dataclass(frozen=True)
class Reserved:
    """The use of a limit per window by calls."""

    unit: str
    of_a_call: int  # units that are reserved before each call
    each: Fraction = Fraction(1)  # amount of the limit per unit
    budget: str = ""  # the user's text of a limit that stops the run when it is used up; empty: calls wait for it


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of one service."""

    service: str
    limits: Mapping[str, Limit]  # by name
    longest_call: float  # s
    reserved: Mapping[str, Reserved] = field(default_factory=dict)  # what a call reserves, by limit per window
    at_least: int | None = None  # the calls in flight with which the search for those that it bears begins

    def least(self, name: str) -> int:
        """The amount of a limit that a call needs to start."""
        return max(1, self.reserved[name].of_a_call) if name in self.reserved else 1
