"""The folders on disk for copied logs of tables on a store; a kill leaves no folder for ever."""

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
    """Returns the folder with the copies."""
    return Path(work_folder(place), "log")


def own_folder(place: str) -> LockedFolder:
    """Makes a new folder for a copy."""
    there = logs_folder(place)
    there.mkdir(parents=True, exist_ok=True)
    return LockedFolder.make(there, COPY)


def remove_abandoned(place: str) -> None:
    """Removes copies of killed processes: they may have rows that were about to be uploaded."""
    locked_folders.remove_abandoned(logs_folder(place), COPY)


@contextlib.contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """Names the folder and the cure if the body finds its disk full. Raises TidegateError."""
    try:
        yield
    except (OSError, DeltaError) as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise TidegateError(
            f"the disk of {folder} is full, where logs of tables on a store are copied. Make room "
            "there, or set "
            f"{VARIABLE} to a folder of a larger disk, then run the same again: the ledger has the "
            "answers."
        ) from error
