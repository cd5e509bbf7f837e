"""Compares the answers of each column with those of earlier published days."""

import pyarrow as pa

from data_quality.check import Cure, LookupCheck
from data_quality.findings import Finding
from data_quality.history import DAYS_OF_HISTORY
from data_quality.rows.answer_sketch import (
    FEWEST_ANSWERS,
    Sketch,
    draw_sample,
    largest_change,
    sketch_answers,
)
from data_quality.rows.task_rows import TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.wording import percent

FEWEST_DAYS = 7


class AnswersUsual(LookupCheck):
    name = "answers_usual"
    severity = "warn"
    cure = Cure.REFRESH
    whole_day = True

    @property
    def wanted(self) -> bool:
        return self.declared.answer_change is not None

    @property
    def promise(self) -> str:
        change = f"{self.declared.answer_change:g}"
        return (
            f"Among the answers of calls, no column's share of nulls or of a value differs by more "
            f"than {change} from the last {DAYS_OF_HISTORY} days."
        )

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.status, self.source, *self.lookup.columns)

    def summarize(self, rows: TaskRows, day: WrittenDay) -> pa.Table:
        return draw_sample(rows, self.lookup, day)

    def finding(self, parts: list[pa.Table], day: WrittenDay) -> Finding:
        answers = sum(part.num_rows for part in parts)
        if answers < FEWEST_ANSWERS:
            return Finding(True, f"{answers} answers by call, too few to compare", 0, answers)
        now = sketch_answers(parts, self.lookup, day.facts.day)
        before = {column: self._earlier(column, sketch, day) for column, sketch in now.items()}
        changes = {
            column: largest_change(sketch, before[column], self.declared.answer_change or 0.0)
            for column, sketch in now.items()
            if len(before[column]) >= FEWEST_DAYS
        }
        if not changes:
            days = max(map(len, before.values()), default=0)
            return Finding.without_history(f"{days} earlier days; {FEWEST_DAYS} are needed")
        column, *others = sorted(changes, key=lambda name: -changes[name].excess)
        change, also = changes[column], [name for name in others if changes[name].excess > 0]
        text = (
            f"{percent(change.now)} of {answers:,} answers by call {change.what} in {column}; "
            f"{percent(change.usual)} on the {len(before[column])} days before"
        )
        text += f"; also changed: {', '.join(also)}" if also else ""
        low, high = change.usual - change.tolerated, change.usual + change.tolerated
        held = change.excess <= 0
        count = 0 if held else round(abs(change.now - change.usual) * answers)
        return Finding(held, text, count, answers, f"{low:.4f} .. {high:.4f}")

    def _earlier(self, column: str, now: Sketch, day: WrittenDay) -> list[Sketch]:
        """Return the sketches of the column on earlier days, oldest first."""
        days = [earlier.sketches.get(self.lookup.name, {}) for earlier in day.earlier.values()]
        known = [sketches[column] for sketches in reversed(days) if column in sketches]
        return [
            sketch
            for sketch in known
            if sketch["type"] == now["type"] and sketch["answers"] >= FEWEST_ANSWERS
        ]
