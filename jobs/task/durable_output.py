"""Yields finished batches once the ledger has stored the answers of their rows."""

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from jobs.task.lookup.task_ledger import Stored
from jobs.task.threads.read_ahead import InputWindow

# More rows than come in a flush interval (0.5 s) where a function returns at once, so that the
# ledger keeps its pace. With half as many, rows waited for each part, stored in a hurry.
ROWS_HELD = 32_000
LOOK_EVERY = 0.05  # s, while batches are held


Finished = tuple[pa.RecordBatch, Sequence[Stored]]  # and its rows' positions in the ledger


def durable_batches(
    finished: queue.SimpleQueue[Finished | BaseException | None], window: InputWindow
) -> Iterator[pa.RecordBatch]:
    """Yield the batches in order until None; raise an exception that comes instead of a batch.

    The ledger stores in efficient parts, without a hurry. It is flushed only when enough rows wait,
    at the end, or when large rows fill half of the window.

    Args:
        finished: The batches with their positions in the ledger, then None or the error that ended
            the rows.
        window: The limit on the rows that were read but not written.
    """
    held: deque[Finished] = deque()
    while True:
        ended = False
        with suppress(queue.Empty):
            item = finished.get(timeout=LOOK_EVERY if held else None)
            if isinstance(item, BaseException):
                raise item
            ended = item is None
            if item is not None:
                held.append(item)
        rows = sum(batch.num_rows for batch, _ in held)
        if held and (ended or rows >= ROWS_HELD or (window.is_full and 2 * rows >= window.rows)):
            for point in held[-1][1]:
                point.wait()
        while held and all(point.reached for point in held[0][1]):
            yield held.popleft()[0]
        if ended:
            return
