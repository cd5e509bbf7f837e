"""Checks the time limit by each row's clock, which stops while its gate is closed."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from data_quality.check import LookupCheck
from data_quality.findings import Finding
from data_quality.rows.task_rows import Faults, Flags, Floats, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from jobs.wording import counted

WITHOUT_FALLBACK = ("http", "sql")  # kinds of lookups
TICK_MS = 1.0  # tolerance for two rounded readings of the same clock


@dataclass(frozen=True)
class Times:
    """The times of some rows in ms; None if missing."""

    faults: Faults
    rows: int
    slowest: float | None  # by the row's clock
    slowest_whole: float | None  # including the time of a closed gate
    earliest_timeout: float | None


class TimeLimitHeld(LookupCheck):
    name = "time_limit_held"

    @property
    def wanted(self) -> bool:
        return self.lookup.timeout is not None

    @property
    def promise(self) -> str:
        limit = f"{self.lookup.timeout:g} s"
        slack = f"{self.declared.time_slack:g} s"
        return (
            f"No row took longer than {limit} (+ {slack}); every row that timed out waited {limit}."
        )

    @property
    def shown(self) -> list[str]:
        columns = (schema.status, schema.latency_ms, schema.paused_ms, schema.attempts)
        return [column(self.lookup.name) for column in columns]

    @property
    def needs(self) -> tuple[str, ...]:
        return (*self.shown, self.source)

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> Times:
        timed_out = rows.one_of(self.status, "timeout")
        latency = rows.numbers(schema.latency_ms(self.lookup.name))
        own = latency - self._paused(rows)
        ended = ~timed_out & ~rows.is_null(self.status)
        return Times(
            self.faults(rows, self._at_fault(rows, timed_out, ended, own), self.shown),
            len(rows),
            _largest(own[ended]),
            _largest(latency[ended]),
            None if (earliest := _largest(-own[timed_out])) is None else -earliest,
        )

    def _paused(self, rows: TaskRows) -> Floats:
        return np.nan_to_num(
            rows.numbers(schema.paused_ms(self.lookup.name)), nan=0.0, posinf=np.inf
        )

    def _at_fault(self, rows: TaskRows, timed_out: Flags, ended: Flags, own: Floats) -> Flags:
        limit, slack = (self.lookup.timeout or 0.0) * 1000, self.declared.time_slack * 1000
        latency, paused = rows.numbers(schema.latency_ms(self.lookup.name)), self._paused(rows)
        calls = rows.calls(self.lookup.name)
        called, in_calls = calls.counts > 0, (calls.ended - calls.begun) / 1000
        # ended with another row's call, after its attempts
        joined = rows.one_of(self.source, "shared")
        wrong = ended & ((own > limit + slack) | (in_calls - paused > limit + slack))
        wrong |= ended & called & (np.isnan(latency) | (~joined & (latency > in_calls + slack)))
        wrong |= self._ended_with_call(rows) & called & (latency > in_calls + TICK_MS)
        wrong |= called & (latency < in_calls - TICK_MS)
        wrong |= timed_out & ~joined & ((own < limit - TICK_MS) | np.isnan(latency))
        wrong |= (paused < 0) | (paused > latency + TICK_MS)
        return wrong

    def _ended_with_call(self, rows: TaskRows) -> Flags:
        """Return the rows that ended with their call; a fallback may end a row between two."""
        own = self.answered_by_call(rows)
        if self.lookup.kind in WITHOUT_FALLBACK:
            own = own | (rows.one_of(self.status, "error") & rows.is_null(self.source))
        return own

    def finding(self, parts: list[Times], _day: WrittenDay) -> Finding:
        faults = Faults.together(part.faults for part in parts)
        count = sum(part.rows for part in parts)
        slowest = _highest(part.slowest for part in parts)
        whole = _highest(part.slowest_whole for part in parts)
        earliest = min(
            (ms for part in parts if (ms := part.earliest_timeout) is not None), default=None
        )
        limit = f"{self.lookup.timeout:g} s + {self.declared.time_slack:g} s"
        holds = []
        if slowest is not None:
            holds.append(f"slowest row {slowest / 1000:.3f} s of {limit}")
        # only if it differs: then the charts show this time
        if slowest is not None and whole is not None and whole - slowest >= 1:
            holds.append(f"{whole / 1000:.3f} s including the closed gate, as in the charts")
        if earliest is not None:
            holds.append(f"timeouts after {earliest / 1000:.3f} s or more")
        wrong = (
            f"{counted(faults.count, 'row')} over {limit}, timed out before it, or with a latency "
            "that contradicts their attempts; most often a function blocks the event loop of its "
            "task, which the log names with its place"
        )
        return self.conclude(
            faults,
            count,
            holds=", ".join(holds) or "no row made a call",
            wrong=wrong,
            expected=f"at most {limit}; timeouts not before",
        )


def _highest(times: Iterable[float | None]) -> float | None:
    return max((time for time in times if time is not None), default=None)


def _largest(values: Floats) -> float | None:
    values = values[~np.isnan(values)]
    return float(values.max()) if len(values) else None
