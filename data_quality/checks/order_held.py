"""Checks the order that the mode promises, by each row's place in the input of its task."""

from dataclasses import dataclass

import numpy as np

from data_quality.check import Check
from data_quality.findings import Finding, rows
from data_quality.in_turn import gone_back, out_of_place
from data_quality.rows.run_output import Faults, Places, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import digest
from jobs.schema.columns import INPUT_SEQ, OUTPUT_SEQ, PARTITION, SEGMENT


@dataclass(frozen=True)
class Order:
    rows: int
    inverted: int
    claimed: int  # rows whose output_seq differs from the files
    moved: Faults
    moved_claims: Faults


class OrderHeld(Check):
    name = "order_held"
    whole_tasks = True
    red_when = (
        "`ordered`: the rows of a task do not follow the order of the input; `key_ordered`: the "
        "rows of one key in one"
        " segment do not; or `_output_seq` differs from the files"
    )

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

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> Order:
        among = self._among(rows)
        inverted, claimed = (
            gone_back(rows.numbers(INPUT_SEQ), among),
            gone_back(rows.numbers(OUTPUT_SEQ)),
        )
        none = Faults(0)
        return Order(
            len(rows),
            int(inverted.sum()),
            int(claimed.sum()),
            out_of_place(self, rows, INPUT_SEQ, among) if inverted.any() else none,
            out_of_place(self, rows, OUTPUT_SEQ) if claimed.any() else none,
        )

    def _among(self, rows: TaskRows) -> Places | None:
        """Returns equal numbers for rows that must keep their mutual order; None if all must."""
        if not self.key:
            return None
        numbers = digest([rows.column(SEGMENT), *(rows.column(name) for name in self.key)])
        found: Places = np.unique(numbers, return_inverse=True)[1]
        return found

    def finding(self, parts: list[Order], _day: WrittenDay) -> Finding:
        count = sum(part.rows for part in parts)
        inverted, claimed = (
            sum(part.inverted for part in parts),
            sum(part.claimed for part in parts),
        )
        among = (
            (f"rows of the same {', '.join(self.key)} in a segment")
            if self.key
            else "the rows of a task"
        )
        found = Finding.judged(
            f"{rows(count)} of {len(parts)} tasks in order",
            f"{rows(inverted)} out of order, {claimed:,} whose output_seq differs from the files",
            inverted + claimed,
            count,
            f"in the files, {among} follow their input_seq; output_seq follows the files",
        )
        moved = [part.moved if inverted else part.moved_claims for part in parts]
        return found.with_evidence(Faults.together(moved).evidence)
