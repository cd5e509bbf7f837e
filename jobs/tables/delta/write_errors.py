"""Describes errors of Delta, and of the disk or the store with a table, for users."""

import contextlib
import re
from collections.abc import Iterator

from deltalake.exceptions import DeltaError

from jobs.errors import TidegateError
from jobs.storage.stored_files import ANSWER, error_text


@contextlib.contextmanager
def storing(table: str) -> Iterator[None]:
    """Turn errors of the body, such as a full disk, into a TidegateError with the cure."""
    try:
        yield
    except (OSError, DeltaError) as error:
        raise TidegateError(
            f"output: {table} or a table beside it cannot be written: {delta_errors(error)}. "
            "Readers see the old day "
            "or the new one. Fix that, then run the same again: the ledger has the answers."
        ) from error


def delta_errors(error: Exception) -> str:
    """Return the message of an error of Delta or its SQL in a line, without colours, traceback and
    the request to report it.
    """
    if ANSWER.search(str(error)):  # of an object store
        return error_text(error)
    message = re.sub(r"\x1b\[\d+m|\n\s+0: .*", "", str(error), flags=re.DOTALL)
    # a dumped structure of many lines
    message = re.sub(r": ParsedLogPath .*", "", message, flags=re.DOTALL)
    message = re.sub(
        r"\.*\s+This issue was likely caused by a bug in "
        r"DataFusion.*?/issues\b",
        "",
        message,
        flags=re.DOTALL,
    )
    return " ".join(message.split()).replace(" ↳", ":").rstrip(".")
