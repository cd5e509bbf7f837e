"""Checks that errors are within the tolerance."""

from data_quality.check import Cure
from data_quality.checks.tolerance import ToleranceCheck, commonest_errors
from data_quality.rows.written_day import WrittenDay


class ErrorsTolerated(ToleranceCheck):
    name = "errors_tolerated"
    outcomes = ("error", "unknown")
    ended = "ended as error or unknown"
    cure = Cure.REPLAY

    @property
    def tolerated(self) -> float:
        return self.declared.error_tolerance

    def causes(self, day: WrittenDay) -> str:
        return commonest_errors(self, day)
