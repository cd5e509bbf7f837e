"""Checks that errors are within the tolerance."""

from data_quality.check import Cure
from data_quality.checks.tolerance import ToleranceCheck, commonest_errors
from data_quality.rows.written_day import WrittenDay


class ErrorsTolerated(ToleranceCheck):
    name = "errors_tolerated"
    outcomes = ("error", "unknown")
    cure = Cure.REPLAY

    @property
    def tolerated(self) -> float:
        return self.declared.error_tolerance

    @property
    def promise(self) -> str:
        return f"At most {100 * self.tolerated:.4g} % of the rows ended as error or unknown."

    def causes(self, day: WrittenDay) -> str:
        return commonest_errors(self, day)
