"""Checks that each row has the declared key, and the answer of that key at its time."""

import datetime as dt
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from data_quality.check import LookupCheck, total
from data_quality.checks.time_limit_held import TICK_MS
from data_quality.findings import ROWS_OF_EVIDENCE, Finding
from data_quality.rows.answer_comparison import Compared, WrongRows, compare
from data_quality.rows.answer_groups import (
    AnsweredRows,
    Between,
    StoredGroups,
    divide_places,
    merged,
)
from data_quality.rows.key_expressions import answers_read, declared_keys, lasting
from data_quality.rows.task_rows import Faults, Flags, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import digest, plus_zero
from jobs.schema import columns as schema
from jobs.schema.columns import HAS_ANSWER, INPUT_SEQ, OUTCOMES, PARTITION, SOURCE_IDENTITY
from jobs.schema.records import DayFacts
from jobs.wording import counted

TICK_US = 1_000 * TICK_MS
CLOCKS = dt.timedelta(minutes=5)  # by which the clocks of a cluster's hosts may differ
_ALIKE = "rows with the same key and answer time have the same answer"
_ROW_EXPECTED = (
    "published as audited; not skipped with a key; an answer that came by call has the time of the "
    "call's end"
)


@dataclass(frozen=True)
class Answers:
    rows: int
    answered: int
    contradicted: Faults  # rows whose columns about the answer do not fit together
    other_keys: Faults  # than declared
    parts: Counter[str]  # rows by differing part of the key
    groups: StoredGroups


