"""The folders on disk in which logs of tables on a store are copied, so that no killed process leaves one for ever."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deltalake.exceptions import DeltaError

from jobs.errors import TidegateError
from jobs.storage.work_folders import VARIABLE, work_folder

COPY = "copy-"  # begins the name of a copy's folder


def logs_folder(place: str) -> Path:
    """The folder with the copies, and with what was read of the log before. Its files have their etag in the name, so
    none is taken for that of a table that was at this place before.
    """
    return Path(work_folder(place), "log")


def own_folder(place: str) -> tuple[Path, int]:
    """A new folder for a copy, and its lock, which holds until `remove_own` or the end of the process."""
    there = logs_folder(place)
    there.mkdir(parents=True, exist_ok=True)
    with _locked(there):  # nobody sees the folder without its lock
        _remove_unlocked(there)
        folder = Path(tempfile.mkdtemp(prefix=COPY, dir=there.resolve()))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


def remove_own(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def remove_abandoned(place: str) -> None:
    """Remove the copies of processes that were killed: they may have rows that were about to go to the store."""
    there = logs_folder(place)
    if there.is_dir():
        with _locked(there):
            _remove_unlocked(there)


def _remove_unlocked(there: Path) -> None:
    for folder in there.glob(f"{COPY}*"):
        with contextlib.suppress(OSError):  # as BlockingIOError, because its process lives
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


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
