"""The files of a run as the checks see them: task by task, the rows of each in the order in which it wrote them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_quality.findings import ROWS_OF_EVIDENCE, plain
from jobs import schema
from jobs.schema import INPUT_SEQ, PARTITION, DeclaredFacts

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]
T = TypeVar("T")
More = Callable[[int], dict[str, Any]]  # of a row: what its evidence has beside its columns

_NUMBER_OF_A_TASKS_FILE = re.compile(r"-c(\d+)\.")  # part-00003-<uuid>-c012.snappy.parquet: the task's 13th file


@dataclass(frozen=True)
class Faults:
    """Rows that break a rule: how many, and the first of them, each behind what they are sorted by."""

    count: int
    rows: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = ()

    @classmethod
    def together(cls, parts: Iterable[Faults]) -> Faults:
        parts = list(parts)
        rows = sorted((row for part in parts for row in part.rows), key=lambda row: _sortable(row[0]))
        return cls(sum(part.count for part in parts), tuple(rows[:ROWS_OF_EVIDENCE]))

    @property
    def evidence(self) -> list[dict[str, Any]]:
        return [row for _, row in self.rows]


def _sortable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Nulls first."""
    return tuple((part is not None, part if part is not None else 0) for part in key)


def nothing_more(_row: int) -> dict[str, Any]:
    return {}


class TaskRows:
    """The rows of one task. Null is NaN where a column is taken as numbers, so that it fulfils no comparison."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.unify_dictionaries().combine_chunks()
        self._made: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> list[str]:
        return list(self.table.column_names)

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """What several checks need of these rows, made for the first of them."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

    def column(self, name: str) -> pa.Array:
        return array_of(self.table[name])

    def numbers(self, name: str) -> Floats:
        """A column of numbers, whole ones up to 2**53; NaN for null, and the infinite for NaN, as Spark sorts it."""

        def made() -> Floats:
            column = self.column(name)
            if pa.types.is_temporal(column.type):
                column = column.cast(pa.int64())
            return as_numbers(column)

        return self.once(("numbers", name), made)

    def is_null(self, name: str) -> Flags:
        return self.once(("null", name), lambda: flags(self.column(name).is_null()))

    def one_of(self, name: str, *values: Any) -> Flags:
        """Where a column has one of these values; a null is none of them."""
        column = self.column(name)
        if not pa.types.is_dictionary(column.type):
            return flags(pc.is_in(column, value_set=pa.array(values, column.type)))
        wanted = np.append(np.isin(np.array(column.dictionary.to_pylist(), object), values), False)
        places = pc.fill_null(column.indices, len(wanted) - 1).to_numpy(zero_copy_only=False)
        found: Flags = wanted[places]
        return found

    def counts_of(self, name: str) -> dict[Any, int]:
        """How often each value stands in a column."""
        return {one["values"]: one["counts"] for one in self.column(name).value_counts().to_pylist()}

    def calls(self, lookup: str) -> Calls:
        return self.once(("calls", lookup), lambda: Calls.of(self.column(schema.attempts(lookup))))

    def faults(self, at_fault: Flags, columns: Iterable[str], more: More = nothing_more) -> Faults:
        """The rows at fault in the order of the input, with these columns as evidence, and what `more` adds to each."""
        places = np.flatnonzero(at_fault)
        if not len(places):
            return Faults(0)
        by = [PARTITION, INPUT_SEQ]
        order = np.lexsort([np.nan_to_num(self.numbers(name)[places], nan=-1.0) for name in reversed(by)])
        first = places[order[:ROWS_OF_EVIDENCE]]
        some = self.table.take(pa.array(first))
        keys = some.select(by).to_pylist()
        rows = some.select(list(dict.fromkeys(columns))).to_pylist()
        shown = [plain(row | more(int(place))) for row, place in zip(rows, first, strict=True)]
        return Faults(len(places), tuple((tuple(key.values()), row) for key, row in zip(keys, shown, strict=True)))


def whole_number(value: float) -> int | None:
    """As evidence shows it."""
    return None if np.isnan(value) else int(value)


