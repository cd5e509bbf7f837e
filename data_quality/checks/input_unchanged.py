"""Checks that every carried value equals its input value, bit for bit."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from data_quality.check import Check, total
from data_quality.findings import Finding
from data_quality.rows.column_types import spark_name
from data_quality.rows.input_rows import with_input
from data_quality.rows.task_rows import Faults, Flags, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import differ, one_chunk, readable_values
from jobs.schema.columns import INPUT_SEQ, OUTPUT_SEQ, PARTITION, SOURCE_IDENTITY
from jobs.wording import counted


class InputUnchanged(Check):
    name = "input_unchanged"
    promise = "Every carried column of every row has its value of the input."
    expected = "every carried value as in the input"
    needs = SOURCE_IDENTITY

    def prepare(self, day: WrittenDay) -> None:
        columns = {field.name.lower(): field for field in day.output.columns}
        self._columns: list[tuple[str, str]] = []
        self._differs: list[str] = []
        for given in day.input.columns if len(day.output) else ():
            written = columns.get(given.name.lower())
            if given.name in SOURCE_IDENTITY:
                continue
            if written is None:
                self._differs.append(f"the files have no column {given.name}")
            elif unlike := day.output.unlike.get(written.name):
                self._differs.append(unlike)
            elif (kind := spark_name(written.type)) != (was := spark_name(given.type)):
                self._differs.append(f"{given.name} is {kind}, in the input {was}")
            else:
                self._columns.append((given.name, written.name))

    def summarize(self, rows: TaskRows, day: WrittenDay) -> tuple[Counter[str], Faults]:
        if self._differs:
            return Counter(), Faults(0)
        wrong = np.zeros(len(rows), np.bool_)
        changed: dict[str, Flags] = {}
        source: dict[str, dict[int, Any]] = {}
        for places, given in with_input(rows, day.input):
            for name, written in self._columns:
                column = one_chunk(given[name])
                other = differ(column, rows.column(written).take(pa.array(places)))
                if other.any():
                    changed.setdefault(name, np.zeros(len(rows), np.bool_))[places[other]] = True
                    wrong[places[other]] = True
            if wrong.any():
                for name in self._row_id(day):
                    source.setdefault(name, {}).update(
                        zip(places.tolist(), readable_values(given[name]), strict=True)
                    )
        at = [name for name in (PARTITION, INPUT_SEQ, OUTPUT_SEQ) if name in rows.names]

        def described(place: int) -> dict[str, Any]:
            row_id = {name: values[place] for name, values in source.items()}
            return row_id | {
                "differs": ", ".join(
                    name for name, _ in self._columns if name in changed and changed[name][place]
                )
            }

        counts = Counter({name: int(flags.sum()) for name, flags in changed.items()})
        return counts, rows.faults(wrong, [*SOURCE_IDENTITY, *at], described)

    def _row_id(self, day: WrittenDay) -> list[str]:
        return [
            name
            for name in day.declared.row_id
            if name in day.input.columns.names and name not in SOURCE_IDENTITY
        ]

    def finding(self, parts: list[tuple[Counter[str], Faults]], day: WrittenDay) -> Finding:
        count = day.input.rows
        if self._differs:
            return Finding(False, "; ".join(self._differs), count, count, self.expected)
        faults = Faults.together(part[1] for part in parts)
        counts = total([part[0] for part in parts])
        columns = counted(len(self._columns), "column")
        holds = f"{counted(count, 'row')}, {columns} as in the input"
        in_words = [f"{name} in {counts[name]:,}" for name, _ in self._columns if counts[name]]
        wrong = (
            f"{counted(faults.count, 'row')} with a value that differs from the input: "
            f"{', '.join(in_words[:5])}"
        )
        return self.conclude(faults, count, holds=holds, wrong=wrong, expected=self.expected)
