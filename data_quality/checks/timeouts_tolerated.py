"""Checks that timeouts are within the tolerance."""

from data_quality.checks.tolerance import ToleranceCheck


class TimeoutsTolerated(ToleranceCheck):
    name = "timeouts_tolerated"
    outcomes = ("timeout",)
    ended = "timed out"

    @property
    def wanted(self) -> bool:
        return self.lookup.timeout is not None

    @property
    def tolerated(self) -> float:
        return self.declared.timeout_tolerance
