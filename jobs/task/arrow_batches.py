"""Arrow at both ends of a partition: what is read from an input batch, and how finished rows become output batches.

Only key columns and the event time become Python objects; every other column is carried over by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs import schema
from jobs.declare.answer_types import AnswerColumn
from jobs.input.arrow_keys import keys_of
from jobs.task.lookup_state import LookupState, Row

FAILED = frozenset(("timeout", "error", "unknown"))
ATTEMPT = schema.AUDIT_TABLE[2].arrow_type.value_type
TIMESTAMP = schema.PUBLISHED_TABLE[1].arrow_type


@dataclass(frozen=True)
class BatchLayout:
    """Which columns of an input batch are what. Plain data: it travels to the executors."""

    carried: tuple[str, ...]  # handed on untouched, in this order
    keys: tuple[tuple[str, ...], ...]  # per lookup: the columns that hold its key
    order_key: tuple[str, ...]  # key_ordered only
    event_time: str | None
    max_out_of_orderness_ms: int
    lookups: tuple[str, ...]
    answers: tuple[tuple[AnswerColumn, ...], ...]
    key_names: tuple[tuple[str, ...], ...] = ()  # per lookup: what its parts of a key are called; none: not written


class InputBatch:
    """One batch with what its rows need until they leave: carried columns, segments, late flags, timestamps."""

    def __init__(self, batch: pa.RecordBatch, layout: BatchLayout, first_seq: int, event_times: EventTimes) -> None:
        kept = [name for names in layout.keys for name in names] if layout.key_names else []
        self.carried = batch.select([*layout.carried, *kept])
        self.first_seq = first_seq
        self.order_keys = keys_of(batch, layout.order_key, nulls=True) if layout.order_key else None
        column = None if layout.event_time is None else batch.column(layout.event_time)
        self.timestamps, self.watermarks, self.segments, self.late = event_times.read(column, batch.num_rows)

    def source_of(self, number: int) -> tuple[str | None, int | None]:
        """The file that a row was read from, and its number there; None where Spark cannot tell."""
        file, row = (self.carried.column(name)[number].as_py() for name in schema.SOURCE_IDENTITY)
        return file, row


class EventTimes:
    """Watermarks over a partition, a batch at a time; the rule of WatermarkStrategy.for_bounded_out_of_orderness,
    vectorized.

    After each row the watermark is max event time - bound - 1 ms, and is emitted when it grew. A row is late when its
    time is at or before the last one emitted. A null event time is never late and moves nothing.
    """

    def __init__(self, bound_ms: int) -> None:
        self._bound = bound_ms
        self._max: int | None = None
        self._emitted = 0

    def read(
        self, column: pa.Array | None, rows: int
    ) -> tuple[list[int | None] | None, list[int | None] | None, np.ndarray, np.ndarray]:
        """Timestamps (ms), the watermark after each row (None: it did not grow), segments, late flags."""
        if column is None or rows == 0:
            return None, None, np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        micros = column.cast(TIMESTAMP) if not pa.types.is_timestamp(column.type) else column
        micros = micros.cast(pa.timestamp("us", tz=micros.type.tz)).cast(pa.int64())
        nulls = np.asarray(pc.is_null(micros))
        lowest = np.iinfo(np.int64).min // 2
        times = np.floor_divide(np.asarray(micros.fill_null(0)), 1000)
        known = np.where(nulls, lowest, times)
        start = lowest if self._max is None else self._max
        highest = np.maximum.accumulate(np.maximum(known, start))
        before = np.concatenate(([start], highest[:-1]))
        grew = highest > before
        segments = self._emitted + np.concatenate(([0], np.cumsum(grew)[:-1]))
        late = ~nulls & (before > lowest) & (known <= before - self._bound - 1)
        if highest[-1] > lowest:
            self._max = int(highest[-1])
        self._emitted += int(grew.sum())
        timestamps = [None if null else time for null, time in zip(nulls.tolist(), times.tolist(), strict=True)]
        marks = (highest - self._bound - 1).tolist()
        return timestamps, [m if g else None for m, g in zip(marks, grew.tolist(), strict=True)], segments, late


class Assembler:
    """Turns finished rows, in the order they came out, into output batches with the columns of `written_schema`."""

    def __init__(self, layout: BatchLayout, partition: int) -> None:
        self._layout = layout
        self._partition = partition
        self._written = 0

    def batch(self, rows: list[Row]) -> pa.RecordBatch:
        """One output batch; rows is not empty."""
        of_rows, numbers, asked_of_rows = zip(*rows, strict=True)
        carried, sequence, segments, late = _gathered(of_rows, numbers)
        count = len(rows)
        columns: dict[str, Any] = {}
        sources = {schema.SOURCE_FILE, schema.SOURCE_ROW}
        for name in self._layout.carried:
            if name not in sources:
                columns[name] = carried.column(name)
        asked_by_lookup = list(zip(*asked_of_rows, strict=True))
        for name, answers, asked in zip(self._layout.lookups, self._layout.answers, asked_by_lookup, strict=True):
            columns |= _answer_columns(name, answers, asked)
        columns[schema.PARTITION] = pa.array(np.full(count, self._partition, np.int32))
        columns[schema.INPUT_SEQ] = pa.array(sequence)
        columns[schema.OUTPUT_SEQ] = pa.array(np.arange(self._written, self._written + count))
        columns[schema.SEGMENT] = pa.array(segments)
        columns[schema.LATE] = pa.array(late)
        columns[schema.SOURCE_FILE] = carried.column(schema.SOURCE_FILE)
        columns[schema.SOURCE_ROW] = carried.column(schema.SOURCE_ROW)
        for name, asked in zip(self._layout.lookups, asked_by_lookup, strict=True):
            columns |= _audit_columns(name, asked, columns[schema.published_status(name)])
        layout = self._layout
        for name, keys, called in zip(layout.lookups, layout.keys, layout.key_names, strict=False):
            parts = [_one_chunk(carried.column(key)) for key in keys]
            columns[schema.key(name)] = pa.StructArray.from_arrays(parts, names=list(called))
        self._written += count
        names = list(columns)
        arrays = [_one_chunk(column) for column in columns.values()]
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _one_chunk(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _gathered(of_rows: Sequence[InputBatch], numbers: Sequence[int]) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """The carried columns of these rows, with their input sequence, segments and late flags."""
    indices = np.fromiter(numbers, np.int64, len(numbers))
    batches = dict(zip(map(id, of_rows), of_rows, strict=True))
    if len(batches) == 1:
        (source,) = batches.values()
        carried = _chosen(source.carried, indices)
        return carried, source.first_seq + indices, source.segments[indices], source.late[indices]
    offsets: dict[int, int] = {}
    total = 0
    for identity, batch in batches.items():
        offsets[identity] = total
        total += batch.carried.num_rows
    positions = np.fromiter(map(offsets.__getitem__, map(id, of_rows)), np.int64, len(of_rows)) + indices
    table = pa.Table.from_batches([batch.carried for batch in batches.values()])
    sequences = np.concatenate([b.first_seq + np.arange(b.carried.num_rows) for b in batches.values()])
    segments = np.concatenate([batch.segments for batch in batches.values()])
    late = np.concatenate([batch.late for batch in batches.values()])
    return _chosen(table, positions), sequences[positions], segments[positions], late[positions]


def _chosen(carried: Any, positions: np.ndarray) -> Any:
    """These rows; in ordered mode they nearly always follow each other, and nothing need be copied."""
    if positions[-1] - positions[0] == len(positions) - 1 and bool((np.diff(positions) == 1).all()):
        return carried.slice(int(positions[0]), len(positions))
    return carried.take(pa.array(positions))


def _answer_columns(name: str, answers: tuple[AnswerColumn, ...], asked: Sequence[LookupState]) -> dict[str, pa.Array]:
    nothing = (None,) * len(answers)
    values = zip(*[one.answer or nothing for one in asked], strict=True)
    columns = {answer.name: pa.array(column, answer.arrow_type) for answer, column in zip(answers, values, strict=True)}
    columns[schema.published_status(name)] = _few_texts([one.status for one in asked])
    columns[schema.published_answered_at(name)] = pa.array([one.answered_at for one in asked], pa.int64()).cast(
        TIMESTAMP
    )
    return columns


def _few_texts(texts: list[str | None]) -> pa.Array:
    """As pa.array, for a column that mostly says the same."""
    first = texts[0]
    if texts.count(first) == len(texts):
        return pa.nulls(len(texts), pa.string()) if first is None else pa.repeat(first, len(texts))
    return pa.array(texts, pa.string())


def _audit_columns(name: str, asked: Sequence[LookupState], statuses: pa.Array) -> dict[str, pa.Array]:
    attempts = [one.attempts for one in asked]
    starts, ends, throttled = zip(*flat, strict=True) if (flat := list(chain.from_iterable(attempts))) else ((), (), ())
    counts = np.fromiter(map(len, attempts), np.int32, len(asked))
    offsets = np.zeros(len(asked) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    begun = pa.array(starts, pa.int64())
    written = pa.ListArray.from_arrays(
        pa.array(offsets),
        pa.StructArray.from_arrays(
            [begun, pa.array(ends, pa.int64()), pa.array(throttled, pa.bool_())], fields=list(ATTEMPT)
        ),
    )
    uncalled = counts == 0
    first = begun.take(pa.array(offsets[:-1], mask=uncalled))
    paused = np.fromiter([one.paused for one in asked], np.float64, len(asked))
    errors = [one.error for one in asked]
    if any(errors):
        errors = [one.error if one.status in FAILED else None for one in asked]
    lasted = pc.subtract(pa.array([one.finished for one in asked], pa.int64()), first)
    return {
        schema.status(name): statuses,
        schema.source(name): _few_texts([one.source for one in asked]),
        schema.attempts(name): written,
        schema.latency_ms(name): pc.divide(lasted.cast(pa.float64()), 1e3),
        schema.paused_ms(name): pa.array(paused * 1e3, mask=uncalled),
        schema.error(name): _few_texts(errors),
    }
