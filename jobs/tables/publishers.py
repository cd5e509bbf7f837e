"""One publisher of a table at a time, on machines that share its file system."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

LOCK = "_publishing.lock"  # readers of tables pass over names that begin with _


@contextlib.contextmanager
def alone_with(table: str) -> Iterator[None]:
    """Wait until nobody else publishes to this table; a publisher that crashed is nobody.

    Delta itself refuses commits that contradict each other. The lock is for what is more than one commit (a table and
    its audit), and for a table's first commit, where Delta lets two through.
    """
    folder = Path(table)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
