"""Arrow at both ends of a partition: reads input batches and assembles output batches.

Only key columns and the event time become Python objects; every other column is carried over by
position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.arrow_values import digest, one_chunk, plus_zero
from jobs.declare.answers.answer_casts import AnswerColumn
from jobs.input.keys.key_values import Values
from jobs.schema import columns as schema
from jobs.task.lookup.lookup_state import KnownRows, LookupState, Row
from jobs.task.rows.choices import Choice
from jobs.task.rows.outcome_columns import TIMESTAMP, answer_columns, audit_columns, build_outcomes
from jobs.task.windows.arrival import NEVER, event_times_ms


@dataclass(frozen=True)
class BatchLayout:
    """The roles of the columns of an input batch. Plain data, sent to the executors."""

    carried: tuple[str, ...]  # copied unchanged, in this order
    keys: tuple[tuple[str, ...], ...]  # per lookup: the columns that hold its key
    order_key: tuple[str, ...]  # key_ordered only
    event_time: str | None
    max_out_of_orderness_ms: int
    lookups: tuple[str, ...]
    answers: tuple[tuple[AnswerColumn, ...], ...]
    key_names: tuple[tuple[str, ...], ...] = ()  # per lookup: the key's parts; empty: not written
    # per lookup that reads earlier answers: its key columns, made in the task; empty: no chains
    chained: tuple[Mapping[str, Values], ...] = ()
    # per lookup: the boolean column of `when`, if a null key fails where it holds; empty: none
    wanted: tuple[str | None, ...] = ()
    choices: tuple[Choice, ...] = ()  # the waterfalls

    def made(self, place: int) -> Mapping[str, Values]:
        """Return the key columns that a task makes for a lookup that reads answers; else none."""
        return self.chained[place] if self.chained else {}


class InputBatch:
    """A batch with the data of its rows until they leave.

    It holds carried columns, segments, late flags and watermarks; and per lookup the outcomes known
    before any call, with a null status for rows that need a call.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        layout: BatchLayout,
        first_seq: int,
        event_times: EventTimes,
        known: Sequence[pa.RecordBatch | None] = (),
    ) -> None:
        kept = [name for names in layout.keys for name in names] if layout.key_names else []
        self.carried = batch.select([*layout.carried, *kept])
        self.sequence = np.arange(first_seq, first_seq + batch.num_rows)
        self.known: Sequence[pa.RecordBatch | None] = known or (None,) * len(layout.lookups)
        self._order_key = batch.select(layout.order_key)
        column = None if layout.event_time is None else batch.column(layout.event_time)
        self.watermarks, self.segments, self.late = event_times.read(column, batch.num_rows)

    @cached_property
    def order_keys(self) -> list[int]:
        """Equal numbers for rows of an equal order key, as the check `order_held` counts it."""
        numbers: list[int] = digest(map(plus_zero, self._order_key.columns)).tolist()
        return numbers

    def row_source(self, number: int) -> tuple[str | None, int | None]:
        """Return a row's source file and its number in it; None if Spark does not know them."""
        file, row = (self.carried.column(name)[number].as_py() for name in schema.SOURCE_IDENTITY)
        return file, row


class EventTimes:
    """Watermarks over a partition, a batch at a time.

    It vectorizes the rule of WatermarkStrategy.for_bounded_out_of_orderness: after each row the
    watermark is max event time - bound - 1 ms, and is emitted when it grew. A row is late when its
    time is at or before the last emitted watermark. A null event time is never late and moves
    nothing.
    """

    def __init__(self, bound_ms: int) -> None:
        self._bound = bound_ms
        self._max = NEVER
        self._emitted = 0

    def read(
        self, column: pa.Array | None, rows: int
    ) -> tuple[list[int | None] | None, np.ndarray, np.ndarray]:
        """Return the watermark after each row in ms (None: not grown), segments, late flags."""
        if column is None or rows == 0:
            return None, np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        times = event_times_ms(
            column if pa.types.is_timestamp(column.type) else column.cast(TIMESTAMP)
        )
        highest = np.maximum.accumulate(np.maximum(times, self._max))
        before = np.concatenate(([self._max], highest[:-1]))
        grew = highest > before
        segments = self._emitted + np.concatenate(([0], np.cumsum(grew)[:-1]))
        late = (times > NEVER) & (before > NEVER) & (times <= before - self._bound - 1)
        self._max = int(highest[-1])
        self._emitted += int(grew.sum())
        marks = (highest - self._bound - 1).tolist()
        return [m if g else None for m, g in zip(marks, grew.tolist(), strict=True)], segments, late


