"""Allows a single publisher of a table at a time, across machines that share its place; describes
errors of the disk or the store.
"""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from deltalake.exceptions import CommitFailedError, DeltaError

from jobs.errors import TidegateError
from jobs.storage import object_lock
from jobs.storage.file_lock import lock_file
from jobs.storage.stored_files import ANSWER, error_text
from jobs.storage.urls import below, is_url

LOCK = "_publishing.lock"  # readers of tables ignore names that begin with _
WAIT = 3600.0  # s; a vacuum of a large table holds the lock for long


@contextlib.contextmanager
def alone_with(table: str) -> Iterator[None]:
    """Waits until no other process publishes to this table; a crashed publisher does not count.

    Delta refuses conflicting commits. The lock protects what Delta does not: publications of
    several commits (a table and its audit), and a table's first commit, which Delta accepts twice.

    Raises:
        OSError: The place fails, or another process publishes for longer than WAIT s.
    """
    with contextlib.ExitStack() as held:
        if is_url(table):
            about = {"host": socket.gethostname(), "pid": os.getpid()}
            held.enter_context(object_lock.held(below(table, LOCK), about, wait=WAIT))
        else:
            folder = Path(table)
            folder.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((folder / LOCK).open("w"))
            lock_file(lock.fileno(), folder / LOCK, wait=WAIT)
        yield


def again_if_taken(commit: Callable[[], object]) -> None:
    """Makes a repeatable commit; makes it again if another commit has taken its version.

    Under `alone_with` the other commit is often this commit itself: an object store took it, and
    the store's answer was lost.
    """
    try:
        commit()
    except CommitFailedError:
        commit()


@contextlib.contextmanager
def storing(table: str) -> Iterator[None]:
    """Turns errors of the body, such as a full disk, into a TidegateError with the cure."""
    try:
        yield
    except (OSError, DeltaError) as error:
        raise TidegateError(
            f"output: {table} or a table beside it cannot be written: {delta_errors(error)}. "
            "Readers see the old day "
            "or the new one. Fix that, then run the same again: the ledger has the answers."
        ) from error


def delta_errors(error: Exception) -> str:
    """Returns the message of an error of Delta or its SQL in a line, without colours, traceback and
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
