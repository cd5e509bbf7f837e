"""Finished batches on their way out: each leaves once the ledger holds the answers of its rows."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from jobs.task.read_ahead import InputWindow

# So many wait together: more than come in one flush interval (0.5 s) where a function returns at once, so that the
# ledger keeps its own pace. With half of it each part was hurried, and the rows stood still meanwhile.
ROWS_HELD = 32_000
LOOK_EVERY = 0.02  # s, while some are held


class DurabilityMark(Protocol):
    """A moment in the ledger of one lookup."""

    @property
    def reached(self) -> bool:
        """Whether all that was taken before it is stored."""

    def wait(self) -> None:
        """Have it stored now, and return then. Raises LedgerError when it cannot be."""


Finished = tuple[pa.RecordBatch, Sequence[DurabilityMark]]


def durable_batches(
    finished: queue.SimpleQueue[Finished | BaseException | None], window: InputWindow
) -> Iterator[pa.RecordBatch]:
    """The batches in their order, until None comes; raises what comes in their place.

    The ledger is left to store at its own pace, in parts worth writing. It is made to hurry only when enough rows
    wait, when there are no more, or when rows so large that few have room in the window wait for half of it.
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
