"""The plainest model of windows over rows in their order of arrival: one row, one window, one
firing at a time.
"""

from collections import Counter

NEVER, FOR_EVER = float("-inf"), float("inf")


def watermarks_of(times, bound):
    """In force as each row arrived, ms; a row without an event time moves none."""
    found, highest = [], NEVER
    for time in times:
        found.append(highest - bound - 1)
        highest = max(highest, NEVER if time is None else time)
    return found


def window_starts(facts, time):
    if facts.kind == "session":
        return [time]
    first = time - time % facts.every_ms
    return list(range(first, time - facts.size_ms, -facts.every_ms))


class Model:
    """rows: (key, event time in ms or None), in their order of arrival."""

    def __init__(self, facts, bound, rows):
        self.facts, self.rows = facts, rows
        self.open = {}  # (key, start, end) -> numbers of rows
        self.fired = set()
        # the content of each window in the end; (key, start, end, fired, rows)
        self.last, self.firings = {}, []
        self.dropped, self.untimed = [], []
        watermarks = watermarks_of([time for _, time in rows], bound)
        for number, ((key, time), watermark) in enumerate(zip(rows, watermarks, strict=True)):
            self.advance(watermark)
            if time is None:
                self.untimed.append(number)
            elif not self.take(number, key, time, watermark):
                self.dropped.append(number)
        self.advance(FOR_EVER)

    def take(self, number, key, time, watermark):
        taken = False
        for start in window_starts(self.facts, time):
            window = (key, start, start + self.facts.size_ms)
            content = [number]
            for other in [session for session in self.open if self.touches(session, window)]:
                content = sorted([*content, *self.open.pop(other)])
                window = (key, min(window[1], other[1]), max(window[2], other[2]))
            if window[2] - 1 + self.facts.lateness_ms <= watermark:
                continue
            taken = True
            self.open[window] = content
            if window[2] - 1 <= watermark:
                self.fire(window, "late")
        return taken

    def touches(self, one, window):
        if self.facts.kind == "session":
            return one[0] == window[0] and one[1] <= window[2] and one[2] >= window[1]
        return one == window

    def fire(self, window, fired):
        self.fired.add((window, len(self.open[window])))
        self.firings.append((*window, fired, tuple(self.open[window])))

    def advance(self, watermark):
        for window in sorted(self.open, key=lambda window: window[2]):
            if window[2] - 1 <= watermark and (window, len(self.open[window])) not in self.fired:
                self.fire(window, "on time")
            if window[2] - 1 + self.facts.lateness_ms <= watermark:
                self.last.setdefault(window, []).append(self.open.pop(window))

    def table(self):
        """(key, start, end, rows) of each window, or (..., fired, pane) of each firing, sorted as
        texts.
        """
        if self.facts.panes == "last":
            found = [
                (*window, len(content))
                for window, contents in self.last.items()
                for content in contents
            ]
            return sorted(found, key=str)
        panes, found = Counter(), []
        for key, start, end, fired, content in self.firings:
            found.append((key, start, end, len(content), fired, panes[key, start, end]))
            panes[key, start, end] += 1
        return sorted(found, key=str)
