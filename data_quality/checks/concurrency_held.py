"""Compares the calls in flight, by the start and end of every attempt, with each task's share.

Other tasks get the slots that a task's last rows do not need, and all its slots at its end. The
share of a task changes at times of that task's clock, so a single clock judges each task. The order
of the changes shows that all shares together stay within the limit. A lost task has several
attempts; only the calls of the last attempt are in the files.

With batches, the files have the attempts of keys, which include the wait for further keys of the
batch. The check then judges requests by the run's counts at sending, and attempts by the number of
keys that may wait or be in flight at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_quality.check import LookupCheck, Takes
from data_quality.findings import Finding
from data_quality.rows.task_rows import Calls, Faults, Floats, Places, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.schema.columns import PARTITION, SOURCE_FILE, SOURCE_IDENTITY
from jobs.schema.records import DayFacts, ShareGiven
from jobs.wording import counted, listed

UNLIMITED = 2**62  # calls, or keys, at once: what NumPy can count


@dataclass(frozen=True)
class Peak:
    task: int
    over: int  # the highest excess over the task's share at that moment; 0 or less: none
    most: int  # highest number in flight
    attempts: int  # made
    faults: Faults  # attempts that began with all slots in use


class ConcurrencyHeld(LookupCheck):
    name = "concurrency_held"

    @property
    def promise(self) -> str:
        limit = self.lookup.max_concurrency
        return (
            f"No task had more calls in flight than its share of {limit}, by their starts and ends."
        )

    @property
    def needs(self) -> tuple[str, ...]:
        return PARTITION, self.attempts

    @property
    def takes(self) -> Takes:
        return Takes.CALLS

    @property
    def called(self) -> tuple[str, ...]:
        return (self.attempts,)

    @property
    def number(self) -> int:
        return [lookup.name for lookup in self.declared.lookups].index(self.lookup.name)

    def summarize(self, rows: TaskRows, day: WrittenDay) -> Peak | None:
        if self.number >= len(day.facts.shares):
            return None
        calls = rows.calls(self.lookup.name)
        if not len(calls.starts):
            return None
        allowed = self._allowed_over_time(day.facts, rows.task)
        attempts = InFlight(calls.starts, calls.ends, allowed)
        if attempts.over > 0 and set(SOURCE_IDENTITY) <= set(rows.names):
            # a row that the files have twice called once, so its equal attempts count once
            kept = np.isin(calls.rows, _each_once(rows, calls))
            attempts = InFlight(calls.starts[kept], calls.ends[kept], allowed)
        faults = self._attempts_over(rows, calls, attempts) if attempts.over > 0 else Faults(0)
        return Peak(rows.task, attempts.over, attempts.most, len(attempts.starts), faults)

    def _attempts_over(self, rows: TaskRows, calls: Calls, attempts: InFlight) -> Faults:
        in_flight, allowed = attempts.at_starts(calls.starts)
        late = np.flatnonzero(in_flight > allowed)
        by_row: dict[int, list[int]] = {}
        for attempt in late:
            by_row.setdefault(int(calls.rows[attempt]), []).append(int(attempt))

        def described(row: int) -> dict[str, Any]:
            first = by_row[row][0]
            times = {"start_us": int(calls.starts[first]), "end_us": int(calls.ends[first])}
            return {"in_flight": int(in_flight[first]), "allowed": int(allowed[first]), **times}

        wrong = np.zeros(len(rows), np.bool_)
        wrong[list(by_row)] = True
        found = self.faults(rows, wrong, [], described)
        return Faults(len(late), found.rows)

    def _allowed_over_time(self, facts: DayFacts, task: int) -> tuple[Places, Places]:
        steps = sorted(self._steps(facts, task), key=lambda step: step[0])
        return np.array([edge for edge, _ in steps], np.int64), np.array(
            [calls for _, calls in steps], np.int64
        )

    def _steps(self, facts: DayFacts, task: int) -> Iterator[tuple[int, int]]:
        shares = facts.shares[self.number]
        before = self._allowed_attempts(shares[task]) if 0 <= task < len(shares) else 0
        yield 0, before
        for given in _given_to_writers(facts):
            if given.task == task:
                allowed = self._allowed_attempts(given.shares[self.number])
                yield given.since * 2 + (allowed < before), allowed
                before = allowed

    def _allowed_attempts(self, share: int) -> int:
        """Return the share; with batches, the keys of so many full requests plus a batch."""
        size = self.lookup.batch_size
        return min(share if size == 1 or not share else (share + 1) * size, UNLIMITED)

    def finding(self, parts: list[Peak | None], day: WrittenDay) -> Finding:
        if self.number >= len(day.facts.shares):
            return Finding.not_run("the run did not record the share of each task")
        found = self._judge_attempts([peak for peak in parts if peak is not None], day.facts)
        metrics = day.find_metrics(self.lookup)
        requests = metrics.requests if metrics is not None and self.lookup.batch_size > 1 else None
        if not found.success or requests is None or not requests.most_at_once:
            return found
        return self._judge_requests(requests.most_at_once, day.facts)

    def _judge_attempts(self, peaks: list[Peak], facts: DayFacts) -> Finding:
        shares = [self._allowed_attempts(share) for share in facts.shares[self.number]]
        attempts = sum(peak.attempts for peak in peaks)
        asked = (
            f"{self.lookup.max_concurrency} calls"
            if self.lookup.batch_size == 1
            else f"{sum(shares):,} keys"
        )
        by_task = listed([*map(str, shares)], most=20)
        expected = f"at most {asked} in flight, by shares of the tasks: {by_task}"
        if (too_much := self._given_too_much(facts)) is not None:
            return Finding(False, too_much, 1, attempts, expected)
        over = [peak for peak in peaks if peak.over > 0]
        if not over:
            most = max((peak.most for peak in peaks), default=0)
            largest = max(
                (self._allowed_attempts(share) for share in self._largest(facts).values()),
                default=0,
            )
            text = (
                f"at most {most} in flight in a task, of {largest} allowed; {attempts:,} attempts"
            )
            return Finding(True, text, 0, attempts, expected)
        first = min(over, key=lambda peak: peak.task)
        faults = Faults.together(peak.faults for peak in over)
        beyond = f"{first.over} more in flight in task {first.task} than allowed"
        text = f"{faults.count:,} attempts began with all slots in use: {beyond}"
        return Finding(False, text, faults.count, attempts, expected).with_evidence(
            faults.evidence, self.declared
        )

    def _judge_requests(self, most_at_once: tuple[int, ...], facts: DayFacts) -> Finding:
        limit, allowed = self.lookup.max_concurrency, self._largest(facts)
        shares = listed([*map(str, facts.shares[self.number])], most=20)
        expected = f"at most {limit} requests in flight, by shares of the tasks: {shares}"
        over = [task for task, most in enumerate(most_at_once) if most > allowed.get(task, 0)]
        if not over:
            text = (
                f"at most {max(most_at_once)} requests in flight in a task, of "
                f"{max(allowed.values())} allowed"
            )
            return Finding(True, text, 0, len(most_at_once), expected)
        tasks = counted(len(over), "task")
        first = f"{most_at_once[over[0]]} in task {over[0]}, {allowed.get(over[0], 0)} allowed"
        text = f"{tasks} had more requests in flight than their share: {first}"
        return Finding(False, text, len(over), len(most_at_once), expected)

    def _largest(self, facts: DayFacts) -> dict[int, int]:
        largest = dict(enumerate(facts.shares[self.number]))
        for given in _given_to_writers(facts):
            largest[given.task] = max(given.shares[self.number], largest.get(given.task, 0))
        return largest

    def _given_too_much(self, facts: DayFacts) -> str | None:
        """Return a sentence if the shares together ever exceeded their first sum."""
        now: dict[tuple[int, int | None], int] = {
            (task, None): share for task, share in enumerate(facts.shares[self.number])
        }
        allowed = sum(now.values())
        for given in facts.shares_given:
            now.pop((given.task, None), None)  # what was reserved until the task's first attempt
            now[given.task, given.attempt] = given.shares[self.number]
            if (together := sum(now.values())) > allowed:
                return (
                    f"the tasks had shares of {together} calls in flight together, {allowed} "
                    "allowed"
                )
        return None


def _given_to_writers(facts: DayFacts) -> Iterator[ShareGiven]:
    """Yield the shares of the attempts that wrote the day's files."""
    for given in facts.shares_given:
        if not facts.attempts or given.attempt == facts.attempts[given.task]:
            yield given


