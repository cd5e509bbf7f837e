"""Checks that each row has one known outcome per lookup, consistent with its calls and the run's counts."""

from collections import Counter
from typing import Any

import numpy as np

from data_quality.check import Check, outcomes, total
from data_quality.findings import Finding, rows
from data_quality.run_output import Faults, Flags, TaskRows
from data_quality.written_day import WrittenDay
from jobs import schema
from jobs.schema import OUTCOMES, LookupFacts

SOURCES = ("call", "ledger", "shared")


class OutcomesAddUp(Check):
    name = "outcomes_add_up"
    red_when = (
        "a row has no known outcome, or one that contradicts its calls (answered by a call that was not made; skipped,"
        " but called; from the ledger, but called); or the run's own counts differ from the files"
    )
    promise = "Every row has one known outcome per lookup, consistent with its calls; the outcomes sum to the rows."
    expected = "one outcome per lookup"

    @property
    def needs(self) -> tuple[str, ...]:
        columns = (schema.status, schema.source, schema.attempts)
        return tuple(column(lookup.name) for lookup in self.declared.lookups for column in columns)

    def of_rows(self, rows: TaskRows, _day: WrittenDay) -> tuple[Faults, int, dict[str, Counter[Any]]]:
        wrong = np.zeros(len(rows), np.bool_)
        for lookup in self.declared.lookups:
            wrong |= _contradicted(rows, lookup)
        counts = {lookup.name: outcomes(rows, lookup) for lookup in self.declared.lookups}
        return self.faults(rows, wrong, list(self.needs)), len(rows), counts

    def finding(self, parts: list[tuple[Faults, int, dict[str, Counter[Any]]]], day: WrittenDay) -> Finding:
        faults, count = Faults.together(part[0] for part in parts), sum(part[1] for part in parts)
        counted = {lookup.name: total([part[2][lookup.name] for part in parts]) for lookup in self.declared.lookups}
        found = Finding.judged(
            f"{rows(count)} = {_sums(counted)}" if count else "no rows, no outcomes",
            f"{rows(faults.count)} of {rows(count)} without a known outcome that is consistent with the calls",
            faults.count,
            count,
            self.expected,
        )
        return self._as_the_run_counted(found, counted, day) or found.with_evidence(faults.evidence)

    def _as_the_run_counted(self, found: Finding, counted: dict[str, Counter[Any]], day: WrittenDay) -> Finding | None:
        """Red if the files and the run differ in a count, once all else holds."""
        for one in day.metrics.lookups if found.success and day.metrics else ():
            for outcome, count in one.outcomes.items():
                if (there := counted.get(one.name, Counter())[outcome]) != count:
                    text = f"the run counted {count:,} {outcome} for {one.name}, the files have {there:,}"
                    return Finding(False, text, abs(count - there), found.element_count, found.expected)
        return None


def _contradicted(rows: TaskRows, lookup: LookupFacts) -> Flags:
    status, source = schema.status(lookup.name), schema.source(lookup.name)
    hit, called = rows.one_of(status, "ok", "miss"), rows.calls(lookup.name).counts > 0
    wrong = ~rows.one_of(status, *OUTCOMES) | rows.is_null(schema.attempts(lookup.name))
    wrong |= hit & ~rows.one_of(source, *SOURCES)
    wrong |= hit & rows.one_of(source, "call") & ~called
    wrong |= rows.one_of(status, "skipped", "not_asked") & (called | ~rows.is_null(source))
    wrong |= rows.one_of(status, "unknown") & ~rows.is_null(source)
    wrong |= rows.one_of(source, "ledger") & called
    if lookup.timeout is None:
        wrong |= rows.one_of(status, "timeout")
    return wrong


def _sums(counted: dict[str, Counter[Any]]) -> str:
    parts = []
    for name, counts in counted.items():
        known = [f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES if counts[outcome]]
        parts.append(f"{name}: {' + '.join(known)}")
    return "; ".join(parts)
