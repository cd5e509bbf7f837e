"""Checks the order that the mode promises, by each row's place in the input of its task."""

import itertools
from dataclasses import dataclass

import numpy as np

from data_quality.check import Check, Takes
from data_quality.checks.in_turn import gone_back, out_of_place
from data_quality.findings import Finding
from data_quality.rows.task_rows import Faults, Places, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import digest, plus_zero
from jobs.schema.columns import INPUT_SEQ, OUTPUT_SEQ, PARTITION, SEGMENT
from jobs.wording import counted


@dataclass(frozen=True)
class Order:
    """Some rows of a task.

    Attributes:
        wrong: Rows at fault, each counted once.
        inverted: Rows behind a row that they must precede.
        claimed: Rows whose output_seq differs from the files.
        ends: INPUT_SEQ and OUTPUT_SEQ of the first row, and of the last.
    """

    task: int
    rows: int
    wrong: int
    inverted: int
    claimed: int
    ends: tuple[tuple[float, float], tuple[float, float]]


class OrderHeld(Check):
    name = "order_held"

    @property
    def wanted(self) -> bool:
        return self.declared.mode != "unordered"

    @property
    def key(self) -> tuple[str, ...]:
        return self.declared.order_key if self.declared.mode == "key_ordered" else ()

    @property
    def promise(self) -> str:
        if not self.key:
            return "Within a task, the rows of the files are in the order of the input."
        key = ", ".join(self.key)
        return (
            f"Within a task and a segment, rows with the same {key} are in the order of the input."
        )

    @property
    def needs(self) -> tuple[str, ...]:
        return (PARTITION, INPUT_SEQ, OUTPUT_SEQ, SEGMENT, *self.key)

    @property
    def takes(self) -> Takes:
        return Takes.TASKS if self.key else Takes.PARTS

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> Order | None:
        if not len(rows):
            return None
        seq, claims = rows.numbers(INPUT_SEQ), rows.numbers(OUTPUT_SEQ)
        inverted, claimed = gone_back(seq, self._among(rows)), gone_back(claims)
        return Order(
            task=rows.task,
            rows=len(rows),
            wrong=int((inverted | claimed).sum()),
            inverted=int(inverted.sum()),
            claimed=int(claimed.sum()),
            ends=((float(seq[0]), float(claims[0])), (float(seq[-1]), float(claims[-1]))),
        )

    def _among(self, rows: TaskRows) -> Places | None:
        """Return equal numbers for rows that must keep their mutual order; None if all must."""
        if not self.key:
            return None
        keys = (plus_zero(rows.column(name)) for name in self.key)
        numbers = digest([rows.column(SEGMENT), *keys])
        found: Places = np.unique(numbers, return_inverse=True)[1]
        return found

    def finding(self, parts: list[Order | None], day: WrittenDay) -> Finding:
        some = [part for part in parts if part is not None]
        count = sum(part.rows for part in some)
        wrong = sum(part.wrong for part in some)
        inverted = sum(part.inverted for part in some)
        claimed = sum(part.claimed for part in some)
        for before, after in itertools.pairwise(some):
            if before.task == after.task:
                is_inverted = before.ends[1][0] > after.ends[0][0]
                is_claimed = before.ends[1][1] > after.ends[0][1]
                inverted, claimed = inverted + is_inverted, claimed + is_claimed
                wrong += is_inverted or is_claimed
        among = (
            f"rows of the same {', '.join(self.key)} in a segment"
            if self.key
            else "the rows of a task"
        )
        found = Finding.judged(
            f"{counted(count, 'row')} of {len({part.task for part in some})} tasks in order",
            f"{counted(inverted, 'row')} out of order, {claimed:,} whose output_seq differs from "
            "the files",
            wrong,
            count,
            f"in the files, {among} follow their input_seq; output_seq follows the files",
        )
        if found.success:
            return found

        def moved(task: TaskRows, _day: WrittenDay) -> Faults:
            column, groups = (INPUT_SEQ, self._among(task)) if inverted else (OUTPUT_SEQ, None)
            is_moved = gone_back(task.numbers(column), groups).any()
            return out_of_place(self, task, column, groups) if is_moved else Faults(0)

        tasks = day.each(moved, day.output.tasks(self.reads))
        return found.with_evidence(Faults.together(tasks).evidence, self.declared)
