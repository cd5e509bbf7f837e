"""Reads a task's part of the day's files, where Spark does not read it."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from jobs.input.file_rows import FileRows
from jobs.task.link_protocol import PARTITION_OF_FRAME


def read_rows(reads: FileRows, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with its number beside each. tasks: one row, with that number.

    The driver's modules do not define it, because a task would load them, with libraries that executors do not have.
    """
    for batch in tasks:
        for number in batch[PARTITION_OF_FRAME].to_pylist():
            for rows in reads.of(number):
                yield rows.append_column(PARTITION_OF_FRAME, pa.array(np.full(rows.num_rows, number, np.int32)))
