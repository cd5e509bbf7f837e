"""Computes windows by the plain rule, from rows in their order of arrival; the check compares the
written windows with them.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from data_quality.rows.task_rows import Flags, Places
from data_quality.rows.watermarks import NO_TIME
from jobs.schema.columns import FIRED_LATE, ON_TIME
from jobs.schema.records import WindowFacts


@dataclass(frozen=True)
class Arrived:
    """Rows in their order of arrival.

    Attributes:
        times: Event times in ms, or NO_TIME.
        keys: A number for each row, equal for rows with the same key.
        watermarks: The watermark in force when each row arrived, in ms.
    """

    times: Places
    keys: Places
    watermarks: Places

    @classmethod
    def of(cls, times: Places, bound_ms: int, keys: Places) -> Self:
        highest = np.append(NO_TIME, np.maximum.accumulate(times))[: len(times)]
        return cls(times, keys, np.where(highest > NO_TIME, highest - bound_ms - 1, NO_TIME))


@dataclass
class Windows:
    """Windows, or firings: a value of each list for each of them.

    Attributes:
        first: The number of a row in it, from which its key is taken.
        start: Its start in ms.
        end: Its end in ms, excluded.
        rows: Its number of rows.
        fired: ON_TIME or FIRED_LATE; of firings only.
        pane: The number of the firing in its window; of firings only.
    """

    first: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    pane: list[int] = field(default_factory=list)

    def add(self, first: int, extent: tuple[int, int], rows: int, fired: str, pane: int) -> None:
        self.first.append(first)
        self.start.append(extent[0])
        self.end.append(extent[1])
        self.rows.append(rows)
        self.fired.append(fired)
        self.pane.append(pane)


def dropped_rows(arrived: Arrived, window: WindowFacts) -> Flags:
    """Return which rows arrived after all their windows had closed."""
    if window.kind == "session":
        dropped = np.zeros(len(arrived.times), np.bool_)
        _sessions(arrived, window, dropped)
        return dropped
    last = arrived.times - arrived.times % window.every_ms
    return (arrived.times > NO_TIME) & _is_closed(last + window.size_ms, arrived.watermarks, window)


def find_windows(arrived: Arrived, window: WindowFacts) -> Windows:
    """Return the windows that the rows make; with all panes, each of their firings."""
    if window.kind == "session":
        return _sessions(arrived, window, np.zeros(len(arrived.times), np.bool_))
    if window.panes == "all":
        return _firings(arrived, window)
    rows, starts = _in_windows(arrived, window)
    if not len(rows):
        return Windows()
    order = np.lexsort([starts, arrived.keys[rows]])
    rows, starts = rows[order], starts[order]
    keys = arrived.keys[rows]
    begins = np.flatnonzero(np.append(True, (np.diff(keys) != 0) | (np.diff(starts) != 0)))
    counts = np.diff(np.append(begins, len(rows)))
    start = starts[begins]
    return Windows(
        rows[begins].tolist(), start.tolist(), (start + window.size_ms).tolist(), counts.tolist()
    )


def _is_closed(ends: Places, watermarks: Places, window: WindowFacts) -> Flags:
    closed: Flags = ends - 1 + window.lateness_ms <= watermarks
    return closed


def _in_windows(arrived: Arrived, window: WindowFacts) -> tuple[Places, Places]:
    timed = np.flatnonzero(arrived.times > NO_TIME)
    rows, starts = [], []
    for back in range(0, window.size_ms, window.every_ms):
        start = arrived.times[timed] - arrived.times[timed] % window.every_ms - back
        inside = start + window.size_ms > arrived.times[timed]
        inside &= ~_is_closed(start + window.size_ms, arrived.watermarks[timed], window)
        rows.append(timed[inside])
        starts.append(start[inside])
    order = np.argsort(np.concatenate(rows), kind="stable")
    return np.concatenate(rows)[order], np.concatenate(starts)[order]


def _firings(arrived: Arrived, window: WindowFacts) -> Windows:
    """Return the firings: a window fires when the watermark reaches its last millisecond, and at
    once for each row after that.
    """
    contents: dict[tuple[int, int], list[int]] = {}
    for row, start in zip(
        *(column.tolist() for column in _in_windows(arrived, window)), strict=True
    ):
        contents.setdefault((int(arrived.keys[row]), start), []).append(row)
    found = Windows()
    for (_, start), rows in contents.items():
        extent = start, start + window.size_ms
        on_time = int((arrived.watermarks[rows] < extent[1] - 1).sum())
        sizes = [*([on_time] if on_time else []), *range(on_time + 1, len(rows) + 1)]
        for pane, size in enumerate(sizes):
            found.add(rows[0], extent, size, ON_TIME if size == on_time else FIRED_LATE, pane)
    return found


def _sessions(arrived: Arrived, window: WindowFacts, dropped: Flags) -> Windows:
    """Find the sessions key by key, and mark the dropped rows."""
    found = Windows()
    order = np.argsort(arrived.keys, kind="stable")
    order = order[arrived.times[order] > NO_TIME]
    if not len(order):
        return found
    for rows in np.split(order, np.flatnonzero(np.diff(arrived.keys[order])) + 1):
        sessions = SessionsOfKey(window, found)
        for row in rows.tolist():
            dropped[row] = not sessions.take(
                row, int(arrived.times[row]), int(arrived.watermarks[row])
            )
        sessions.advance(float("inf"))
    return found


@dataclass(eq=False)
class _Session:
    start: int
    end: int
    first: int
    rows: int
    is_due: bool  # to fire when the watermark reaches its end


class SessionsOfKey:
    """Finds the sessions of a key and adds them to `found`."""

    def __init__(self, window: WindowFacts, found: Windows) -> None:
        self._window, self._found = window, found
        self._open: list[_Session] = []
        self._panes: Counter[tuple[int, int]] = Counter()

    def take(self, row: int, time: int, watermark: int) -> bool:
        """Add a row of this key; return false if the row is dropped."""
        gap = self._window.size_ms
        self.advance(watermark)
        near = [other for other in self._open if other.start <= time + gap and time <= other.end]
        start = min([time, *(other.start for other in near)])
        end = max([time + gap, *(other.end for other in near)])
        if end - 1 + self._window.lateness_ms <= watermark:
            return False
        session = _Session(
            start, end, row, 1 + sum(other.rows for other in near), is_due=end - 1 > watermark
        )
        self._open = [*(other for other in self._open if other not in near), session]
        if not session.is_due:
            self._fire(session, FIRED_LATE)
        return True

    def advance(self, watermark: float) -> None:
        """Fire and close the sessions that this watermark has passed."""
        for session in sorted(self._open, key=lambda session: session.end):
            if session.end - 1 > watermark:
                return
            if session.is_due:
                session.is_due = False
                self._fire(session, ON_TIME)
            if session.end - 1 + self._window.lateness_ms <= watermark:
                self._open.remove(session)
                if self._window.panes == "last":
                    self._found.add(
                        session.first, (session.start, session.end), session.rows, ON_TIME, 0
                    )

    def _fire(self, session: _Session, fired: str) -> None:
        if self._window.panes == "all":
            extent = session.start, session.end
            self._found.add(session.first, extent, session.rows, fired, self._panes[extent])
            self._panes[extent] += 1
