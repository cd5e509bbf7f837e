"""The base of the checks that compare a share of the rows with a tolerance."""

import functools
from abc import abstractmethod
from collections import Counter
from typing import Any, ClassVar

from data_quality.check import LookupCheck, count_outcomes, total
from data_quality.findings import Finding, share
from data_quality.rows.task_rows import Faults, Flags, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from jobs.schema.records import ChoiceFacts
from jobs.wording import counted, percent


class ToleranceCheck(LookupCheck):
    outcomes: ClassVar[tuple[str, ...]]
    ended: ClassVar[str]  # how the rows with these outcomes ended

    @property
    @abstractmethod
    def tolerated(self) -> float:
        """The highest tolerated share of the rows."""

    @property
    def promise(self) -> str:
        return f"At most {100 * self.tolerated:.4g} % of the rows {self.ended}."

    @property
    def error(self) -> str:
        return schema.error(self.lookup.name)

    @property
    def needs(self) -> tuple[str, ...]:
        return self.status, self.error, *(() if self.choice is None else (self.choice.status,))

    @functools.cached_property
    def choice(self) -> ChoiceFacts | None:
        """The waterfall of which the lookup is a vendor."""
        return self.declared.find_choice(self.lookup)

    @property
    def judged(self) -> tuple[str, ...]:
        """The outcomes, also of rows that a vendor was not asked for because it was down."""
        spills = self.choice is not None and self.choice.spills_outage and "error" in self.outcomes
        return (*self.outcomes, "not_asked") if spills else self.outcomes

    def failures(self, rows: TaskRows) -> Flags:
        """Return which rows failed; not those to which a later vendor of a waterfall answered."""
        choice = self.choice
        if choice is None:
            return rows.one_of(self.status, *self.judged)
        failed = rows.one_of(choice.status, *schema.FAILED, "not_asked")
        return failed & rows.one_of(self.status, *self.judged)

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> tuple[Counter[Any], Faults]:
        wrong = self.failures(rows)
        shown = [
            name for name in (self.error, schema.latency_ms(self.lookup.name)) if name in rows.names
        ]
        return count_outcomes(rows, self.lookup), self.faults(rows, wrong, shown)

    def finding(self, parts: list[tuple[Counter[Any], Faults]], day: WrittenDay) -> Finding:
        """Judge the share in the whole table.

        A run that enriches only changed rows enriches every failed row again, so failed rows may be
        most of that run's rows.
        """
        counts = total([part[0] for part in parts])
        wrong = Faults.together(part[1] for part in parts)
        count = wrong.count
        every = self.lookup.rows_judged(counts) + day.facts.rows_kept
        message = (
            " or ".join(outcome for outcome in self.judged if counts[outcome]) or self.outcomes[0]
        )
        of_all = f"{counted(count, 'row')} of {every:,}, {percent(share(count, every))}"
        text = f"{message}: {of_all}; tolerated {percent(self.tolerated)}"
        expected = f"at most {100 * self.tolerated:.4g} % of the rows"
        if share(count, every) <= self.tolerated:
            return Finding(True, text, count, every, expected)
        found = Finding(False, text + self.causes(day), count, every, expected)
        return found.with_evidence(wrong.evidence, self.declared)

    def causes(self, _day: WrittenDay) -> str:
        """Return text to append to the sentence of a red check."""
        return ""
