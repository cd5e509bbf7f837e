"""Finds columns that lost all their values, for example by a misspelt path."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from data_quality.check import LookupCheck, count_outcomes, count_values, total
from data_quality.day_names import DayName
from data_quality.findings import Finding
from data_quality.history import EarlierDay
from data_quality.rows.task_rows import TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.wording import counted, listed

FEWEST_VALUES = 20  # where so many are expected, none is a loss


class ColumnsFilled(LookupCheck):
    """Compares with the day as it is published, and with the last day before it.

    A column that never had a value, or few for the number of answers, holds no day back; nor does a
    column that lost its values by an unchanged path since the day before.
    """

    name = "columns_filled"
    promise = (
        "No column lost all the values that it had in the published day, or by another path on "
        "the last day before."
    )
    whole_day = True

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.status, *self.lookup.columns)

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> tuple[Counter[Any], Counter[str]]:
        return count_outcomes(rows, self.lookup), count_values(rows, self.lookup)

    def finding(self, parts: list[tuple[Counter[Any], Counter[str]]], day: WrittenDay) -> Finding:
        answers = total([part[0] for part in parts])["ok"]
        values = total([part[1] for part in parts])
        may_be_null = {column for column, share in self.lookup.null_share if share == 1}
        empty = [
            column
            for column in self.lookup.columns
            if not values[column] and column not in may_be_null
        ]
        if not answers or not empty:
            return Finding(
                True, f"no column lost its values in {counted(answers, 'row')}", 0, answers
            )
        if lost := {column: why for column in empty if (why := self._lost(column, answers, day))}:
            return self._red(lost, answers)
        if new := [column for column in empty if self._is_new(column, answers, day)]:
            why = "the column or its path is new"
            return replace(self._red(dict.fromkeys(new, why), answers), lacks_history=True)
        why = (
            "as before"
            if _is_sample(answers, day)
            else f"beside {counted(day.facts.rows_kept, 'row')} kept"
        )
        return Finding(
            True, f"null in {counted(answers, 'row')}, {why}: {listed(empty)}", 0, answers
        )

    def _red(self, reasons: Mapping[str, str], answers: int) -> Finding:
        (column, why), *others = reasons.items()
        also = f"; also null: {listed([name for name, _ in others])}" if others else ""
        by = self._by(self._path(column))
        # the files have a column of each vendor of a waterfall
        name = column.removeprefix(f"{self.lookup.name}_") if self.lookup.choice else column
        text = (
            f"{column} is null in all {counted(answers, 'row')} with an answer{by}; {why}{also}. "
            f"If that is right, declare null_share={{{name!r}: 1.0}}"
        )
        return Finding(False, text, answers, answers)

    def _lost(self, column: str, answers: int, day: WrittenDay) -> str:
        """Return which values a column without values had; empty if that proves no loss."""
        for name, published in self._published(day):
            path, values, rows = published.column(self.lookup.name, column)
            expected = answers * values / rows if rows else 0.0
            changed = path != self._path(column)
            signs = (changed, name == day.facts.day, expected >= FEWEST_VALUES)
            judged = changed or _is_sample(answers, day)
            if path and judged and expected >= 1 and sum(signs) > 1:
                by = self._by(path) if changed else ""
                return (
                    f"in {name} as published, {counted(values, 'row')} of {rows:,} had a value{by}"
                )
        return ""

    def _is_new(self, column: str, answers: int, day: WrittenDay) -> bool:
        """Return whether neither the published day nor the day before it has the column by its
        path. A record of an older version does not contain the paths.
        """
        if answers < FEWEST_VALUES or DayName.read(day.facts.day) is None:
            return False
        paths = [
            published.column(self.lookup.name, column)[0] for _, published in self._published(day)
        ]
        return self._path(column) not in paths and None not in paths

    def _path(self, column: str) -> str:
        return dict(self.lookup.paths).get(column, column)

    def _by(self, path: str) -> str:
        return f" by the path {path}" if self.lookup.kind == "http" else ""

    def _published(self, day: WrittenDay) -> list[tuple[str, EarlierDay]]:
        """Return the day as it is published, and the last day before it."""
        same = [] if day.published is None else [(day.facts.day, day.published)]
        return [*same, *list(day.earlier.items())[:1]]


def _is_sample(answers: int, day: WrittenDay) -> bool:
    """Return whether the answers represent the table: a few changed rows beside many kept rows may
    be of a kind that never has a value.
    """
    return answers > day.facts.rows_kept
