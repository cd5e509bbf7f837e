"""Answers that may be another key's, where no check sees the rows."""

from collections.abc import Iterator

import pyarrow as pa

from jobs.clients import request_counter
from jobs.errors import TidegateError


def without_doubt(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows; fail a task with answers in doubt, if no check can hold its rows back.

    The counts of its requests must have begun.
    """
    yield from rows
    for lookup, counts in request_counter.counted().items():
        if counts.in_doubt:
            raise TidegateError(
                f"lookup {lookup}: {counts.in_doubt:,} answers are in doubt, as their connections "
                "brought a response too many: they may belong to other keys. Compute it again."
            )
