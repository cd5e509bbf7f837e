"""The elements of a batch for the operators: slices of known rows, single rows, watermarks.

A slice is a single element. So the operators keep known rows in their place among the others: in
ordered mode they wait for the rows in front of them, in the other modes for the watermarks.
Watermarks that stand between known rows only are left out, as are those of ordered mode: they hold
nothing apart.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asyncio_core import StreamElement, StreamRecord, Watermark
from jobs.declare.lookup import Key, Lookup
from jobs.task.lookup.lookup_function import fails_on
from jobs.task.lookup.lookup_state import KnownRows, LookupState, Row, rows_of
from jobs.task.rows.arrow_batches import InputBatch

Rows = np.ndarray


class RowElements:
    """The elements of a partition, batch by batch."""

    def __init__(self, lookups: Sequence[Lookup], mode: str) -> None:
        self._mode = mode
        self._fails_on = [pa.array(sorted(fails_on(lookup)), pa.string()) for lookup in lookups]
        self._settled = tuple(LookupState(None, is_settled=True) for _ in lookups)
        self._under_way: Counter[Any] = Counter()  # key_ordered: single rows by order key

    def of(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]]
    ) -> Iterator[StreamElement]:
        if all(outcomes is None for outcomes in batch.known):
            elements = self._all_alone(batch, keys)
        elif self._mode == "ordered":
            elements = self._in_order(batch, keys, self._alone(batch))
        else:
            elements = self._by_segments(batch, keys, self._alone(batch))
        return elements if self._mode != "key_ordered" else self._counted(elements)

    def left(self, row: Row) -> None:
        """Note that the row has left the last operator; in key_ordered mode only."""
        key = shared_order_key(row)
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]

    def _counted(self, elements: Iterator[StreamElement]) -> Iterator[StreamElement]:
        for element in elements:
            if isinstance(element, StreamRecord) and type(element.value) is Row:
                self._under_way[shared_order_key(element.value)] += 1
            yield element

    def _all_alone(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]]
    ) -> Iterator[StreamElement]:
        watermarks = None if self._mode == "ordered" else batch.watermarks
        for row in rows_of(batch, keys):
            yield StreamRecord(row)
            if watermarks and (watermark := watermarks[row.number]) is not None:
                yield Watermark(watermark)

    def _in_order(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]], alone: Rows
    ) -> Iterator[StreamElement]:
        numbers = np.arange(len(alone))
        start = 0
        for row in self._rows(batch, keys, numbers[alone]):
            if row.number > start:
                yield StreamRecord(KnownRows(batch, numbers[start : row.number], self._settled))
            yield StreamRecord(row)
            start = row.number + 1
        if start < len(alone):
            yield StreamRecord(KnownRows(batch, numbers[start:], self._settled))

    def _by_segments(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]], alone: Rows
    ) -> Iterator[StreamElement]:
        """Yield the known rows of each segment first, because a segment has no order inside.

        In key_ordered mode no known row has the order key of a called row.
        """
        rows = self._rows(batch, keys, np.flatnonzero(alone))
        for start, stop, watermark in _segments(batch, alone):
            known = start + np.flatnonzero(~alone[start:stop])
            if len(known):
                yield StreamRecord(KnownRows(batch, known, self._settled))
            for _ in range(stop - start - len(known)):
                yield StreamRecord(next(rows))
            if watermark is not None:
                yield Watermark(watermark)

    def _alone(self, batch: InputBatch) -> Rows:
        """Return which rows go singly.

        They need a call, fail the run, or are known but must not overtake another row of their
        order key.
        """
        alone = np.zeros(len(batch.sequence), np.bool_)
        for outcomes, failing in zip(batch.known, self._fails_on, strict=True):
            if outcomes is None:
                alone[:] = True
                return alone
            alone |= pc.is_null(outcomes["status"]).to_numpy(zero_copy_only=False)
            if len(failing):
                alone |= pc.is_in(outcomes["status"], value_set=failing).to_numpy(
                    zero_copy_only=False
                )
        if self._mode == "key_ordered" and (self._under_way or alone.any()):
            called = {batch.order_keys[number] for number in np.flatnonzero(alone).tolist()}
            called |= self._under_way.keys()
            alone |= np.fromiter((key in called for key in batch.order_keys), np.bool_, len(alone))
        return alone

    def _rows(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]], numbers: Rows
    ) -> Iterator[Row]:
        """Yield these rows, settled at the lookups with a known outcome."""
        at = pa.array(numbers)
        known = [
            [(None, None)] * len(numbers)
            if outcomes is None
            else zip(
                outcomes["status"].take(at).to_pylist(),
                outcomes["error"].take(at).to_pylist(),
                strict=True,
            )
            for outcomes in batch.known
        ]
        for number, *of_row in zip(numbers.tolist(), *known, strict=True):
            states = (
                LookupState(of_lookup[number], status, error=error, is_settled=status is not None)
                for of_lookup, (status, error) in zip(keys, of_row, strict=True)
            )
            yield Row(batch, number, tuple(states))


def _segments(batch: InputBatch, alone: Rows) -> Iterator[tuple[int, int, int | None]]:
    """Yield the first row, the end and the watermark of each segment.

    Consecutive segments of known rows only are merged, except for the first and the last segment,
    which share rows with other batches.
    """
    watermarks = batch.watermarks or [None] * len(alone)
    called = np.concatenate(([0], np.cumsum(alone)))
    begun = start = 0  # `begun` to `start`: known rows, to merge with a known next segment
    waiting: int | None = None
    is_first = True
    for last, watermark in enumerate(watermarks):
        if watermark is None:
            continue
        is_known = not is_first and called[last + 1] == called[start]
        if not is_known and start > begun:
            yield begun, start, waiting
            begun = start
        start, waiting = last + 1, watermark
        if not is_known:
            yield begun, start, watermark
            begun = start
        is_first = False
    if start > begun:
        yield begun, start, waiting
    if start < len(alone):
        yield start, len(alone), None


def shared_order_key(element: Row | KnownRows) -> Any:
    """Return what elements share that must not overtake each other in key_ordered mode.

    Known rows share nothing.
    """
    if isinstance(element, KnownRows):
        return id(element)
    return element.batch.order_keys[element.number]
