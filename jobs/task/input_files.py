"""Reads a task's part of the day's files, where Spark does not read it."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from jobs.input.file_rows import FileRows


def rows_in_tasks(
    reads: FileRows,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for mapInArrow that maps task numbers in the column `id` to their rows."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch["id"].to_pylist():
                yield from reads.of(task)

    return read
