"""Recomputes the day's windows from its rows by the plain rule, and checks that every row is in a
window, dropped, or without an event time.

The rows are put back in their order of arrival, by input file and row. A window is compared by its
start, end and number of rows; with all panes, each of its firings is compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from data_quality.check import Check
from data_quality.findings import ROWS_OF_EVIDENCE, Finding
from data_quality.rows.input_rows import by_file
from data_quality.rows.task_rows import Places, TaskRows
from data_quality.rows.watermarks import NO_TIME, event_times_ms
from data_quality.rows.window_rules import Arrived, dropped_rows, find_windows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import digest, one_chunk, plus_zero
from jobs.schema.columns import (
    FIRED,
    PANE,
    SOURCE_FILE,
    SOURCE_IDENTITY,
    SOURCE_ROW,
    WINDOW_END,
    WINDOW_ROWS,
    WINDOW_START,
)
from jobs.schema.facts import plain
from jobs.schema.records import DeclaredFacts, WindowFacts, WrittenWindows
from jobs.storage.parquet_files import open_parquet
from jobs.storage.urls import path_from_spark
from jobs.wording import counted

MILLIS = pa.timestamp("ms", "UTC")


@dataclass(frozen=True)
class Part:
    """Some rows of a task.

    Attributes:
        files: The paths of input files.
        codes: For each row the place of its file in `files`.
        numbers: For each row its number in its file; -1 without a number.
        times: Event times in ms, or NO_TIME.
        keys: The columns of the window's key.
    """

    files: list[str]
    codes: Places
    numbers: Places
    times: Places
    keys: pa.Table


class WindowsHold(Check):
    name = "windows_hold"
    in_driver = True
    whole_day = True

    def __init__(self, declared: DeclaredFacts, window: WindowFacts) -> None:
        super().__init__(declared, window.name)
        self.window = window

    @property
    def promise(self) -> str:
        return "The windows are those that the rows make; every row is in one, or is listed."

    @property
    def needs(self) -> tuple[str, ...]:
        return (*SOURCE_IDENTITY, self.event_time.column)

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> Part:
        files, codes = [], np.zeros(len(rows), np.int64)
        for number, (uri, at) in enumerate(by_file(rows).items()):
            files.append(path_from_spark(uri or ""))
            codes[at] = number
        names = {name.lower(): name for name in rows.names}
        times = event_times_ms(rows.table, names[self.event_time.column.lower()])
        keys = rows.table.select([names[key.lower()] for key in self.window.key]).rename_columns(
            list(self.window.key)
        )
        keys = _without_negative_zeros(keys)
        return Part(files, codes, rows.source_rows, times, keys)

    def finding(self, parts: list[Part], day: WrittenDay) -> Finding:
        made = next(
            (windows for windows in day.facts.windows if windows.name == self.window.name), None
        )
        if made is None:
            if day.facts.files:
                return Finding.not_run("the run made none")
            return Finding(True, "no rows, no windows")
        arrived, keys, identity = self._arrived(parts, day)
        differing = list(self._differing(arrived, keys, made))
        late, untimed = dropped_rows(arrived, self.window), arrived.times == NO_TIME
        listed, windowless = _listed(made, day), identity[late | untimed]
        in_windows, dropped, undated = (
            int(flags.sum()) for flags in (~late & ~untimed, late, untimed)
        )
        wrong = [
            f"{counted(reported, 'row')} {name}, and {by_rule:,} by the event times"
            for name, reported, by_rule in (
                ("in windows", made.rows, in_windows),
                ("dropped", made.dropped, dropped),
                ("without event time", made.no_event_time, undated),
            )
            if reported != by_rule
        ]
        if not np.array_equal(np.sort(listed), windowless):
            wrong.append(
                f"{counted(len(listed), 'row')} listed as in no window, which are not the "
                f"{len(windowless):,} that are"
            )
        firings = "firings" if self.window.panes == "all" else "windows"
        if differing:
            wrong.insert(0, f"{len(differing):,} {firings} are not those of the rows")
        count = len(arrived.times)
        sums = (
            f"{counted(count, 'row')} in: {in_windows:,} in {made.windows:,} {firings}, "
            f"{dropped:,} dropped"
        )
        found = Finding.judged(
            f"{sums}, {undated:,} without event time",
            "; ".join(wrong), len(differing) + len(wrong) - bool(differing),
            max(count, made.windows), "the windows that the rows make in their order of arrival",
        )  # fmt: skip
        return found.with_evidence(differing[:ROWS_OF_EVIDENCE], self.declared)

    def _arrived(self, parts: list[Part], day: WrittenDay) -> tuple[Arrived, pa.Table, Places]:
        """Return all rows in their order of arrival, with their keys and identities."""
        places = {path: place for place, path in enumerate(day.input.counts)}
        empty = np.zeros(0, np.int64)
        files = [
            np.array([places.get(file, -1) for file in part.files], np.int64)[part.codes]
            for part in parts
        ]
        numbers = np.concatenate([*(part.numbers for part in parts), empty])
        identity = _identity(np.concatenate([*files, empty]), numbers)
        order = np.argsort(identity, kind="stable")
        times = np.concatenate([*(part.times for part in parts), empty])[order]
        keys = (
            pa.concat_tables([part.keys for part in parts], promote_options="permissive")
            if parts
            else pa.table({name: pa.nulls(0) for name in self.window.key})
        )
        bound = round(self.event_time.max_out_of_orderness * 1000)
        arrived = Arrived.of(times, bound, _codes(keys, len(times))[order])
        return arrived, keys.take(pa.array(order)), identity[order]

    def _differing(
        self, arrived: Arrived, keys: pa.Table, made: WrittenWindows
    ) -> Iterator[dict[str, Any]]:
        """Yield the windows, or firings, that only the rows make or only the files have."""
        recomputed = find_windows(arrived, self.window)
        first = pa.array(recomputed.first, pa.int64())
        columns = {name: keys[name].take(first) for name in self.window.key}
        columns |= {
            WINDOW_START: pa.array(recomputed.start, pa.int64()),
            WINDOW_END: pa.array(recomputed.end, pa.int64()),
            WINDOW_ROWS: pa.array(recomputed.rows, pa.int64()),
        }
        if self.window.panes == "all":
            columns |= {
                PANE: pa.array(recomputed.pane, pa.int32()),
                FIRED: pa.array(recomputed.fired, pa.string()),
            }
        sides = [pa.table(columns)]
        if written := _read(made, [*columns]):  # without rows its types may be others
            sides.append(written.cast(sides[0].schema))
        # a row counts +1 if recomputed, -1 if written, so that equal rows add up to 0
        both = pa.concat_tables(sides)
        signs = np.repeat([1, -1], [len(sides[0]), len(both) - len(sides[0])])
        _, firsts, codes = np.unique(
            digest(map(one_chunk, both.columns)), return_index=True, return_inverse=True
        )
        sums = np.bincount(codes, signs, len(firsts))
        for row, balance in zip(
            both.take(firsts[sums != 0]).to_pylist(), sums[sums != 0], strict=True
        ):
            extent = {name: _moment(row[name]) for name in (WINDOW_START, WINDOW_END)}
            verdict = "not written" if balance > 0 else "not one of the rows'"
            yield plain(row | extent | {"it_is": verdict})


def _identity(places: Places, numbers: Places) -> Places:
    """Return a number made from a file's place and a row's number, in the order of arrival."""
    return (places << 40) + numbers


def _listed(made: WrittenWindows, day: WrittenDay) -> Places:
    places = {path: place for place, path in enumerate(day.input.counts)}
    found = [np.zeros(0, np.int64)]
    for file in made.dropped_files:
        with open_parquet(file) as opened:
            listed = opened.read([*SOURCE_IDENTITY])
        of_files = [
            places.get(path_from_spark(uri or ""), -1) for uri in listed[SOURCE_FILE].to_pylist()
        ]
        found.append(_identity(np.array(of_files, np.int64), listed[SOURCE_ROW].to_numpy()))
    return np.concatenate(found)


def _read(made: WrittenWindows, columns: list[str]) -> pa.Table | None:
    tables = []
    for file in made.files:
        with open_parquet(file) as opened:
            tables.append(opened.read())
    if not tables:
        return None
    table = pa.concat_tables(tables)
    names = {name.lower(): name for name in table.column_names}
    table = table.select([names[name.lower()] for name in columns]).rename_columns(columns)
    for name in (WINDOW_START, WINDOW_END):
        millis = table[name].cast(MILLIS).cast(pa.int64())
        table = table.set_column(table.column_names.index(name), name, millis)
    return _without_negative_zeros(table)


def _without_negative_zeros(table: pa.Table) -> pa.Table:
    """Return the table with 0.0 for -0.0, which a GROUP BY takes for the same key."""
    columns = [plus_zero(one_chunk(column)) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _codes(keys: pa.Table, count: int) -> Places:
    """Return a number for each row, equal where all keys are equal."""
    if not keys.num_columns:
        return np.zeros(count, np.int64)
    codes: Places = np.unique(digest(map(one_chunk, keys.columns)), return_inverse=True)[1]
    return codes


def _moment(millis: int) -> Any:
    try:
        return pa.scalar(millis, MILLIS).as_py()
    except (OverflowError, ValueError):  # outside of Python's years
        return f"{millis} ms"
