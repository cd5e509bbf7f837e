"""Checks that answers have the declared columns, types and ranges, and few enough nulls."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_quality.check import Cure, LookupCheck, count_outcomes, total
from data_quality.findings import Finding, share
from data_quality.rows.column_types import declared_name, spark_name
from data_quality.rows.task_rows import Faults, Flags, TaskRows, as_numbers, flags
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import is_number
from jobs.schema.columns import HAS_ANSWER, OUTCOMES
from jobs.wording import counted, percent, rounded

EXACT = 15  # digits of a float


class AnswersInRange(LookupCheck):
    name = "answers_in_range"
    promise = (
        "Answers have the declared columns and types, are in range, are null no more often than "
        "declared, and occur only in rows with an answer."
    )
    cure = Cure.REFRESH

    @property
    def shown(self) -> list[str]:
        # first, because a sentence names only the first columns
        bounded = [column for column, _, _ in self.lookup.ranges]
        return list(dict.fromkeys([*bounded, self.status, *self.lookup.columns]))

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(self.shown)

    def summarize(
        self, rows: TaskRows, _day: WrittenDay
    ) -> tuple[Counter[Any], Faults, dict[str, Faults]]:
        nulls = {
            column: self.faults(
                rows, rows.one_of(self.status, "ok") & rows.is_null(column), [self.status, column]
            )
            for column, _ in self.lookup.null_share
        }
        return (
            count_outcomes(rows, self.lookup),
            self.faults(rows, self._at_fault(rows), self.shown),
            nulls,
        )

    def _at_fault(self, rows: TaskRows) -> Flags:
        # outcomes_add_up judges rows without a known outcome.
        unanswered = rows.one_of(
            self.status, *(known for known in OUTCOMES if known not in HAS_ANSWER)
        )
        wrong = np.zeros(len(rows), np.bool_)
        for column in self.lookup.columns:
            wrong |= unanswered & ~rows.is_null(column)
        for column, lowest, highest in self.lookup.ranges:
            kind = rows.column(column).type
            if not is_number(kind):
                continue  # the finding reports a wrong type for the whole day
            values = rows.numbers(column)
            if pa.types.is_decimal(kind) or pa.types.is_float32(kind):
                # by the digits shown: as a double, a FLOAT of 0.1 and a DECIMAL of 6.3 are larger
                values = as_numbers(rows.column(column).cast(pa.string()).cast(pa.float64()))
            if pa.types.is_floating(kind):
                wrong |= np.isposinf(values) & flags(rows.column(column).is_nan())
            if lowest is not None:
                wrong |= values < lowest
            if highest is not None:
                wrong |= values > highest
        return wrong

    def finding(
        self, parts: list[tuple[Counter[Any], Faults, dict[str, Faults]]], day: WrittenDay
    ) -> Finding:
        counts = total([part[0] for part in parts])
        faults = Faults.together(part[1] for part in parts)
        ranges = [f"{column} {_bounds(low, high)}" for column, low, high in self.lookup.ranges]
        expected = "; ".join(
            [", ".join(f"{column} {kind}" for column, kind in self.lookup.returns), *ranges]
        )
        if parts and (wrong_types := "; ".join(self._wrong_types(day.output.columns))):
            return Finding(False, wrong_types, counts.total(), counts.total(), expected)
        bounds = f" ({', '.join(ranges)})" if ranges else ""
        found = self.conclude(
            faults,
            counts.total(),
            holds=f"all answers of {counted(counts.total(), 'row')} as declared",
            wrong=f"{counted(faults.count, 'row')} with an answer out of range{bounds} or out of "
            "place",
            expected=expected,
        )
        if not found.success:
            return found
        return (
            self._too_many_nulls([part[2] for part in parts], counts["ok"], expected, day) or found
        )

    def _wrong_types(self, columns: pa.Schema) -> Iterator[str]:
        for column, ddl in self.lookup.returns:
            kind = spark_name(columns.field(column).type)
            if declared_name(kind) != declared_name(ddl):
                yield f"{column} is {kind}, declared {declared_name(ddl)}"

    def _too_many_nulls(
        self, parts: list[dict[str, Faults]], answers: int, expected: str, day: WrittenDay
    ) -> Finding | None:
        """Return a red finding if a column has too many nulls, as a share of the whole table."""
        kept = self._kept_nulls(day)
        for column, tolerated in self.lookup.null_share:
            nulls = Faults.together(part[column] for part in parts)
            count, every = nulls.count + kept[column], answers + kept["ok"]
            found = share(count, every)
            if found > tolerated:
                text = (
                    f"{column} is null in {percent(found)} of {every:,} answers; tolerated "
                    f"{percent(tolerated)}"
                )
                return Finding(False, text, count, every, expected).with_evidence(
                    nulls.evidence, self.declared
                )
        return None

    def _kept_nulls(self, day: WrittenDay) -> Counter[str]:
        """Count answers (as `ok`) and nulls by column in rows that are published unchanged."""
        columns, found = [column for column, _ in self.lookup.null_share], Counter[str]()
        for kept in day.kept_rows([self.status, *columns]) if columns else ():
            answered = kept.filter(pc.equal(kept[self.status], "ok"))
            found["ok"] += answered.num_rows
            found.update({column: answered[column].null_count for column in columns})
        return found


def _bounds(lowest: float | None, highest: float | None) -> str:
    low, high = ("" if bound is None else rounded(bound, EXACT) for bound in (lowest, highest))
    return f"{low} .. {high}" if low and high else f">= {low}" if low else f"<= {high}"
