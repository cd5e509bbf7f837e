"""Session windows of one key, row by row in the order of arrival, with the firings of Flink's WindowOperator.

A row opens a window [time, time + gap) that takes in every open window it overlaps or touches. A window fires when the
watermark reaches its last millisecond, and again at once for each row after that, until the watermark is the allowed
lateness further; then it is closed. A row whose window is closed from the beginning is dropped.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.schema import FIRED_LATE, ON_TIME, SOURCE_FILE, SOURCE_ROW, WindowFacts

NEVER = np.iinfo(np.int64).min // 2  # no watermark yet
FOR_EVER = np.iinfo(np.int64).max // 2  # the watermark at the end of the input


@dataclass(eq=False)
class OpenWindow:
    start: int
    end: int
    rows: list[int] = field(default_factory=list)
    fired: bool = False  # since it last grew beyond the watermark
    late: bool = False  # whether its last firing was by a row


@dataclass(frozen=True)
class Firing:
    start: int
    end: int
    rows: tuple[int, ...]
    fired: str  # ON_TIME or FIRED_LATE
    pane: int  # of the firings of this start and end, from 0


class SessionWindows:
    """The sessions of one key. Times in ms. each: called for all firings; without all_panes when a window is closed."""

    def __init__(self, gap: int, lateness: int, each: Callable[[Firing], None], *, all_panes: bool) -> None:
        self._gap, self._lateness, self._each, self._all_panes = gap, lateness, each, all_panes
        self._open: list[OpenWindow] = []
        self._panes: Counter[tuple[int, int]] = Counter()

    def add(self, row: int, time: int, watermark: int) -> bool:
        """Take a row that arrived while this watermark was in force. Returns False when it is dropped."""
        self._advance(watermark)
        window = OpenWindow(time, time + self._gap, [row])
        touched = [one for one in self._open if one.start <= window.end and one.end >= window.start]
        for one in touched:
            self._open.remove(one)
            window.start, window.end = min(window.start, one.start), max(window.end, one.end)
        window.rows = [*(number for one in touched for number in one.rows), row]
        if window.end - 1 + self._lateness <= watermark:
            return False
        self._open.append(window)
        if window.end - 1 <= watermark:
            self._fire(window, FIRED_LATE)
        return True

    def end(self) -> None:
        """The input ended: the rest fires."""
        self._advance(FOR_EVER)

    def _advance(self, watermark: int) -> None:
        for window in sorted(self._open, key=lambda one: one.end):
            if not window.fired and window.end - 1 <= watermark:
                self._fire(window, ON_TIME)
            if window.end - 1 + self._lateness <= watermark:
                self._open.remove(window)
                if not self._all_panes:
                    self._tell(window, ON_TIME)

    def _fire(self, window: OpenWindow, fired: str) -> None:
        window.fired = True
        if self._all_panes:
            self._tell(window, fired)

    def _tell(self, window: OpenWindow, fired: str) -> None:
        extent = window.start, window.end
        self._each(Firing(*extent, tuple(window.rows), fired, self._panes[extent]))
        self._panes[extent] += 1


@dataclass(frozen=True)
class SessionsOfKey:
    """What a Spark task makes of the rows of one key: each with its window; with all panes, once for each firing.

    arrival: by source file, its place among the files and the path of the watermarks of its rows (.npy). time: the
    column with the event times in ms. The columns added are those of ADDED.
    """

    window: WindowFacts
    arrival: Mapping[str, tuple[int, str]]
    time: str

    ADDED = (
        ("__start", "bigint"), ("__end", "bigint"), ("__fired", "string"), ("__pane", "int"),
        ("__watermark", "bigint"), ("__dropped", "boolean"),
    )  # fmt: skip

    def __call__(self, rows: pa.Table) -> pa.Table:
        places, watermarks = self._arrival(rows)
        times = rows[self.time].to_numpy()
        order = np.lexsort([rows[SOURCE_ROW].to_numpy(), places])
        firings: list[Firing] = []
        panes = self.window.panes == "all"
        sessions = SessionWindows(self.window.size_ms, self.window.lateness_ms, firings.append, all_panes=panes)
        dropped = [
            row
            for row, time, watermark in zip(
                order.tolist(), times[order].tolist(), watermarks[order].tolist(), strict=True
            )
            if not sessions.add(row, time, watermark)
        ]
        sessions.end()
        firings += [Firing(times[row], times[row] + self.window.size_ms, (row,), "", -1) for row in dropped]
        return _with_firings(rows, firings, watermarks)

    def _arrival(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Of each row the place of its file, and the watermark in force as it arrived."""
        places, watermarks = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        files = rows[SOURCE_FILE].combine_chunks().dictionary_encode()
        codes, numbers = files.indices.to_numpy(), rows[SOURCE_ROW].to_numpy()
        for code, file in enumerate(files.dictionary.to_pylist()):
            of_file = codes == code
            place, path = self.arrival[file]
            places[of_file] = place
            watermarks[of_file] = _watermarks(path)[numbers[of_file]]
        return places, watermarks


@lru_cache(maxsize=64)
def _watermarks(path: str) -> Any:
    return np.load(path, mmap_mode="r")


def _with_firings(rows: pa.Table, firings: list[Firing], watermarks: np.ndarray) -> pa.Table:
    counts = np.array([len(one.rows) for one in firings], np.int64)
    taken = np.array([row for one in firings for row in one.rows], np.int64)

    def of_each(values: Iterator[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(firings)), counts)))

    table = rows.take(pa.array(taken))
    added = (
        of_each((one.start for one in firings), pa.int64()),
        of_each((one.end for one in firings), pa.int64()),
        of_each((one.fired for one in firings), pa.string()),
        of_each((one.pane for one in firings), pa.int32()),
        pa.array(watermarks[taken], pa.int64()),
        of_each((one.pane < 0 for one in firings), pa.bool_()),
    )
    for (name, _), column in zip(SessionsOfKey.ADDED, added, strict=True):
        table = table.append_column(name, column)
    return table
