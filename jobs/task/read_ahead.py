"""How far a partition reads ahead: the one bound on what a task holds in memory."""

from __future__ import annotations

import threading


class InputWindow:
    """How far the reader may run ahead of what Spark has taken back, in rows and in bytes; one batch always may."""

    def __init__(self, rows: int, size: int) -> None:
        self._max_rows = rows
        self._max_size = size
        self._changed = threading.Condition()
        self.rows = 0  # taken and not given back
        self._rows_ever = 0
        self._size_ever = 0
        self._ended = False
        self.is_full = False  # the reader waits for room

    def take(self, rows: int, size: int) -> bool:
        """Wait for room, then count this batch. False when the run has ended and the batch is not wanted."""
        with self._changed:
            self.is_full = not (self._ended or self._has_room())
            self._changed.wait_for(lambda: self._ended or self._has_room())
            self.is_full = False
            self.rows += rows
            self._rows_ever += rows
            self._size_ever += size
            return not self._ended

    def _has_room(self) -> bool:
        size = self.rows * self._size_ever / self._rows_ever if self._rows_ever else 0
        return self.rows < self._max_rows and size < self._max_size

    def give_back(self, rows: int) -> None:
        with self._changed:
            self.rows -= rows
            self._changed.notify()

    def grow(self, rows: int) -> None:
        """The bound in rows from now on."""
        with self._changed:
            self._max_rows = rows
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
