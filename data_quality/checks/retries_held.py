"""Checks the number of attempts and the pauses between them.

A throttled attempt uses no retry, and the service, not the declaration, sets the pause after it.
"""

import numpy as np

from data_quality.check import LookupCheck
from data_quality.checks.time_limit_held import TICK_MS
from data_quality.findings import Finding
from data_quality.rows.task_rows import Calls, Faults, Flags, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.wording import counted


class RetriesHeld(LookupCheck):
    name = "retries_held"

    @property
    def promise(self) -> str:
        attempts = counted(1 + self.lookup.retries, "attempt")
        return (
            f"No row made more than {attempts}, and each pause between them was as long as "
            "declared."
        )

    @property
    def needs(self) -> tuple[str, ...]:
        return self.status, self.attempts

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> tuple[Faults, int, int]:
        calls = rows.calls(self.lookup.name)
        wrong = self._at_fault(calls)
        return (
            self.faults(rows, wrong, list(self.needs)),
            len(rows),
            int(calls.counts.max(initial=0)),
        )

    def _at_fault(self, calls: Calls) -> Flags:
        wrong = np.zeros(len(calls.counts), np.bool_)
        wrong[calls.rows[calls.ends < calls.starts]] = True
        again = np.flatnonzero(np.diff(calls.rows, prepend=-1) == 0)  # attempts after a row's first
        uses_up = (~calls.throttled).astype(np.int64)
        used = np.cumsum(uses_up)
        # of the row, up to and including each attempt
        used = used - (used - uses_up)[calls.firsts[calls.rows]]
        pauses = np.array([*self._pauses_us(int(calls.counts.max(initial=1))), 0])
        pause = np.where(
            calls.throttled[again - 1], 0, pauses[np.clip(used[again - 1], 1, len(pauses)) - 1]
        )
        too_soon = calls.starts[again] - calls.ends[again - 1] < pause - int(TICK_MS * 1000)
        wrong[calls.rows[again[too_soon]]] = True
        repeated = calls.counts > 1
        wrong[repeated] |= (
            used[(calls.firsts + calls.counts - 1)[repeated]] > 1 + self.lookup.retries
        )
        return wrong

    def _pauses_us(self, attempts: int) -> list[float]:
        """Return the shortest pause after each of a row's first attempts, at most so many."""
        lookup, pauses = self.lookup, [self.lookup.initial_delay]
        retries = min(lookup.retries, attempts)  # those declared may be more than memory holds
        for _ in range(retries - 1):  # inf if it overflows, where a power would raise
            pauses.append(pauses[-1] * lookup.multiplier)
        return [min(lookup.max_delay, pause) * 1_000_000 for pause in pauses[:retries]]

    def finding(self, parts: list[tuple[Faults, int, int]], _day: WrittenDay) -> Finding:
        faults, count = Faults.together(part[0] for part in parts), sum(part[1] for part in parts)
        most = max((part[2] for part in parts), default=0)
        pauses = f"pauses of {self.lookup.initial_delay:g} s or more"
        return self.conclude(
            faults,
            count,
            holds=f"at most {counted(most, 'attempt')} a row, throttled ones included; all pauses "
            "as declared",
            wrong=f"{counted(faults.count, 'row')} with an attempt too many or too soon",
            expected=f"at most {1 + self.lookup.retries}, throttled ones aside; {pauses}",
        )
