"""Reads a run's files for the checks, by part or whole task, in the order of writing."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_quality.findings import ROWS_OF_EVIDENCE, plain
from data_quality.rows.column_types import STRUCT, spark_name, unified, written_types
from jobs.arrow_values import readable_rows
from jobs.schema import columns as schema
from jobs.schema.columns import INPUT_SEQ, PARTITION
from jobs.schema.records import DeclaredFacts
from jobs.storage.parquet_files import open_parquet, read_footer

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]
T = TypeVar("T")
More = Callable[[int], dict[str, Any]]  # further evidence of a row, besides its columns

ROWS_AT_ONCE = 250_000  # rows of a part, with all columns about 600 bytes each in memory
BYTES_AT_ONCE = 256 * 2**20  # of a part, as the row groups' footers count them
OFFSETS_END = 2**31  # bytes; from here on a column of text needs offsets of 64 bits
# part-00003-<uuid>-c012.snappy.parquet: the task's 13th file
_NUMBER_OF_A_TASKS_FILE = re.compile(r"-c(\d+)\.")


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
        """Returns a value that several checks share, computed at the first call."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

    def column(self, name: str) -> pa.Array:
        return as_array(self.table[name])

    def numbers(self, name: str) -> Floats:
        """Returns a column as floats, exact for integers up to 2**53; null becomes NaN, and NaN
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
        """Returns where a column has any of these values; null matches none."""
        column = self.column(name)
        if not pa.types.is_dictionary(column.type):
            return flags(pc.is_in(column, value_set=pa.array(values, column.type)))
        wanted = np.append(np.isin(np.array(column.dictionary.to_pylist(), object), values), False)
        places = pc.fill_null(column.indices, len(wanted) - 1).to_numpy(zero_copy_only=False)
        found: Flags = wanted[places]
        return found

    def counts_of(self, name: str) -> dict[Any, int]:
        return {
            one["values"]: one["counts"] for one in self.column(name).value_counts().to_pylist()
        }

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
    """Returns the type with offsets of 64 bits for its texts and bytes, at any depth."""
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


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """Returns a single array, also for no chunks or several."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def flags(column: pa.Array) -> Flags:
    """Returns the boolean array, with null as false."""
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
    """The attempts of these rows for a lookup, in sequence; times in µs, NaN if missing."""

    counts: Places  # of each row
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


class RowGroup(NamedTuple):
    file: str
    number: int
    rows: int
    bytes: int  # uncompressed


@dataclass(frozen=True)
class Task:
    """The rows of a task, or a part of them: row groups of its files, or rows of a table."""

    groups: tuple[RowGroup, ...] = ()
    table: pa.Table | None = None

    @property
    def rows(self) -> int:
        return (
            sum(group.rows for group in self.groups) if self.table is None else self.table.num_rows
        )

    def parts(self) -> Iterator[Task]:
        """Yields parts of at most ROWS_AT_ONCE and BYTES_AT_ONCE, but at least a row group."""
        if self.table is not None:
            for start in range(0, max(1, self.table.num_rows), ROWS_AT_ONCE):
                yield Task(table=self.table.slice(start, ROWS_AT_ONCE))
            return
        part: list[RowGroup] = []
        for group in self.groups:
            together = [*part, group]
            if part and (
                sum(one.rows for one in together) > ROWS_AT_ONCE
                or sum(one.bytes for one in together) > BYTES_AT_ONCE
            ):
                yield Task(tuple(part))
                part = []
            part.append(group)
        yield Task(tuple(part))

    def read(
        self,
        dictionaries: list[str],
        columns: list[str] | None = None,
        called: Collection[str] = (),
    ) -> TaskRows:
        """called: columns of attempts, to read only the rows that have any."""
        if self.table is not None:
            return TaskRows(self.table)
        tables = []
        for name, groups in itertools.groupby(self.groups, lambda group: group.file):
            with open_parquet(name, read_dictionary=dictionaries) as file:
                if called:
                    tables += [
                        _with_attempts(file.read_row_group(group.number, columns=columns), called)
                        for group in groups
                    ]
                else:
                    tables.append(
                        file.read_row_groups([group.number for group in groups], columns=columns)
                    )
        return TaskRows(pa.concat_tables(tables, promote_options="default"))


