"""What one run declares of the limits of one service: plain data, which travels to its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.limits.lease_book import Limit

CALLS = "calls"  # in flight; name of a limit


@dataclass(frozen=True)
class Reserved:
    """What a call takes of a limit with a window: so much of this unit is reserved before it."""

    unit: str
    of_a_call: int


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of one service, by name, and the seconds that one of its calls takes at most.

    reserved: for each limit with a window.
    """

    service: str
    limits: Mapping[str, Limit]
    longest_call: float
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
