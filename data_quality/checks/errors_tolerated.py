"""Checks that errors are within the tolerance."""

import re
from collections import Counter

from data_quality.check import Cure
from data_quality.checks.tolerance import ToleranceCheck
from data_quality.rows.written_day import WrittenDay
from jobs.schema.personal import http_status
from jobs.wording import counted

_VARYING = re.compile(r"(?<![A-Z] )\b\d[\d.:-]{3,}|\b(?=[\w-]*\d)[\w-]{16,}\b", re.ASCII)
_EXAMPLES = re.compile(r" \(such as \d[^)]*\)")  # of a date or a timestamp


class ErrorsTolerated(ToleranceCheck):
    name = "errors_tolerated"
    outcomes = ("error", "unknown")
    ended = "ended as error or unknown"
    cure = Cure.REPLAY

    @property
    def tolerated(self) -> float:
        return self.declared.error_tolerance

    def causes(self, day: WrittenDay) -> str:
        """Return the three commonest errors without numbers and ids, so that '500 for key 1717'
        and '500 for key 1818' count together. Of a personal key, which an error may repeat, only
        the HTTP status is counted.
        """
        causes: Counter[str] = Counter()
        for read in day.output.parts():
            task = read()
            errors = task.table[self.error].filter(self.failures(task)).drop_null()
            for error in errors.value_counts().to_pylist():
                text, status = str(error["values"])[:300], http_status(error["values"])
                text = status + _VARYING.sub("…", _EXAMPLES.sub("", text[len(status) :])[:200])
                if self.lookup.hidden_key:
                    text = status or "without an HTTP status"
                causes[text] += error["counts"]
        top = sorted(causes.items(), key=lambda cause: (-cause[1], cause[0]))[:3]
        return "".join(f"; {counted(count, 'time')} {cause}" for cause, count in top)