class Assembler:
    """Turns finished rows, in output order, into batches with the columns of `written_schema`."""

    def __init__(self, layout: BatchLayout, partition: int) -> None:
        self._layout = layout
        self._partition = partition
        self._written = 0

    def batch(self, finished: Sequence[Row | KnownRows]) -> pa.RecordBatch:
        """Return an output batch; finished is not empty."""
        rows, called, places = _gathered(finished)
        layout, count = self._layout, rows.carried.num_rows
        outcomes = [
            _with_called(rows.known[place], answers, [row.asked[place] for row in called], places)
            for place, answers in enumerate(layout.answers)
        ]
        columns: dict[str, Any] = {}
        for name in layout.carried:
            if name not in schema.SOURCE_IDENTITY:
                columns[name] = rows.carried.column(name)
        for name, answers, of_lookup in zip(layout.lookups, layout.answers, outcomes, strict=True):
            columns |= answer_columns(name, answers, of_lookup)
        for choice in layout.choices:
            columns |= choice.columns(columns, count)
        columns[schema.PARTITION] = pa.array(np.full(count, self._partition, np.int32))
        columns[schema.INPUT_SEQ] = pa.array(rows.sequence)
        columns[schema.OUTPUT_SEQ] = pa.array(np.arange(self._written, self._written + count))
        columns[schema.SEGMENT] = pa.array(rows.segments)
        columns[schema.LATE] = pa.array(rows.late)
        columns[schema.SOURCE_FILE] = rows.carried.column(schema.SOURCE_FILE)
        columns[schema.SOURCE_ROW] = rows.carried.column(schema.SOURCE_ROW)
        for name, of_lookup in zip(layout.lookups, outcomes, strict=True):
            columns |= audit_columns(name, of_lookup)
        for name, keys, parts in zip(layout.lookups, layout.keys, layout.key_names, strict=False):
            of_key = [one_chunk(rows.carried.column(key)) for key in keys]
            columns[schema.key(name)] = pa.StructArray.from_arrays(of_key, names=list(parts))
        self._written += count
        names = list(columns)
        arrays = [one_chunk(column) for column in columns.values()]
        return pa.RecordBatch.from_arrays(arrays, names=names)


@dataclass(frozen=True)
class _Columns:
    """Columns of rows of some batches: of the input, and outcomes known before any call."""

    carried: Any
    sequence: np.ndarray
    segments: np.ndarray
    late: np.ndarray
    known: Sequence[Any]  # per lookup; None: no known outcomes of these rows

    def at(self, positions: np.ndarray) -> _Columns:
        return _Columns(
            _chosen(self.carried, positions),
            self.sequence[positions],
            self.segments[positions],
            self.late[positions],
            [None if outcomes is None else _chosen(outcomes, positions) for outcomes in self.known],
        )


def _gathered(finished: Sequence[Row | KnownRows]) -> tuple[_Columns, list[Row], np.ndarray]:
    """Return the columns of these rows in order; and the single rows, with their places."""
    batches: dict[int, InputBatch] = {}
    offsets: dict[int, int] = {}
    positions: list[np.ndarray] = []
    called: list[Row] = []
    places = [np.empty(0, np.int64)]
    rows_so_far = count = 0
    for kind, group in groupby(finished, type):
        items: list[Any] = list(group)
        sources, numbers, _ = zip(*items, strict=True)
        for identity, batch in dict(zip(map(id, sources), sources, strict=True)).items():
            if identity not in batches:
                batches[identity], offsets[identity] = batch, rows_so_far
                rows_so_far += batch.carried.num_rows
        starts = np.fromiter(map(offsets.__getitem__, map(id, sources)), np.int64, len(items))
        if kind is Row:
            called += items
            places.append(np.arange(count, count + len(items)))
            positions.append(starts + np.fromiter(numbers, np.int64, len(items)))
        else:
            positions += [start + some for start, some in zip(starts, numbers, strict=True)]
        count = sum(map(len, positions))
    return (
        _columns(list(batches.values())).at(np.concatenate(positions)),
        called,
        np.concatenate(places),
    )


def _columns(batches: Sequence[InputBatch]) -> _Columns:
    """Concatenate the columns of these batches."""
    if len(batches) == 1:
        (batch,) = batches
        return _Columns(batch.carried, batch.sequence, batch.segments, batch.late, batch.known)
    return _Columns(
        pa.Table.from_batches([batch.carried for batch in batches]),
        np.concatenate([batch.sequence for batch in batches]),
        np.concatenate([batch.segments for batch in batches]),
        np.concatenate([batch.late for batch in batches]),
        [
            _known(batches, of_lookup)
            for of_lookup in zip(*(batch.known for batch in batches), strict=True)
        ],
    )


def _known(
    batches: Sequence[InputBatch], outcomes: Sequence[pa.RecordBatch | None]
) -> pa.Table | None:
    kinds = [outcome.schema for outcome in outcomes if outcome is not None]
    if not kinds:
        return None
    return pa.Table.from_batches(
        [
            _no_outcomes(batch.carried.num_rows, kinds[0]) if outcome is None else outcome
            for batch, outcome in zip(batches, outcomes, strict=True)
        ]
    )


def _no_outcomes(rows: int, kind: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in kind], schema=kind)


def _chosen(columns: Any, positions: np.ndarray) -> Any:
    """Return these rows; in ordered mode they are nearly always consecutive and need no copy."""
    if positions[-1] - positions[0] == len(positions) - 1 and bool((np.diff(positions) == 1).all()):
        return columns.slice(int(positions[0]), len(positions))
    return columns.take(pa.array(positions))


def _with_called(
    known: Any, answers: Sequence[AnswerColumn], states: list[LookupState], places: np.ndarray
) -> Any:
    if known is None:
        return build_outcomes(states, answers)
    are_open = np.fromiter((not state.is_settled for state in states), np.bool_, len(states))
    if not are_open.any():
        return known
    fresh = build_outcomes([state for state in states if not state.is_settled], answers)
    lines = np.arange(known.num_rows)
    lines[places[are_open]] = known.num_rows + np.arange(fresh.num_rows)
    batches = known.to_batches() if isinstance(known, pa.Table) else [known]
    return pa.Table.from_batches([*batches, fresh]).take(pa.array(lines))
