"""Checks that exactly the late rows by event time are marked late."""

from dataclasses import dataclass
from typing import Any

from data_quality.checks.event_time_check import EventTimeCheck
from data_quality.findings import Finding
from data_quality.rows.task_rows import Faults, TaskRows, flags
from data_quality.rows.watermarks import TrueMarks
from jobs.schema.columns import LATE
from jobs.wording import counted


@dataclass(frozen=True)
class LateRows:
    rows: int
    marked: int
    gaps: int
    mismarked: Faults


class LateRowsMarked(EventTimeCheck):
    name = "late_rows_marked"
    promise = "Exactly the rows that are late by their event times are marked late."

    def judged(self, rows: TaskRows, marks: TrueMarks) -> LateRows:
        marked = flags(rows.column(LATE))

        def truth(place: int) -> dict[str, Any]:
            return {f"true{LATE}": bool(marks.late[place])}

        wrong = (marked != marks.late) | rows.is_null(LATE)
        mismarked = self.faults(rows, wrong, [LATE, self.event_time.column], truth)
        return LateRows(len(rows), int(marked.sum()), marks.gaps, mismarked)

    def compared(self, parts: list[LateRows]) -> Finding:
        count, marked = sum(part.rows for part in parts), sum(part.marked for part in parts)
        mismarked = Faults.together(part.mismarked for part in parts)
        bound = f"{round(self.event_time.max_out_of_orderness * 1000) / 1000:g} s"
        return self.conclude(
            mismarked,
            count,
            holds=f"{counted(marked, 'row')} late of {count:,}, each marked",
            wrong=f"{counted(mismarked.count, 'row')} marked wrongly by their event times",
            expected="late: event time at or before the last watermark before it, "
            f"{bound} behind the largest",
        )
