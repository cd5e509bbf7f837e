"""Bounds the read-ahead of a partition, and so a task's memory."""

import asyncio
import threading
from collections import deque

import pyarrow as pa

ROWS_TOGETHER = 4_000
BYTES_TOGETHER = 4 << 20


class InputWindow:
    """Limits the reader's lead over Spark's output, in rows and bytes; a batch always fits."""

    def __init__(self, rows: int, size: int) -> None:
        self._max_rows = rows
        self._max_size = size
        self._changed = threading.Condition()
        self.rows = 0  # taken and not returned
        self._rows_ever = 0
        self._size_ever = 0
        self._ended = False
        self.is_full = False  # the reader waits for room

    def take(self, rows: int, size: int) -> bool:
        """Wait for room, then count this batch. False if the run has ended."""
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
        with self._changed:
            self._max_rows = rows
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()


class InputQueue:
    """The reader's batches for the event loop.

    Waiting batches are merged, because each costs as much as 1,000 rows.
    """

    def __init__(self) -> None:
        self._items: deque[pa.RecordBatch | BaseException | None] = deque()
        self._arrived = asyncio.Event()

    def put(self, item: pa.RecordBatch | BaseException | None) -> None:
        """Called on the loop. None ends the input; an error ends it with the error."""
        self._items.append(item)
        self._arrived.set()

    async def take(self) -> pa.RecordBatch | BaseException | None:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        if not isinstance(self._items[0], pa.RecordBatch):
            return self._items.popleft()
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        while self._items and isinstance(batch := self._items[0], pa.RecordBatch):
            rows += batch.num_rows
            size += batch.nbytes
            if batches and (rows > ROWS_TOGETHER or size > BYTES_TOGETHER):
                break
            batches.append(batch)
            self._items.popleft()
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
