"""Compares the number of input rows with the same weekday of the weeks before."""

import statistics
from typing import Any

from data_quality.check import Check
from data_quality.day_names import DayName
from data_quality.findings import Finding
from data_quality.rows.written_day import WrittenDay
from jobs.wording import counted

WEEKS_OF_HISTORY = 4
FEWEST, MOST = 0.6, 1.6  # rows of a complete day, relative to the usual number


class InputDayComplete(Check):
    name = "input_day_complete"
    severity = "warn"
    whole_day = True
    promise = (
        f"The day has about as many rows as the same weekday of the {WEEKS_OF_HISTORY} weeks "
        "before."
    )

    def finding(self, _parts: list[Any], day: WrittenDay) -> Finding:
        name = DayName.read(day.facts.day)
        weeks = name.earlier(range(7, 7 * WEEKS_OF_HISTORY + 1, 7)) if name else []
        before = [day.earlier[week].figures.rows_in for week in weeks if week in day.earlier]
        last = 0 if day.published is None else day.published.figures.rows_in + day.published.kept
        if not before and last and not day.input.rows and not day.facts.rows_kept:
            text = f"{counted(0, 'row')}; {counted(last, 'row')} as the day is published"
            return Finding(False, text, last, 0, "at least 1 row")
        if not before:
            return Finding.without_history("no earlier day of the same weekday to compare with")
        usual, count = statistics.median(before), day.input.rows
        text = (
            f"{counted(count, 'row')}; {usual:,.0f} on the same weekday of {len(before)} weeks "
            "before"
        )
        held = FEWEST * usual <= count <= MOST * usual
        expected = f"{FEWEST * usual:,.0f} .. {MOST * usual:,.0f} rows"
        return Finding(held, text, 0 if held else abs(count - round(usual)), count, expected)
