"""Checks that each row has a known outcome per lookup that fits its calls and the run's counts."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow.compute as pc

from data_quality.check import Check, count_outcomes, total
from data_quality.findings import Finding
from data_quality.rows.task_rows import Faults, Flags, TaskRows, flags
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from jobs.schema.columns import FAILED, NOT_REPEATED, OUTCOMES, SOURCES
from jobs.schema.records import LookupFacts
from jobs.wording import counted

# the form of a timeout's text, with any limit and number of attempts
TIMED_OUT = r"^no answer within [^ ]+ s, (\d+ attempts|waiting for an equal request)"


class OutcomesAddUp(Check):
    name = "outcomes_add_up"
    promise = (
        "Every row has one known outcome per lookup, consistent with its source, calls and error; "
        "the outcomes sum to the rows."
    )
    expected = "one outcome per lookup"

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(
            column
            for lookup in self.declared.lookups
            for column in schema.audit_columns(lookup.name)
        )

    @property
    def shown(self) -> list[str]:
        columns = (schema.status, schema.source, schema.error, schema.attempts)
        return [column(lookup.name) for lookup in self.declared.lookups for column in columns]

    def summarize(
        self, rows: TaskRows, _day: WrittenDay
    ) -> tuple[Faults, int, dict[str, Counter[Any]]]:
        wrong = np.zeros(len(rows), np.bool_)
        for lookup in self.declared.lookups:
            wrong |= _contradicted(rows, lookup) | _error_contradicted(rows, lookup)
        counts = {lookup.name: count_outcomes(rows, lookup) for lookup in self.declared.lookups}
        return self.faults(rows, wrong, self.shown), len(rows), counts

    def finding(
        self, parts: list[tuple[Faults, int, dict[str, Counter[Any]]]], day: WrittenDay
    ) -> Finding:
        faults, count = Faults.together(part[0] for part in parts), sum(part[1] for part in parts)
        by_lookup = {
            lookup.name: total([part[2][lookup.name] for part in parts])
            for lookup in self.declared.lookups
        }
        found = Finding.judged(
            f"{counted(count, 'row')} = {_sums(by_lookup)}" if count else "no rows, no outcomes",
            f"{counted(faults.count, 'row')} of {counted(count, 'row')} without a known outcome "
            "that is consistent with the calls",
            faults.count,
            count,
            self.expected,
        )
        return self._as_the_run_counted(found, by_lookup, day) or found.with_evidence(
            faults.evidence, self.declared
        )

    def _as_the_run_counted(
        self, found: Finding, by_lookup: dict[str, Counter[Any]], day: WrittenDay
    ) -> Finding | None:
        """Return a red finding if files and run differ in a count and the rows are right."""
        for lookup in day.metrics.lookups if found.success and day.metrics else ():
            for outcome, count in lookup.outcomes.items():
                if (in_files := by_lookup.get(lookup.name, Counter())[outcome]) != count:
                    text = (
                        f"the run counted {count:,} {outcome} for {lookup.name}, the files have "
                        f"{in_files:,}"
                    )
                    return Finding(
                        False, text, abs(count - in_files), found.element_count, found.expected
                    )
        return None


def _contradicted(rows: TaskRows, lookup: LookupFacts) -> Flags:
    """Return the rows whose outcome contradicts their source or calls."""
    status, source = schema.status(lookup.name), schema.source(lookup.name)
    called, no_source = rows.calls(lookup.name).counts > 0, rows.is_null(source)
    wrong = ~rows.one_of(status, *OUTCOMES) | rows.is_null(schema.attempts(lookup.name))
    for outcome, sources in SOURCES.items():
        fits = rows.one_of(source, *(source for source in sources if source is not None))
        wrong |= rows.one_of(status, outcome) & ~((fits | no_source) if None in sources else fits)
    from_call = rows.one_of(status, "ok", "miss") & rows.one_of(source, "call")
    own_failure = rows.one_of(status, "timeout", "error") & no_source
    unread = own_failure & _has_unread_key(rows, lookup)
    wrong |= (from_call | (own_failure & ~unread)) & ~called
    wrong |= unread & called
    wrong |= (rows.one_of(status, "skipped", "not_asked") | rows.one_of(source, "ledger")) & called
    wrong |= rows.one_of(status, "fallback") & rows.one_of(source, "shared") & called
    for column in (schema.latency_ms, schema.paused_ms):
        wrong |= rows.is_null(column(lookup.name)) == called
    if lookup.timeout is None:
        wrong |= rows.one_of(status, "timeout")
    return wrong


def _has_unread_key(rows: TaskRows, lookup: LookupFacts) -> Flags:
    return flags(
        pc.match_substring_regex(rows.decoded(schema.error(lookup.name)), schema.UNREAD_KEY)
    )


def _error_contradicted(rows: TaskRows, lookup: LookupFacts) -> Flags:
    """Return the rows whose error is missing, or is of another outcome or number of attempts."""
    status = schema.status(lookup.name)
    source = schema.source(lookup.name)
    column = schema.error(lookup.name)
    failed, has_error = rows.one_of(status, *FAILED), ~rows.is_null(column)
    wrong: Flags = failed != has_error
    if not has_error.any():
        return wrong
    texts = rows.decoded(column)
    timed_out, unknown = rows.one_of(status, "timeout"), rows.one_of(status, "unknown")
    wrong |= has_error & (flags(pc.match_substring_regex(texts, TIMED_OUT)) != timed_out)
    wrong |= has_error & unknown & ~flags(pc.match_substring(texts, NOT_REPEATED))
    by_own_calls = timed_out & rows.is_null(source)
    counts = rows.calls(lookup.name).counts
    for count in np.unique(counts[by_own_calls]).tolist():
        begins = flags(pc.starts_with(texts, schema.timed_out_text(lookup.timeout, count)))
        wrong |= by_own_calls & (counts == count) & ~begins
    return wrong


def _sums(by_lookup: dict[str, Counter[Any]]) -> str:
    parts = []
    for name, counts in by_lookup.items():
        known = [f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES if counts[outcome]]
        parts.append(f"{name}: {' + '.join(known)}")
    return "; ".join(parts)
