"""Reads a task's part of the day's files, where Spark does not read it."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from jobs.input.file_rows import FileRows
from jobs.task.link.link_protocol import PARTITION_OF_FRAME


def read_rows(reads: FileRows, task: int) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with its number beside each."""
    return (numbered(rows, task) for rows in reads.of(task))


def numbered(rows: pa.RecordBatch, task: int) -> pa.RecordBatch:
    """The rows with the number of their task beside each."""
    return rows.append_column(PARTITION_OF_FRAME, pa.array(np.full(rows.num_rows, task, np.int32)))


def rows_in_tasks(reads: FileRows) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow over a frame with the numbers of the tasks in its column `id`: their rows."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch["id"].to_pylist():
                yield from reads.of(task)

    return read
