"""The folders on disk in which logs of tables on a store are copied, so that no killed process leaves one for ever."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from deltalake.exceptions import DeltaError

from jobs.errors import TidegateError
from jobs.storage import locked_folders
from jobs.storage.locked_folders import LockedFolder
from jobs.storage.work_folders import VARIABLE, work_folder

COPY = "copy-"  # begins the name of a copy's folder


def logs_folder(place: str) -> Path:
    """The folder with the copies, and with what was read of the log before. Its files have their etag in the name, so
    none is taken for that of a table that was at this place before.
    """
    return Path(work_folder(place), "log")


def own_folder(place: str) -> LockedFolder:
    """A new folder for a copy."""
    there = logs_folder(place)
    there.mkdir(parents=True, exist_ok=True)
    return LockedFolder.make(there, COPY)


def remove_abandoned(place: str) -> None:
    """Remove the copies of processes that were killed: they may have rows that were about to go to the store."""
    locked_folders.remove_abandoned(logs_folder(place), COPY)


@contextlib.contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """Name the folder and the cure where the body finds its disk full. Raises TidegateError."""
    try:
        yield
    except (OSError, DeltaError) as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise TidegateError(
            f"the disk of {folder} is full, where logs of tables on a store are copied. Make room there, or set "
            f"{VARIABLE} to a folder of a larger disk, then run the same again: the ledger has the answers."
        ) from error
