"""The base of the two checks that compare the rows' marks with their event times."""

from abc import abstractmethod
from typing import Protocol, TypeVar

import numpy as np

from data_quality.check import Check, Takes
from data_quality.rows.task_rows import TaskRows
from data_quality.rows.watermarks import NONE_LOST, TrueMarks, true_marks
from data_quality.rows.written_day import WrittenDay
from jobs.schema.columns import INPUT_SEQ, LATE, OUTPUT_SEQ, PARTITION, SEGMENT
from jobs.schema.records import EventTimeFacts


class Marked(Protocol):
    """The result of a task."""

    @property
    def gaps(self) -> int: ...


Part = TypeVar("Part", bound=Marked)


class EventTimeCheck(Check):
    @property
    def takes(self) -> Takes:
        return Takes.TASKS

    @property
    def wanted(self) -> bool:
        return self.declared.event_time is not None

    @property
    def event_time(self) -> EventTimeFacts:
        assert self.declared.event_time is not None
        return self.declared.event_time

    @property
    def needs(self) -> tuple[str, ...]:
        return (PARTITION, INPUT_SEQ, OUTPUT_SEQ, SEGMENT, LATE, self.event_time.column)

    @abstractmethod
    def judged(self, rows: TaskRows, marks: TrueMarks) -> Marked:
        """Compares the rows of a task with the true marks."""

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> Marked:
        return self.judged(rows, rows.once("marks", lambda: true_marks(rows, self.event_time)))

    def with_lost_rows(self, parts: list[Part], day: WrittenDay) -> list[Part]:
        """Judges tasks with lost rows again: without these every later row would look wrong."""
        if not any(part.gaps for part in parts):
            return parts
        lost = day.lost

        def again(rows: TaskRows, _day: WrittenDay) -> Part:
            task = int(np.nan_to_num(rows.numbers(PARTITION)[0], nan=-1))
            marks = true_marks(rows, self.event_time, lost.get(task, NONE_LOST))
            return self.judged(rows, marks)  # type: ignore[return-value]  # of the same check

        return day.each(again, day.output.tasks(self.reads))
