"""Not more errors than tolerated."""

from __future__ import annotations

from data_quality.check import Cure
from data_quality.checks.tolerance import ToleranceCheck, commonest_errors
from data_quality.written_day import WrittenDay


class ErrorsTolerated(ToleranceCheck):
    name = "errors_tolerated"
    red_when = "the share of rows that ended in an error, or `unknown`, is above what the declaration tolerates"
    outcomes = ("error", "unknown")
    cure = Cure.REPLAY

    @property
    def tolerated(self) -> float:
        return self.declared.error_tolerance

    @property
    def promise(self) -> str:
        return f"At most {100 * self.tolerated:.4g} % of the rows ended in an error, or unknown."

    def causes(self, day: WrittenDay) -> str:
        return commonest_errors(self, day)
