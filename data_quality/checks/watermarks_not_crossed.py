"""Checks that no row crosses a watermark, and that watermarks are where event times put them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from data_quality.checks.event_time_check import EventTimeCheck
from data_quality.checks.in_turn import gone_back, out_of_place
from data_quality.findings import Finding
from data_quality.rows.task_rows import Faults, TaskRows
from data_quality.rows.watermarks import TrueMarks
from jobs.schema.columns import OUTPUT_SEQ, SEGMENT
from jobs.wording import counted


@dataclass(frozen=True)
class Segments:
    """A task's rows.

    Attributes:
        rows: Their number.
        last: The highest segment.
        gaps: The number of missing input_seq: rows that the files lost.
        wrong: The number of rows at fault, each counted once.
        crossed: How many are on the wrong side of a watermark.
        claimed: How many have an output_seq that differs from the files.
        moved: The rows to remove so that none is on the wrong side.
        misplaced: The rows that are not in the segment that the event times give.
        moved_claims: The rows to remove so that output_seq grows.
    """

    rows: int
    last: int
    gaps: int
    wrong: int
    crossed: int
    claimed: int
    moved: Faults
    misplaced: Faults
    moved_claims: Faults


class WatermarksNotCrossed(EventTimeCheck):
    name = "watermarks_not_crossed"
    promise = "No row crosses a watermark, and the watermarks are where the event times put them."

    def judged(self, rows: TaskRows, marks: TrueMarks) -> Segments:
        segment = rows.numbers(SEGMENT)
        crossed = gone_back(segment)
        # In other modes order_held judges output_seq.
        unordered = self.declared.mode == "unordered"
        claimed = (
            gone_back(rows.numbers(OUTPUT_SEQ)) if unordered else np.zeros(len(rows), np.bool_)
        )

        def truth(place: int) -> dict[str, Any]:
            return {f"true{SEGMENT}": int(marks.segment[place])}

        none = Faults(0)
        misplaced = segment != marks.segment
        return Segments(
            rows=len(rows),
            last=int(np.nan_to_num(segment).max(initial=0)),
            gaps=marks.gaps,
            wrong=int((crossed | claimed | misplaced).sum()),
            crossed=int(crossed.sum()),
            claimed=int(claimed.sum()),
            moved=out_of_place(self, rows, SEGMENT) if crossed.any() else none,
            misplaced=self.faults(rows, misplaced, [SEGMENT, self.event_time.column], truth),
            moved_claims=out_of_place(self, rows, OUTPUT_SEQ) if claimed.any() else none,
        )

    def compared(self, parts: list[Segments]) -> Finding:
        count = sum(part.rows for part in parts)
        crossed, claimed = sum(part.crossed for part in parts), sum(part.claimed for part in parts)
        misplaced = Faults.together(part.misplaced for part in parts)
        segments = max((part.last for part in parts), default=0) + 1
        wrong = [
            f"{counted(crossed, 'row')} on the wrong side of a watermark" if crossed else "",
            f"{counted(misplaced.count, 'row')} in a segment other than by event time"
            if misplaced.count
            else "",
            f"{counted(claimed, 'row')} whose output_seq differs from the files" if claimed else "",
        ]
        found = Finding.judged(
            f"{counted(count, 'row')} of {len(parts)} tasks, up to {segments:,} segments in one, "
            "none crossed",
            ", ".join(text for text in wrong if text),
            sum(part.wrong for part in parts),
            count,
            "segments never go back along the files, and begin where the largest event time grows",
        )
        if crossed:
            return found.with_evidence(
                Faults.together(part.moved for part in parts).evidence, self.declared
            )
        shown = (
            misplaced if misplaced.count else Faults.together(part.moved_claims for part in parts)
        )
        return found.with_evidence(shown.evidence, self.declared)
