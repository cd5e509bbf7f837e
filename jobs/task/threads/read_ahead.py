"""Bounds the read-ahead of a partition, and so a task's memory."""

import asyncio
import threading
from collections import deque

import pyarrow as pa

ROWS_TOGETHER = 4_000
BYTES_TOGETHER = 4 << 20


class InputWindow:
    """Limits the reader's lead over Spark's output, in rows and bytes.

    While there is any room, a batch of any size is taken.
    """

    def __init__(self, rows: int, size: int) -> None:
        self._max_rows = rows
        self._max_size = size
        self._changed = threading.Condition()
        self._batches: deque[tuple[int, int]] = deque()  # rows and bytes that are not given back
        self._size = 0  # of them
        self.rows = 0  # of them
        self._ended = False
        self.is_full = False  # the reader waits for room

    def take(self, rows: int, size: int) -> bool:
        """Wait for room, then count this batch. False if the run has ended."""
        with self._changed:
            self.is_full = not (self._ended or self._has_room())
            self._changed.wait_for(lambda: self._ended or self._has_room())
            self.is_full = False
            self._batches.append((rows, size))
            self.rows += rows
            self._size += size
            return not self._ended

    def _has_room(self) -> bool:
        return self.rows < self._max_rows and self._size < self._max_size

    def give_back(self, rows: int) -> None:
        """Count rows as written; of unordered rows the sizes are those of the oldest."""
        with self._changed:
            self.rows -= rows
            while self._batches and rows >= self._batches[0][0]:
                oldest, size = self._batches.popleft()
                rows -= oldest
                self._size -= size
            if rows:
                oldest, size = self._batches[0]
                kept = size * (oldest - rows) // oldest
                self._batches[0] = oldest - rows, kept
                self._size -= size - kept
            self._changed.notify()

    def set_max_rows(self, rows: int) -> None:
        with self._changed:
            self._max_rows = rows
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()


class InputQueue:
    """The reader's batches for the event loop.

    Waiting batches are merged, because a batch costs the loop as much as 1,000 rows.
    """

    def __init__(self) -> None:
        self._items: deque[pa.RecordBatch | BaseException | None] = deque()
        self._arrived = asyncio.Event()

    def put(self, item: pa.RecordBatch | BaseException | None) -> None:
        """Take an item, on the loop. None ends the input; an error ends it with the error."""
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