class RunOutput:
    def __init__(
        self,
        declared: DeclaredFacts,
        columns: pa.Schema,
        tasks: list[Task],
        unlike: Mapping[str, str] | None = None,
    ) -> None:
        """unlike: for each column whose files differ in type, a sentence; no check reads these."""
        self.columns = columns
        self.table: pa.Table | None = None  # the table itself, if the output is a table
        self.unlike = unlike or {}
        self._tasks = tasks
        self._kinds = written_types(declared)
        few = [schema.SOURCE_FILE]
        for lookup in declared.lookups:
            few += [
                schema.status(lookup.name),
                schema.source(lookup.name),
                schema.published_status(lookup.name),
            ]
        self._dictionaries = [name for name in few if self._is_text(name)]

    @classmethod
    def of_files(cls, declared: DeclaredFacts, files: Iterable[str]) -> RunOutput:
        """Reads the footers. A task writes its rows in order to a file, or to several."""
        ordered = sorted(files, key=_in_order_of_writing)
        footers = [read_footer(file) for file in ordered]
        columns, unlike = unified(
            {file: one.schema.to_arrow_schema() for file, one in zip(ordered, footers, strict=True)}
        )
        alike = [name for name in columns.names if name not in unlike]
        written = {
            file: footer for file, footer in zip(ordered, footers, strict=True) if footer.num_rows
        }
        groups = {
            file: [
                RowGroup(file, number, group.num_rows, group.total_byte_size)
                for number in range(footer.num_row_groups)
                for group in [footer.row_group(number)]
            ]
            for file, footer in written.items()
        }
        tasks: dict[int, list[RowGroup]] = {}
        rows: Counter[int] = Counter()
        for file, footer in written.items():
            number = _only_task(footer)
            if number is None:
                whole = Task(tuple(itertools.chain(*groups.values()))).read([], alike)
                return cls(declared, columns, _by_task(whole.table), unlike)
            tasks.setdefault(number, []).extend(groups[file])
            rows[number] += footer.num_rows
        # the longest first, so that no core ends alone with a long task
        return cls(
            declared,
            columns,
            [Task(tuple(tasks[number])) for number, _ in rows.most_common()],
            unlike,
        )

    @classmethod
    def of_table(cls, declared: DeclaredFacts, table: pa.Table) -> RunOutput:
        output = cls(declared, table.schema, _by_task(table))
        output.table = table
        return output

    def _is_text(self, name: str) -> bool:
        """Returns whether a column is text in all files, not nested: it can be a dictionary."""
        if name not in self.columns.names or name in self.unlike:
            return False
        kind = self.columns.field(name).type
        return bool(
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_dictionary(kind)
        )

    def wrong(self, needed: Iterable[str]) -> str | None:
        """Returns why the files cannot be judged by these columns, or None."""
        needed = list(dict.fromkeys(needed)) if len(self.columns) else []
        absent = [name for name in needed if name not in self.columns.names]
        if absent:
            return f"the files have no column {', '.join(absent)}"
        wrong = (self.unlike.get(name) or self._wrong_type(name) for name in needed)
        return "; ".join(text for text in wrong if text) or None

    def _wrong_type(self, name: str) -> str | None:
        kind = self.columns.field(name).type
        wanted = self._kinds.get(name)
        if (
            wanted is None
            or (wanted == STRUCT and pa.types.is_struct(kind))
            or spark_name(kind) == wanted
        ):
            return None
        if self.table is not None and wanted in ("int", "bigint") and pa.types.is_integer(kind):
            return None  # another program may choose another width
        return f"{name} is {spark_name(kind)} in the files; it must be {wanted}"

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def rows(self) -> int:
        return sum(task.rows for task in self._tasks)

    def parts(self) -> Iterator[Callable[[], TaskRows]]:
        names = (
            [name for name in self.columns.names if name not in self.unlike]
            if self.unlike
            else None
        )
        for task in self._tasks:
            for part in task.parts():
                yield partial(part.read, self._dictionaries, names)

    def tasks(
        self, columns: Iterable[str], called: Collection[str] = ()
    ) -> Iterator[Callable[[], TaskRows]]:
        """Yields all rows of each task, or those with attempts in any column of `called`."""
        wanted = set(columns)
        names = [name for name in self.columns.names if name in wanted and name not in self.unlike]
        for task in self._tasks:
            dictionaries = [name for name in self._dictionaries if name in wanted]
            yield partial(task.read, dictionaries, names, called)


def _with_attempts(rows: pa.Table, columns: Collection[str]) -> pa.Table:
    made = np.zeros(len(rows), np.int64)
    for name in columns:
        made += pc.fill_null(pc.list_value_length(rows[name]), 0).to_numpy()
    return rows.filter(pa.array(made > 0))


def _in_order_of_writing(file: str) -> tuple[str, int, str]:
    """Sorts by the counter as a number: as text, the thousandth file would precede the second."""
    name = Path(file).name
    counter = _NUMBER_OF_A_TASKS_FILE.search(name)
    return (name[: counter.start()], int(counter[1]), name) if counter else (name, 0, name)


def _only_task(footer: pq.FileMetaData) -> int | None:
    """Returns a file's only task by statistics; None for several tasks or without statistics."""
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
        return [Task(table=table)]
    numbers = table[PARTITION].combine_chunks()
    return [
        Task(table=table.filter(numbers.is_null() if number is None else pc.equal(numbers, number)))
        for number in numbers.unique().to_pylist()
    ]
