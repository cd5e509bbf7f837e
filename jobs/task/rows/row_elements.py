"""The elements of a batch for the operators: slices of known rows, single rows, watermarks.

A slice is a single element. So the operators keep known rows in their place among the others: in
ordered mode they wait for the rows in front of them, in the other modes for the watermarks.
A watermark between two segments of only known rows is left out, and so are all watermarks in
ordered mode: they separate nothing.
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

Flags = np.ndarray  # a bool for each row of a batch
Numbers = np.ndarray  # numbers of rows in a batch


class RowElements:
    """The elements of a partition, batch by batch."""

    def __init__(self, lookups: Sequence[Lookup], mode: str) -> None:
        self._mode = mode
        self._fails_on = [pa.array(sorted(fails_on(lookup)), pa.string()) for lookup in lookups]
        self._settled = tuple(LookupState(None, is_settled=True) for _ in lookups)
        self._under_way: Counter[Any] = Counter()  # key_ordered: single rows by order key

    def split(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]]
    ) -> Iterator[StreamElement]:
        """Yield the elements of a batch, in the order of the mode; `keys` are by lookup and row."""
        if all(outcomes is None for outcomes in batch.known):
            elements = self._all_single(batch, keys)
        elif self._mode == "ordered":
            elements = self._in_order(batch, keys, self._find_single(batch))
        else:
            elements = self._by_segments(batch, keys, self._find_single(batch))
        return elements if self._mode != "key_ordered" else self._count_under_way(elements)

    def note_left(self, row: Row) -> None:
        """Note that the row has left the last operator; in key_ordered mode only."""
        key = shared_order_key(row)
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]

    def _count_under_way(self, elements: Iterator[StreamElement]) -> Iterator[StreamElement]:
        for element in elements:
            if isinstance(element, StreamRecord) and type(element.value) is Row:
                self._under_way[shared_order_key(element.value)] += 1
            yield element

    def _all_single(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]]
    ) -> Iterator[StreamElement]:
        watermarks = None if self._mode == "ordered" else batch.watermarks
        for row in rows_of(batch, keys):
            yield StreamRecord(row)
            if watermarks and (watermark := watermarks[row.number]) is not None:
                yield Watermark(watermark)

    def _in_order(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]], is_single: Flags
    ) -> Iterator[StreamElement]:
        numbers = np.arange(len(is_single))
        start = 0
        for row in self._rows(batch, keys, numbers[is_single]):
            if row.number > start:
                yield StreamRecord(KnownRows(batch, numbers[start : row.number], self._settled))
            yield StreamRecord(row)
            start = row.number + 1
        if start < len(is_single):
            yield StreamRecord(KnownRows(batch, numbers[start:], self._settled))

    def _by_segments(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]], is_single: Flags
    ) -> Iterator[StreamElement]:
        """Yield the known rows of each segment first, because a segment has no order inside.

        In key_ordered mode no known row has the order key of a called row.
        """
        rows = self._rows(batch, keys, np.flatnonzero(is_single))
        for start, stop, watermark in _segments(batch, is_single):
            known = start + np.flatnonzero(~is_single[start:stop])
            if len(known):
                yield StreamRecord(KnownRows(batch, known, self._settled))
            for _ in range(stop - start - len(known)):
                yield StreamRecord(next(rows))
            if watermark is not None:
                yield Watermark(watermark)

    def _find_single(self, batch: InputBatch) -> Flags:
        """Return which rows are single elements, not part of a slice.

        Such a row needs a call, fails the run, or is known but must not overtake another row of its
        order key.
        """
        is_single = np.zeros(len(batch.sequence), np.bool_)
        for outcomes, failing in zip(batch.known, self._fails_on, strict=True):
            if outcomes is None:
                is_single[:] = True
                return is_single
            is_single |= pc.is_null(outcomes["status"]).to_numpy(zero_copy_only=False)
            if len(failing):
                is_single |= pc.is_in(outcomes["status"], value_set=failing).to_numpy(
                    zero_copy_only=False
                )
        if self._mode == "key_ordered" and (self._under_way or is_single.any()):
            called = {batch.order_keys[number] for number in np.flatnonzero(is_single).tolist()}
            called |= self._under_way.keys()
            is_single |= np.fromiter(
                (key in called for key in batch.order_keys), np.bool_, len(is_single)
            )
        return is_single

    def _rows(
        self, batch: InputBatch, keys: Sequence[Sequence[Key | None]], numbers: Numbers
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
        for number, *outcomes_of_row in zip(numbers.tolist(), *known, strict=True):
            states = (
                LookupState(
                    keys_of_lookup[number], status, error=error, is_settled=status is not None
                )
                for keys_of_lookup, (status, error) in zip(keys, outcomes_of_row, strict=True)
            )
            yield Row(batch, number, tuple(states))


def _segments(batch: InputBatch, is_single: Flags) -> Iterator[tuple[int, int, int | None]]:
    """Yield the first row, the end and the watermark of each segment.

    Adjacent segments with only known rows are merged, except for the first and the last segment of
    the batch, which continue in other batches.
    """
    watermarks = batch.watermarks or [None] * len(is_single)
    called = np.concatenate(([0], np.cumsum(is_single)))
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
    if start < len(is_single):
        yield start, len(is_single), None


def shared_order_key(element: Row | KnownRows) -> Any:
    """Return what elements share that must not overtake each other in key_ordered mode.

    Known rows share nothing.
    """
    if isinstance(element, KnownRows):
        return id(element)
    return element.batch.order_keys[element.number]