class AnswersMatch(LookupCheck):
    name = "answers_match"

    @property
    def wanted(self) -> bool:
        return bool(self.lookup.keys)

    @property
    def promise(self) -> str:
        stored = ", as stored in the ledger." if self.declared.ledger is not None else "."
        return (
            "The declared expressions give the row's key, and the row has the answer of its "
            f"key{stored}"
        )

    @property
    def key(self) -> str:
        return schema.key(self.lookup.name)

    @property
    def published(self) -> str:
        return schema.published_status(self.lookup.name)

    @property
    def answered_at(self) -> str:
        return schema.published_answered_at(self.lookup.name)

    @property
    def shown(self) -> list[str]:
        return [self.status, self.published, self.source, self.answered_at]

    @property
    def needs(self) -> tuple[str, ...]:
        latency = schema.latency_ms(self.lookup.name)
        columns = [
            *self.shown,
            self.key,
            self.attempts,
            latency,
            *self.lookup.columns,
            *SOURCE_IDENTITY,
        ]
        return tuple(dict.fromkeys([*columns, *answers_read(self.declared)]))

    def prepare(self, day: WrittenDay) -> None:
        columns = day.output.columns
        names = (
            [part.name for part in columns.field(self.key).type]
            if self.key in columns.names
            else []
        )
        self._absent = [
            part for part, _ in lasting(self.lookup) if len(day.output) and part not in names
        ]

    def summarize(self, rows: TaskRows, day: WrittenDay) -> Answers:
        contradicted = self.faults(rows, self._contradicted(rows, day.facts), self.shown)
        other_keys, parts = self._other_keys(rows, day)
        answered = AnsweredRows.of(rows, self.lookup)
        in_turn = day.output.wrong((PARTITION, INPUT_SEQ)) is None
        groups = answered.grouped(rows, self.lookup, in_turn=in_turn)
        kept = StoredGroups.of(groups, day.scratch)
        return Answers(len(rows), len(answered.at), contradicted, other_keys, parts, kept)

    def finding(self, parts: list[Answers], day: WrittenDay) -> Finding:
        compared = self._compared([part.groups for part in parts], day)
        by_answer = self._by_answer(sum(part.answered for part in parts), compared, day)
        by_source = self._by_source(sum(part.rows for part in parts), compared, day)
        return _together([by_answer, by_source, self._by_row(parts), self._by_key(parts, day)])

    # -- the row's columns: published as audited, not skipped with a key, answered at the call's end
    def _contradicted(self, rows: TaskRows, facts: DayFacts) -> Flags:
        wrong: Flags = digest([rows.column(self.published)]) != digest([rows.column(self.status)])
        return wrong | self._is_skip_wrong(rows) | self._is_time_wrong(rows, facts)

    def _is_skip_wrong(self, rows: TaskRows) -> Flags:
        """Return the rows that were skipped with a key, or not skipped without a key."""
        has_no_key = rows.is_null(self.key)
        for part in rows.column(self.key).flatten():
            has_no_key = has_no_key | part.is_null().to_numpy(zero_copy_only=False)
        wrong: Flags = has_no_key != rows.one_of(self.status, "skipped")
        return wrong & rows.one_of(self.status, *OUTCOMES)

    def _is_time_wrong(self, rows: TaskRows, facts: DayFacts) -> Flags:
        """Return the rows whose answer has no time, or a time at which it cannot have come."""
        answered_at, calls = rows.numbers(self.answered_at), rows.calls(self.lookup.name)
        has_answer = rows.one_of(self.status, *HAS_ANSWER, "miss")
        has_call_answer = rows.one_of(self.status, "ok", "miss")  # no fallback
        by_call, by_other_row = (rows.one_of(self.source, source) for source in ("call", "shared"))
        called = calls.counts > 0
        # when the row ended by its latency, and when its last attempt ended
        ended_at = calls.begun + 1000 * rows.numbers(schema.latency_ms(self.lookup.name))
        attempt_ended_at = calls.ended
        has_time = ~np.isnan(answered_at)
        wrong: Flags = has_answer & ~has_time
        wrong |= ~has_answer & ~rows.is_null(self.status) & has_time
        # another row's call, after this row's had failed
        joined = has_call_answer & by_other_row & called
        wrong |= joined & ((answered_at == attempt_ended_at) | (ended_at < answered_at - TICK_US))
        ends_row = (
            has_answer if self.lookup.timeout is None else rows.one_of(self.status, "fallback")
        )
        wrong |= ends_row & by_call & called & (np.abs(answered_at - ended_at) > TICK_US)
        wrong |= (
            has_call_answer
            & by_call
            & ~np.isnan(attempt_ended_at)
            & (answered_at != attempt_ended_at)
        )
        begun, ended = _within(facts)
        wrong |= (by_call | by_other_row) & ((answered_at < begun) | (answered_at > ended))
        return wrong

    def _by_row(self, parts: list[Answers]) -> Finding:
        faults = Faults.together(part.contradicted for part in parts)
        count = sum(part.rows for part in parts)
        return self.conclude(
            faults,
            count,
            holds=f"{counted(count, 'row')} published as audited",
            wrong=f"{counted(faults.count, 'row')} of {count:,} whose status, key, or time of the "
            "answer is not that of the call",
            expected=_ROW_EXPECTED,
        )

    # -- the source against the run that stored the answer -----------------------------------------
    def _by_source(self, count: int, compared: Compared, day: WrittenDay) -> Finding:
        """Judge the source of each answer.

        An answer that this run stored has source `ledger` only if its task was retried: the first
        attempt's rows are discarded.
        """
        found = compared.foreign.count + compared.called_too.count
        wrong = (
            f"{counted(found, 'row')} of {count:,} whose source is not where their answer came from"
        )
        expected = "call or shared for an answer of this run's calls, ledger for any other"
        judged = Finding.judged(
            f"{counted(count, 'row')} with the source of their answer",
            wrong,
            found,
            count,
            expected,
        )
        foreign = self._rows_at_fault(compared.foreign, "asked", self.shown, day)
        called_too = self._rows_at_fault(compared.called_too, "known", self.shown, day)
        return judged.with_evidence(
            Faults.together([*foreign, *called_too]).evidence, self.declared
        )

    def _rows_at_fault(
        self, wrong: WrongRows, kind: str, shown: list[str], day: WrittenDay
    ) -> list[Faults]:
        """Return the first rows of these groups, which are the first rows at fault."""
        if not wrong.count:
            return []
        chosen = np.array([*wrong.pairs], np.uint64)

        def of_part(task: TaskRows, _day: WrittenDay) -> Faults:
            found = AnsweredRows.of(task, self.lookup)
            pairs = np.stack([found.places, found.answers], axis=1)
            at_fault = np.zeros(len(task), np.bool_)
            among = (pairs[:, None, :] == chosen[None, :, :]).all(axis=2).any(axis=1)
            at_fault[found.at] = among & found.sources[kind]
            return self.faults(task, at_fault, shown)

        return day.each(of_part, day.output.parts())

    # -- the key against the declared expressions over the input row -------------------------------
    def _other_keys(self, rows: TaskRows, day: WrittenDay) -> tuple[Faults, Counter[str]]:
        wrong = np.zeros(len(rows), np.bool_)
        if self._absent or not lasting(self.lookup):
            return Faults(0), Counter()
        key = rows.column(self.key)
        written = dict(zip([part.name for part in key.type], key.flatten(), strict=True))
        changed: dict[str, Flags] = {}
        for places, declared in declared_keys(rows, self.lookup, day):
            for part, values in declared.items():
                found = written[part].take(pa.array(places))
                other = digest([plus_zero(values)]) != digest([plus_zero(found)])
                changed.setdefault(part, np.zeros(len(rows), np.bool_))[places] |= other
                wrong[places] |= other

        def described(place: int) -> dict[str, str]:
            return {"differs": ", ".join(part for part, flags in changed.items() if flags[place])}

        counts = Counter({part: int(flags.sum()) for part, flags in changed.items()})
        return self.faults(rows, wrong, list(SOURCE_IDENTITY), described), counts

    def _by_key(self, parts: list[Answers], day: WrittenDay) -> Finding:
        count = day.input.rows
        declared = ", ".join(f"{name} = {text}" for name, text in self.lookup.keys)
        expected = f"the key in the audit is the value of {declared}"
        if self._absent:
            return Finding(False, f"{self.key} has no {self._absent[0]}", count, count, expected)
        faults = Faults.together(part.other_keys for part in parts)
        counts = total([part.parts for part in parts])
        in_words = [f"{part} in {counts[part]:,}" for part, _ in self.lookup.keys if counts[part]]
        return self.conclude(
            faults,
            count,
            holds=f"{counted(count, 'row')} with the declared key",
            wrong=f"{counted(faults.count, 'row')} whose key differs from the declared one: "
            f"{', '.join(in_words[:5])}",
            expected=expected,
        )

    # -- the answer against the stored answer, or against answers of equal rows --------------------
    def _compared(self, groups: list[StoredGroups], day: WrittenDay) -> Compared:
        """Compare the answers with the stored answers, some keys and times after the others."""
        stored, lookup = day.stored, self.lookup

        def compared(between: Between) -> Compared:
            together = merged(table for part in groups for table in part.read(between))
            return Compared() if together is None else compare(together, lookup, stored)

        return Compared.together(day.run(compared, divide_places(groups)))

    def _by_answer(self, count: int, compared: Compared, day: WrittenDay) -> Finding:
        expected = "each answer is the stored one of its key and time" if compared.known else _ALIKE
        if wrong := compared.unlike.count:
            text = (
                f"{counted(wrong, 'row')} of {count:,} whose answer is not the one of their key at "
                "that time"
            )
            shown = [
                *SOURCE_IDENTITY,
                self.published,
                self.source,
                self.answered_at,
                *self.lookup.columns,
            ]
            faults = Faults.together(self._rows_at_fault(compared.unlike, "rows", shown, day))
            return Finding(False, text, wrong, count, expected).with_evidence(
                faults.evidence, self.declared
            )
        if not compared.known:
            text = (
                f"{counted(count, 'row')} with an answer, the same for equal keys and times; no "
                "stored response to compare"
            )
        elif compared.gone:
            of_key = f"{counted(count - compared.gone, 'row')} with the stored answer of their key"
            text = f"{of_key}, {compared.gone:,} whose stored response is gone"
        else:
            text = f"{counted(count, 'row')} with an answer, each the stored one of its key"
        return Finding(True, text, 0, count, expected)


def _within(facts: DayFacts) -> tuple[float, float]:
    if not facts.started_at or not facts.finished_at:
        return np.nan, np.nan
    begun, ended = (
        dt.datetime.fromisoformat(moment) for moment in (facts.started_at, facts.finished_at)
    )
    return (begun - CLOCKS).timestamp() * 1e6, (ended + CLOCKS).timestamp() * 1e6


def _together(findings: list[Finding]) -> Finding:
    red = [finding for finding in findings if finding.success is False]
    if not red:
        return findings[0]
    evidence = {str(row): row for finding in red for row in finding.evidence}
    return replace(
        red[0],
        sentence="; ".join(finding.sentence for finding in red),
        unexpected_count=max(finding.unexpected_count for finding in red),
        element_count=max(finding.element_count for finding in findings),
        evidence=tuple(evidence.values())[:ROWS_OF_EVIDENCE],
    )
