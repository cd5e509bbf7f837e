"""The base of the two checks that compare the rows' marks with their event times."""

from abc import abstractmethod
from typing import Any

from data_quality.check import Check, Takes
from data_quality.findings import Finding
from data_quality.rows.task_rows import TaskRows
from data_quality.rows.watermarks import TrueMarks, true_marks
from data_quality.rows.written_day import WrittenDay
from jobs.schema.columns import INPUT_SEQ, LATE, OUTPUT_SEQ, PARTITION, SEGMENT


class EventTimeCheck(Check):
    @property
    def takes(self) -> Takes:
        return Takes.TASKS

    @property
    def wanted(self) -> bool:
        return self.declared.event_time is not None

    @property
    def needs(self) -> tuple[str, ...]:
        return (PARTITION, INPUT_SEQ, OUTPUT_SEQ, SEGMENT, LATE, self.event_time.column)

    @abstractmethod
    def judged(self, rows: TaskRows, marks: TrueMarks) -> Any:
        """Compare the rows of a task with the true marks. Returns their gaps, too."""

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> Any:
        return self.judged(rows, rows.once("marks", lambda: true_marks(rows, self.event_time)))

    @abstractmethod
    def compared(self, parts: list[Any]) -> Finding:
        """Make the finding of tasks without gaps."""

    def finding(self, parts: list[Any], _day: WrittenDay) -> Finding:
        """Leave out tasks with lost rows, without which every later row would look wrong."""
        whole = [part for part in parts if not part.gaps]
        found = self.compared(whole)
        if found.success and len(whole) < len(parts):
            return Finding.not_run(
                f"{len(parts) - len(whole)} of {len(parts)} tasks lost rows, whose event times "
                "would move the watermarks; every_row_once names the rows"
            )
        return found
