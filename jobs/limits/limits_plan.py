"""What one run declares of the limits of one service: plain data, which travels to its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from jobs.limits.lease_book import Limit

CALLS = "calls"  # in flight; name of a limit


@dataclass(frozen=True)
class Reserved:
    """What calls take of a limit with a window.

    Attributes:
        unit: What is counted.
        of_a_call: Reserved before each call.
        each: What one unit takes of the limit.
        budget: As the user wrote it, of a limit that stops the run when it is used up; empty for others, which make
            calls wait.
    """

    unit: str
    of_a_call: int
    each: Fraction = Fraction(1)
    budget: str = ""


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of one service, by name, and the seconds that one of its calls takes at most.

    reserved: for each limit with a window.
    """

    service: str
    limits: Mapping[str, Limit]
    longest_call: float
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
