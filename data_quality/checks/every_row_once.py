"""Checks that every input row is in the files exactly once, by source file and row number."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from data_quality.check import Check
from data_quality.findings import ROWS_OF_EVIDENCE, Finding
from data_quality.rows.input_rows import by_file
from data_quality.rows.task_rows import Floats, Places, TaskRows, whole_number
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import readable_rows
from jobs.schema.columns import (
    INPUT_SEQ,
    OUTPUT_SEQ,
    PARTITION,
    SOURCE_FILE,
    SOURCE_IDENTITY,
    SOURCE_ROW,
)
from jobs.schema.facts import plain
from jobs.storage.urls import path_from_spark
from jobs.wording import counted


@dataclass(frozen=True)
class Runs:
    """The row numbers of one input file in a part of a task, as runs without a gap."""

    firsts: Places
    lasts: Places
    count: int  # rows; more than in the runs if a row is duplicated

    @classmethod
    def of(cls, numbers: Places) -> Self:
        # without counts it hashes: 30 times as slow
        ordered, _ = np.unique(numbers, return_counts=True)
        breaks = np.flatnonzero(np.diff(ordered) != 1)
        return cls(
            ordered[np.append(0, breaks + 1)],
            ordered[np.append(breaks, len(ordered) - 1)],
            len(numbers),
        )

    @property
    def is_once(self) -> bool:
        return int((self.lasts - self.firsts + 1).sum()) == self.count


class EveryRowOnce(Check):
    name = "every_row_once"
    promise = "Every row of the input is in the files exactly once: none lost, none duplicated."
    expected = "each row of the input exactly once, by source file and row number"
    needs = SOURCE_IDENTITY

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> dict[str, Runs]:
        return {
            path_from_spark(uri or ""): Runs.of(rows.source_rows[at])
            for uri, at in by_file(rows).items()
        }

    def finding(self, parts: list[dict[str, Runs]], day: WrittenDay) -> Finding:
        rows_in = day.input.rows
        rows_out = sum(runs.count for part in parts for runs in part.values())
        written = {path for part in parts for path in part}
        wrong = [
            path
            for path in sorted(written | day.input.counts.keys())
            if path not in day.input.counts
            or not _are_all([part[path] for part in parts if path in part], day.input.counts[path])
        ]
        if not wrong:
            holds = (
                f"{counted(rows_in, 'row')} in, {counted(rows_out, 'row')} out, each exactly once"
            )
            return Finding(True, holds, 0, rows_in, self.expected)
        return self._named(wrong, parts, day)

    def _named(self, paths: list[str], parts: list[dict[str, Runs]], day: WrittenDay) -> Finding:
        """Read the rows of each of these input files again."""
        places = [
            name for name in (PARTITION, INPUT_SEQ, OUTPUT_SEQ) if name in day.output.columns.names
        ]
        counts: Counter[str] = Counter()
        shown: list[dict[str, Any]] = []
        for path in paths:
            reads = zip(day.output.parts(), parts, strict=True)
            table = _gathered(path, [read for read, part in reads if path in part], places)
            numbers, times = np.unique(table[:, 0].astype(np.int64), return_counts=True)
            lost = np.ones(day.input.counts.get(path, 0), np.bool_)
            known = (numbers >= 0) & (numbers < len(lost))
            lost[numbers[known]] = False
            doubled, foreign = numbers[known & (times > 1)], numbers[~known]
            counts.update(lost=int(lost.sum()), doubled=len(doubled), foreign=len(foreign))
            wrong = np.sort(np.concatenate([np.flatnonzero(lost), doubled, foreign]))
            for number in wrong[: ROWS_OF_EVIDENCE - len(shown)]:
                copies = table[table[:, 0] == number]
                at = (
                    dict(zip(places, copies[:, 1:].min(axis=0), strict=True)) if len(copies) else {}
                )
                shown.append(self._shown(day, path, int(number), len(copies), at))
        faults = [f"{counted(counts['lost'], 'row')} lost", f"{counts['doubled']:,} duplicated"]
        if counts["foreign"]:
            faults.append(f"{counted(counts['foreign'], 'row')} that the input does not have")
        finding = Finding(False, ", ".join(faults), counts.total(), day.input.rows, self.expected)
        return finding.with_evidence(shown, self.declared)

    def _shown(
        self, day: WrittenDay, path: str, number: int, times: int, at: dict[str, float]
    ) -> dict[str, Any]:
        is_in_input = 0 <= number < day.input.counts.get(path, 0)
        given = readable_rows(day.input.read(path, number, number))[0] if is_in_input else {}
        row_id = {
            name: given.get(name) for name in day.declared.row_id if name in day.input.columns.names
        }
        counts = {
            SOURCE_FILE: path,
            SOURCE_ROW: number,
            "times_in_input": int(is_in_input),
            "times_in_files": times,
        }
        shown: dict[str, Any] = plain(
            row_id | counts | {name: whole_number(value) for name, value in at.items()}
        )
        return shown


def _gathered(path: str, reads: list[Callable[[], TaskRows]], places: list[str]) -> Floats:
    """Return the row numbers of an input file that these parts have, with these columns."""
    found = [np.zeros((0, 1 + len(places)))]
    for read in reads:
        task = read()
        columns = np.column_stack([task.source_rows, *(task.numbers(name) for name in places)])
        found += [
            columns[at] for uri, at in by_file(task).items() if path_from_spark(uri or "") == path
        ]
    return np.concatenate(found)


def _are_all(runs: list[Runs], count: int) -> bool:
    if not count:
        return not runs
    firsts = np.sort(np.concatenate([run.firsts for run in runs] or [np.zeros(0, np.int64)]))
    lasts = np.sort(np.concatenate([run.lasts for run in runs] or [np.zeros(0, np.int64)]))
    in_turn = (
        len(firsts) > 0
        and firsts[0] == 0
        and lasts[-1] == count - 1
        and (firsts[1:] == lasts[:-1] + 1).all()
    )
    return bool(in_turn) and all(run.is_once for run in runs)