def array_of(column: pa.ChunkedArray) -> pa.Array:
    """One array: of no chunk, and of several, too."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def flags(column: pa.Array) -> Flags:
    """Null is false."""
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
    """The attempts of the rows of a task for one lookup, one after the other; times in µs, NaN where there is none."""

    counts: Places  # of each row
    starts: Floats
    ends: Floats
    throttled: Flags

    @classmethod
    def of(cls, column: pa.Array) -> Calls:
        counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        attempts = column.flatten()
        start, end, throttled = (pc.struct_field(attempts, name) for name in ("start", "end", "throttled"))
        return cls(counts, as_numbers(start), as_numbers(end), flags(throttled))

    @cached_property
    def rows(self) -> Places:
        """Of each attempt the place of its row."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def firsts(self) -> Places:
        """Of each row the place of its first attempt; of a row without one, that of the next."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def begun(self) -> Floats:
        """Of each row, when its first attempt began."""
        return self._of_rows(self.starts, self.firsts)

    @cached_property
    def ended(self) -> Floats:
        """Of each row, when its last attempt ended."""
        return self._of_rows(self.ends, self.firsts + self.counts - 1)

    def _of_rows(self, values: Floats, places: Places) -> Floats:
        found = np.full(len(self.counts), np.nan)
        called = self.counts > 0
        found[called] = values[places[called]]
        return found


@dataclass(frozen=True)
class Task:
    """Which rows one task wrote: those of its files, or of a table."""

    files: tuple[str, ...] = ()
    rows: pa.Table | None = None

    def read(self, dictionaries: list[str]) -> TaskRows:
        if self.rows is not None:
            return TaskRows(self.rows)
        tables = [pq.read_table(file, partitioning=None, read_dictionary=dictionaries) for file in self.files]
        return TaskRows(pa.concat_tables(tables, promote_options="default"))


class RunOutput:
    """What a run wrote; or any table with the audit columns, whose rows stand in the order of writing."""

    def __init__(self, declared: DeclaredFacts, columns: pa.Schema, tasks: list[Task]) -> None:
        self.columns = columns
        self.table: pa.Table | None = None  # of an output that is a table
        self._tasks = tasks
        few = [schema.SOURCE_FILE]
        for lookup in declared.lookups:
            few += [schema.status(lookup.name), schema.source(lookup.name), schema.published_status(lookup.name)]
        self._dictionaries = [name for name in few if name in columns.names]

    @classmethod
    def of_files(cls, declared: DeclaredFacts, files: Iterable[str]) -> RunOutput:
        """One task writes one file, or several in turn, each in the order in which its rows came."""
        ordered = sorted(files, key=_in_order_of_writing)
        footers = [pq.read_metadata(file) for file in ordered]
        columns = pa.unify_schemas(
            [one.schema.to_arrow_schema().remove_metadata() for one in footers] or [pa.schema([])]
        )
        written = [(file, footer) for file, footer in zip(ordered, footers, strict=True) if footer.num_rows]
        tasks: dict[int, list[str]] = {}
        rows: Counter[int] = Counter()
        for file, footer in written:
            number = _only_task(footer)
            if number is None:
                whole = Task(tuple(file for file, _ in written)).read([])
                return cls(declared, columns, _by_task(whole.table))
            tasks.setdefault(number, []).append(file)
            rows[number] += footer.num_rows
        # the longest first, so that none is left alone with one at the end
        return cls(declared, columns, [Task(tuple(tasks[number])) for number, _ in rows.most_common()])

    @classmethod
    def of_table(cls, declared: DeclaredFacts, table: pa.Table) -> RunOutput:
        output = cls(declared, table.schema, _by_task(table))
        output.table = table
        return output

    def missing(self, needed: Iterable[str]) -> str | None:
        """The reason for which a check that needs these columns cannot run, or None."""
        absent = [name for name in needed if len(self.columns) and name not in self.columns.names]
        return f"the files have no column {', '.join(absent)}" if absent else None

    def __len__(self) -> int:
        return len(self._tasks)

    def tasks(self) -> Iterator[Callable[[], TaskRows]]:
        """Each task, to be read when its rows are wanted."""
        for task in self._tasks:
            yield lambda task=task: task.read(self._dictionaries)  # type: ignore[misc]


def _in_order_of_writing(file: str) -> tuple[str, int, str]:
    """The counter as a number: as text, the thousandth file of a task would sort before its second."""
    name = Path(file).name
    counter = _NUMBER_OF_A_TASKS_FILE.search(name)
    return (name[: counter.start()], int(counter[1]), name) if counter else (name, 0, name)


def _only_task(footer: pq.FileMetaData) -> int | None:
    """The task of all rows of a file, by its statistics; None where they are of several, or not all say so."""
    names = footer.schema.names
    if PARTITION not in names:
        return 0
    place, found = names.index(PARTITION), set()
    for number in range(footer.num_row_groups):
        counted = footer.row_group(number).column(place).statistics
        if counted is None or not counted.has_min_max or counted.null_count:
            return None
        found |= {counted.min, counted.max}
    return found.pop() if len(found) == 1 else None


def _by_task(table: pa.Table) -> list[Task]:
    if PARTITION not in table.column_names:
        return [Task(rows=table)]
    numbers = table[PARTITION].combine_chunks()
    return [
        Task(rows=table.filter(numbers.is_null() if number is None else pc.equal(numbers, number)))
        for number in numbers.unique().to_pylist()
    ]
