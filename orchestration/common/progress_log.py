"""Writes the progress of a day into the log of its run."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from jobs.run.terminal import progress_line

EVERY = 3.0  # s between two lines

Event = Mapping[str, Any]


class ProgressLog:
    """Writes a line for each phase of a day, and otherwise at most a line every EVERY seconds."""

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._next_line = clock()
        self._phase: tuple[str, str] | None = None

    def __call__(self, day: str, event: Event) -> None:
        phase = day, event.get("unit", "rows")  # keys, then rows
        is_new = self._phase is not None and phase != self._phase
        self._phase = phase
        if is_new or self._clock() >= self._next_line:
            self._next_line = self._clock() + EVERY
            self._write(progress_line(event))