class InFlight:
    """Counts a task's attempts in flight whenever an attempt starts or ends or the share changes.

    A moment is an edge: twice its µs, plus 1 for a start. Thus an end precedes a start of the same
    µs: the slot was free by then.
    """

    def __init__(self, starts: Floats, ends: Floats, allowed: tuple[Places, Places]) -> None:
        self._since, self._allowed = allowed
        self.starts = np.sort(starts[~np.isnan(starts)].astype(np.int64) * 2 + 1)
        self._ends = np.sort(ends[~np.isnan(ends)].astype(np.int64) * 2)
        in_flight, share = self._at(np.concatenate([self.starts, self._since]))
        self.most = int(in_flight[: len(self.starts)].max(initial=0))
        self.over = int((in_flight - share).max(initial=0))

    def at_starts(self, starts: Floats) -> tuple[Places, Places]:
        return self._at(np.nan_to_num(starts).astype(np.int64) * 2 + 1)

    def _at(self, edges: Places) -> tuple[Places, Places]:
        """Return the numbers in flight and allowed at these moments."""
        begun = np.searchsorted(self.starts, edges, "right")
        ended = np.searchsorted(self._ends, edges, "right")
        share = self._allowed[np.searchsorted(self._since, edges, "right") - 1]
        return begun - ended, share


def _each_once(rows: TaskRows, calls: Calls) -> Places:
    """Return the first of the rows with the same identity and attempts."""
    file = rows.column(SOURCE_FILE)
    codes = (
        (file if hasattr(file, "indices") else file.dictionary_encode())
        .indices.fill_null(-1)
        .to_numpy()
    )
    same = [codes, rows.source_rows, calls.counts, calls.begun, calls.ended]
    found: Places = np.unique(np.column_stack(same), axis=0, return_index=True)[1]
    return found
