"""What one run declares of the limits of one service: plain data, which travels to its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.limits.lease_book import Limit

CALLS = "calls"  # in flight; name of a limit


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of one service, by name, and the seconds that one of its calls takes at most."""

    service: str
    limits: Mapping[str, Limit]
    longest_call: float
