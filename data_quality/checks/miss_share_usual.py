"""Compares the share of misses with earlier published days."""

import statistics
from collections import Counter
from typing import Any

from data_quality.check import LookupCheck, count_outcomes, total
from data_quality.findings import Finding, share
from data_quality.history import DAYS_OF_HISTORY
from data_quality.rows.task_rows import TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.wording import percent


class MissShareUsual(LookupCheck):
    name = "miss_share_usual"
    severity = "warn"

    @property
    def wanted(self) -> bool:
        return self.declared.miss_change is not None

    @property
    def promise(self) -> str:
        change = f"{self.declared.miss_change:g}"
        return f"The share of misses is within {change} of that of the last {DAYS_OF_HISTORY} days."

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.status,)

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> Counter[Any]:
        return count_outcomes(rows, self.lookup)

    def finding(self, parts: list[Counter[Any]], day: WrittenDay) -> Finding:
        shares = self._earlier_shares(day)
        if not shares:
            return Finding.without_history("no earlier days to compare with")
        counted, tolerated = total(parts), self.declared.miss_change or 0.0
        misses, count = counted["miss"], self.lookup.rows_judged(counted)
        if not count:
            return Finding(True, "no rows to judge")
        now, usual = share(misses, count), statistics.mean(shares)
        text = (
            f"{percent(now)} misses; {percent(usual)} on the {len(shares)} days before; tolerated "
            f"change {percent(tolerated)}"
        )
        expected = f"{usual - tolerated:.4f} .. {usual + tolerated:.4f}"
        held = round(abs(now - usual) - tolerated, 9) <= 0  # 0.4 - 0.3 is over 0.1
        return Finding(held, text, 0 if held else misses, count, expected)

    def _earlier_shares(self, day: WrittenDay) -> list[float]:
        lookups = (
            metrics
            for earlier in day.earlier.values()
            for metrics in earlier.figures.lookups
            if metrics.name == self.lookup.name
        )
        return [
            share(metrics.outcomes.get("miss", 0), judged)
            for metrics in lookups
            if (judged := self.lookup.rows_judged(metrics.outcomes))
        ]
