"""Allows a single publisher of a table at a time, across machines that share its place."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from jobs.storage import object_lock
from jobs.storage.file_lock import lock_file
from jobs.storage.urls import below, is_url

LOCK = "_publishing.lock"  # readers of tables ignore names that begin with _
WAIT = 3600.0  # s; a vacuum of a large table holds the lock for long


@contextlib.contextmanager
def alone_with(table: str) -> Iterator[None]:
    """Wait until no other process publishes to this table; a crashed publisher does not count.

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
