"""One publisher of a table at a time, on machines that share its file system; and what the disk refuses him."""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator
from pathlib import Path

from deltalake.exceptions import DeltaError

from jobs.errors import TidegateError

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


@contextlib.contextmanager
def storing(table: str) -> Iterator[None]:
    """What is refused meanwhile, as by a full disk, is told in one sentence, as a TidegateError."""
    try:
        yield
    except (OSError, DeltaError) as error:
        raise TidegateError(
            f"output: {table} or a table beside it cannot be written: {delta_errors(error)}. Readers see the old day "
            "or the new one, whole; mend that and run the same again: what was answered is in the ledger."
        ) from error


def delta_errors(error: Exception) -> str:
    """What Delta or its SQL says: no colours, line breaks or full stop, no traceback of theirs and no request to report
    it to them.
    """
    message = re.sub(r"\x1b\[\d+m|\n\s+0: .*", "", str(error), flags=re.DOTALL)
    message = re.sub(r": ParsedLogPath .*", "", message, flags=re.DOTALL)  # a structure of theirs, of many lines
    message = re.sub(
        r"\.*\s+This issue was likely caused by a bug in DataFusion.*?/issues\b", "", message, flags=re.DOTALL
    )
    return " ".join(message.split()).replace(" ↳", ":").rstrip(".")
