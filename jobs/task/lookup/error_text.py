"""A task's errors, as its user and Spark get them."""

import traceback
from collections.abc import Iterator

import pyarrow as pa

from asyncio_core import AsyncInvokeError
from jobs.errors import RowFailed, TidegateError
from jobs.task.lookup.lookup_state import Row
from jobs.wording import one_line


def with_encodable_errors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise errors that Spark's worker can write as UTF-8.

    An error with a lone surrogate, from a service or a user, in it or its causes is raised again as
    a single line. Otherwise the worker cannot write the traceback, and task and JVM wait for each
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


def user_facing_error(error: BaseException) -> BaseException:
    """Return the user-facing error among the causes, if any.

    Otherwise return the first error of a group, and for a call its cause, because the operator's
    text has the row but not the reason. An error of a row that fails the run gets the row's place.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, RowFailed) and isinstance(error, AsyncInvokeError):
            return RowFailed(f"{below}{_which(error.element.value)}")
        if isinstance(below, TidegateError):
            return below.with_traceback(None)
        below = below.__cause__ or below.__context__
    return error.__cause__ or error if isinstance(error, AsyncInvokeError) else error


def _which(row: Row) -> str:
    file, number = row.batch.row_source(row.number)
    return "" if file is None else f" It is row {number} of {file} (the first is 0)."
