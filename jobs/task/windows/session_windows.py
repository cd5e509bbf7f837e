"""Session windows of a key, row by row in arrival order, firing like Flink's WindowOperator.

A row opens a window [time, time + gap) that takes in every open window it overlaps or touches. A
window fires when the watermark reaches its last millisecond, and again at once for each row after
that, until the watermark is the allowed lateness further; then it is closed. A row whose window is
closed from the beginning is dropped.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.schema.columns import FIRED_LATE, ON_TIME, SOURCE_ROW
from jobs.schema.records import WindowFacts
from jobs.storage.parquet_files import open_parquet
from jobs.task.windows.arrival import PLACE, TIME, WATERMARK, Numbers, name_rows

DROPPED = "__dropped"
FOR_EVER = np.iinfo(np.int64).max // 2  # the watermark at the end of the input


@dataclass(eq=False)
class OpenWindow:
    start: int
    end: int
    rows: list[int] = field(default_factory=list)
    fired: bool = False  # since it last grew beyond the watermark


@dataclass(frozen=True)
class Firing:
    start: int
    end: int
    rows: tuple[int, ...]
    fired: str  # ON_TIME or FIRED_LATE
    pane: int  # of the firings of this start and end, from 0


class SessionWindows:
    """The sessions of a key. Times are in ms.

    Args:
        gap: The time without a row that ends a session.
        lateness: The allowed lateness.
        each: Called for all firings; without all_panes when a window is closed.
        all_panes: Whether every firing counts.
    """

    def __init__(
        self, gap: int, lateness: int, each: Callable[[Firing], None], *, all_panes: bool
    ) -> None:
        self._gap, self._lateness, self._each, self._all_panes = gap, lateness, each, all_panes
        self._open: list[OpenWindow] = []
        self._panes: Counter[tuple[int, int]] = Counter()

    def add(self, row: int, time: int, watermark: int) -> bool:
        """Take a row that arrived under this watermark. Returns False when it is dropped."""
        self._advance(watermark)
        window = OpenWindow(time, time + self._gap, [row])
        touched = [
            open_window
            for open_window in self._open
            if open_window.start <= window.end and open_window.end >= window.start
        ]
        for neighbour in touched:
            self._open.remove(neighbour)
            window.start = min(window.start, neighbour.start)
            window.end = max(window.end, neighbour.end)
        window.rows = [*(number for open_window in touched for number in open_window.rows), row]
        if window.end - 1 + self._lateness <= watermark:
            return False
        self._open.append(window)
        if window.end - 1 <= watermark:
            self._fire(window, FIRED_LATE)
        return True

    def end(self) -> None:
        """Fire the open windows, because the input ended."""
        self._advance(FOR_EVER)

    def _advance(self, watermark: int) -> None:
        for window in sorted(self._open, key=lambda open_window: open_window.end):
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
    """The function of a Spark task that returns the rows of a key, each with its window.

    With all panes, a row is returned once for each firing. The rows have the columns of
    `rows_with_arrival`; the columns of ADDED are added.
    """

    window: WindowFacts

    ADDED = (
        ("__start", "bigint"), ("__end", "bigint"), ("__fired", "string"), ("__pane", "int"),
        (DROPPED, "boolean"),
    )  # fmt: skip

    def __call__(self, rows: pa.Table) -> pa.Table:
        places, times, watermarks = (rows[name].to_numpy() for name in (PLACE, TIME, WATERMARK))
        order = np.lexsort([rows[SOURCE_ROW].to_numpy(), places])
        firings: list[Firing] = []
        panes = self.window.panes == "all"
        sessions = SessionWindows(
            self.window.size_ms, self.window.lateness_ms, firings.append, all_panes=panes
        )
        dropped = [
            row
            for row, time, watermark in zip(
                order.tolist(), times[order].tolist(), watermarks[order].tolist(), strict=True
            )
            if not sessions.add(row, time, watermark)
        ]
        sessions.end()
        firings += [
            Firing(times[row], times[row] + self.window.size_ms, (row,), "", -1) for row in dropped
        ]
        return _with_firings(rows, firings)


def _with_firings(rows: pa.Table, firings: list[Firing]) -> pa.Table:
    counts = np.array([len(firing.rows) for firing in firings], np.int64)
    taken = np.array([row for firing in firings for row in firing.rows], np.int64)

    def per_row(values: Iterator[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(firings)), counts)))

    table = rows.take(pa.array(taken))
    added = (
        per_row((firing.start for firing in firings), pa.int64()),
        per_row((firing.end for firing in firings), pa.int64()),
        per_row((firing.fired for firing in firings), pa.string()),
        per_row((firing.pane for firing in firings), pa.int32()),
        per_row((firing.pane < 0 for firing in firings), pa.bool_()),
    )
    for (name, _), column in zip(SessionsOfKey.ADDED, added, strict=True):
        table = table.append_column(name, column)
    return table


def find_dropped(file: str) -> Numbers:
    """Return the rows of a file of `SessionsOfKey` that no session took, by `name_rows`."""
    with open_parquet(file) as opened:
        rows = opened.read([PLACE, SOURCE_ROW, DROPPED])
    dropped = rows.filter(rows[DROPPED])
    return name_rows(dropped[PLACE].to_numpy(), dropped[SOURCE_ROW].to_numpy())
