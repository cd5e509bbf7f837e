"""What a task raises, in words that Spark can pass on."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pyarrow as pa

from jobs.errors import TidegateError
from jobs.wording import one_line


def with_encodable_errors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches. What they raise is raised; with half a character in it or in its causes, which a service or a user
    may have said, anew in one line: Spark's worker writes the whole traceback as UTF-8, and where it cannot, task and
    JVM wait for each other for ever.
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
