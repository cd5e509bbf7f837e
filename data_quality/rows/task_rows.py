"""The rows of a task as the checks read them: columns as numbers and flags, calls, faulty rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_quality.findings import ROWS_OF_EVIDENCE
from jobs.arrow_values import one_chunk, readable_rows
from jobs.schema import columns as schema
from jobs.schema.columns import INPUT_SEQ, PARTITION, SOURCE_ROW
from jobs.schema.facts import plain

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]
T = TypeVar("T")
More = Callable[[int], dict[str, Any]]  # further evidence of a row, besides its columns

OFFSETS_END = 2**31  # bytes; from here on a column of text needs offsets of 64 bits


@dataclass(frozen=True)
class Faults:
    """Rows that break a rule: their number, and the first rows, each with its sort key."""

    count: int
    rows: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = ()

    @classmethod
    def together(cls, parts: Iterable[Faults]) -> Faults:
        parts = list(parts)
        rows = sorted(
            (row for part in parts for row in part.rows), key=lambda row: _sortable(row[0])
        )
        return cls(sum(part.count for part in parts), tuple(rows[:ROWS_OF_EVIDENCE]))

    @property
    def evidence(self) -> list[dict[str, Any]]:
        return [row for _, row in self.rows]


def _sortable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((part is not None, part if part is not None else 0) for part in key)


def nothing_more(_row: int) -> dict[str, Any]:
    return {}


class TaskRows:
    """The rows of a task, or some of them. A null number is NaN: comparisons with it are false."""

    def __init__(self, table: pa.Table) -> None:
        if table.nbytes >= OFFSETS_END:
            table = table.cast(
                pa.schema([field.with_type(_wide(field.type)) for field in table.schema])
            )
        self.table = table.unify_dictionaries().combine_chunks()
        self._made: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> list[str]:
        return list(self.table.column_names)

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return a value that several checks share, computed at the first call."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

    def column(self, name: str) -> pa.Array:
        return one_chunk(self.table[name])

    def decoded(self, name: str) -> pa.Array:
        """Return a column without a dictionary."""
        column = self.column(name)
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

    @property
    def task(self) -> int:
        """The task of the first row."""
        return int(np.nan_to_num(self.numbers(PARTITION)[0], nan=-1))

    @property
    def source_rows(self) -> Places:
        """For each row its number in its input file; -1 without a number."""
        return np.nan_to_num(self.numbers(SOURCE_ROW), nan=-1).astype(np.int64)

    def numbers(self, name: str) -> Floats:
        """Return a column as floats, exact for integers up to 2**53; null becomes NaN, and NaN
        infinity, as Spark sorts.
        """

        def made() -> Floats:
            column = self.column(name)
            if pa.types.is_temporal(column.type):
                column = column.cast(pa.int64())
            return as_numbers(column)

        return self.once(("numbers", name), made)

    def is_null(self, name: str) -> Flags:
        return self.once(("null", name), lambda: flags(self.column(name).is_null()))

    def one_of(self, name: str, *values: Any) -> Flags:
        """Return where a column has any of these values; null matches none."""
        column = self.column(name)
        if not pa.types.is_dictionary(column.type):
            return flags(pc.is_in(column, value_set=pa.array(values, column.type)))
        wanted = np.append(np.isin(np.array(column.dictionary.to_pylist(), object), values), False)
        places = pc.fill_null(column.indices, len(wanted) - 1).to_numpy(zero_copy_only=False)
        found: Flags = wanted[places]
        return found

    def calls(self, lookup: str) -> Calls:
        return self.once(("calls", lookup), lambda: Calls.of(self.column(schema.attempts(lookup))))

    def faults(self, at_fault: Flags, columns: Iterable[str], more: More = nothing_more) -> Faults:
        places = np.flatnonzero(at_fault)
        if not len(places):
            return Faults(0)
        by = [PARTITION, INPUT_SEQ]
        order = np.lexsort(
            [np.nan_to_num(self.numbers(name)[places], nan=-1.0) for name in reversed(by)]
        )
        first = places[order[:ROWS_OF_EVIDENCE]]
        some = self.table.take(pa.array(first))
        keys = some.select(by).to_pylist()
        rows = readable_rows(some.select(list(dict.fromkeys(columns))))
        shown = [plain(row | more(int(place))) for row, place in zip(rows, first, strict=True)]
        return Faults(
            len(places),
            tuple((tuple(key.values()), row) for key, row in zip(keys, shown, strict=True)),
        )


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return the type with offsets of 64 bits for its texts and bytes, at any depth."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_wide(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_wide(kind.key_type), _wide(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_wide(kind.value_type)))
    return kind


def whole_number(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def flags(column: pa.Array) -> Flags:
    """Return the boolean array, with null as false."""
    found: Flags = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found


def as_numbers(column: pa.Array) -> Floats:
    numbers = column.cast(pa.float64(), safe=False)
    found: Floats = numbers.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        found = np.where(np.isnan(found) & ~flags(column.is_null()), np.inf, found)
    return found


@dataclass(frozen=True)
class Calls:
    """The attempts of a lookup, in the order of their rows; times in µs, NaN if missing."""

    counts: Places  # by row; the other fields are by attempt
    starts: Floats
    ends: Floats
    throttled: Flags

    @classmethod
    def of(cls, column: pa.Array) -> Calls:
        counts = (
            pc.fill_null(pc.list_value_length(column), 0)
            .to_numpy(zero_copy_only=False)
            .astype(np.int64)
        )
        attempts = column.flatten()
        start, end, throttled = (
            pc.struct_field(attempts, name) for name in ("start", "end", "throttled")
        )
        return cls(counts, as_numbers(start), as_numbers(end), flags(throttled))

    @cached_property
    def rows(self) -> Places:
        """The place of the row of each attempt."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def firsts(self) -> Places:
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def begun(self) -> Floats:
        return self._pick_rows(self.starts, self.firsts)

    @cached_property
    def ended(self) -> Floats:
        return self._pick_rows(self.ends, self.firsts + self.counts - 1)

    def _pick_rows(self, values: Floats, places: Places) -> Floats:
        found = np.full(len(self.counts), np.nan)
        called = self.counts > 0
        found[called] = values[places[called]]
        return found
