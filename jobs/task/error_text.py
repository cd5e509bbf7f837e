"""Makes a task's errors encodable for Spark."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pyarrow as pa

from jobs.errors import TidegateError
from jobs.wording import one_line


def with_encodable_errors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with their errors. An error with a lone surrogate in it or its causes, from a service or a user, is
    raised again as one line: Spark's worker writes the traceback as UTF-8, and if it cannot, task and JVM wait for each
    other for ever.
    """
    try:
        yield from batches
    except Exception as error:
        try:
            "".join(traceback.format_exception(error)).encode()
        except UnicodeEncodeError:
            kind = type(error) if isinstance(error, TidegateError) else RuntimeError
            raise kind(one_line(str(error))) from None
        raise
