"""Reads a run's files for the checks, by part or whole task, in the order of writing."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_quality.rows.column_types import (
    STRUCT,
    declared_name,
    spark_name,
    unified,
    written_types,
)
from data_quality.rows.task_rows import TaskRows
from jobs.schema import columns as schema
from jobs.schema.columns import PARTITION
from jobs.schema.records import DeclaredFacts
from jobs.storage.parquet_files import open_parquet, read_footer

ROWS_AT_ONCE = 250_000  # rows of a part, with all columns about 600 bytes each in memory
BYTES_AT_ONCE = 64 * 2**20  # of a part, as the row groups' footers count them
# part-00003-<uuid>-c012.snappy.parquet: the task's 13th file
_NUMBER_OF_A_TASKS_FILE = re.compile(r"-c(\d+)\.")


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
        """Yield parts of at most ROWS_AT_ONCE and BYTES_AT_ONCE, but at least a row group."""
        if self.table is not None:
            for start in range(0, max(1, self.table.num_rows), ROWS_AT_ONCE):
                yield Task(table=self.table.slice(start, ROWS_AT_ONCE))
            return
        part: list[RowGroup] = []
        rows = size = 0
        for group in self.groups:
            rows, size = rows + group.rows, size + group.bytes
            if part and (rows > ROWS_AT_ONCE or size > BYTES_AT_ONCE):
                yield Task(tuple(part))
                part, rows, size = [], group.rows, group.bytes
            part.append(group)
        yield Task(tuple(part))

    def read(
        self,
        dictionaries: list[str],
        columns: list[str] | None = None,
        called: Collection[str] = (),
    ) -> TaskRows:
        """Read the rows; with `called` (columns of attempts, which `columns` must include) only
        rows with an attempt in any of them.
        """
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
        """Take the files' columns and the tasks that wrote rows.

        `unlike` has a sentence for each column whose type differs among the files; no check reads
        such a column.
        """
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
        """Read the footers. A task writes its rows in order to a file, or to several."""
        ordered = sorted(files, key=_in_order_of_writing)
        footers = [read_footer(file) for file in ordered]
        columns, unlike = unified(
            {
                file: footer.schema.to_arrow_schema()
                for file, footer in zip(ordered, footers, strict=True)
            }
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
            task = _only_task(footer)
            if task is None:
                whole = Task(tuple(itertools.chain(*groups.values()))).read([], alike)
                return cls(declared, columns, _by_task(whole.table), unlike)
            tasks.setdefault(task, []).extend(groups[file])
            rows[task] += footer.num_rows
        # the longest first, so that no core ends alone with a long task
        return cls(
            declared, columns, [Task(tuple(tasks[task])) for task, _ in rows.most_common()], unlike
        )

    @classmethod
    def of_table(cls, declared: DeclaredFacts, table: pa.Table) -> RunOutput:
        output = cls(declared, table.schema, _by_task(table))
        output.table = table
        return output

    def _is_text(self, name: str) -> bool:
        """Return whether a column is text in all files, not nested: it can be a dictionary."""
        if name not in self.columns.names or name in self.unlike:
            return False
        kind = self.columns.field(name).type
        return bool(
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_dictionary(kind)
        )

    def wrong(self, needed: Iterable[str]) -> str | None:
        """Return why the files cannot be judged by these columns, or None."""
        # a day without files has no columns, and nothing to judge
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
            or declared_name(spark_name(kind)) == wanted
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
        """Yield all rows of each task, or those with attempts in any column of `called`."""
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
    """Sort by the counter as a number: as text, the thousandth file would precede the second."""
    name = Path(file).name
    counter = _NUMBER_OF_A_TASKS_FILE.search(name)
    return (name[: counter.start()], int(counter[1]), name) if counter else (name, 0, name)


def _only_task(footer: pq.FileMetaData) -> int | None:
    """Return a file's only task by statistics; None for several tasks or without statistics."""
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
