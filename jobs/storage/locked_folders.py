"""Folders that belong to a live process.

Each folder is locked, and the maker of a folder removes the folders of killed processes.
"""

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jobs.storage.file_lock import lock_file

PREFIX = "process-"  # of the names of folders


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder that is removed after the body. Raises OSError."""
    parent = _parent()
    with _locked(parent):  # no process sees the folder without its lock
        _remove_unlocked(parent)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent.resolve()))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@functools.cache
def folder_of_process() -> Path:
    """Return the private folder of this process, removed when it ends. Raises OSError."""
    held = contextlib.ExitStack()
    atexit.register(held.close)
    return held.enter_context(temporary_folder())


def _parent() -> Path:
    """Return a folder that only this user can enter: the system's is open to all."""
    parent = Path(tempfile.gettempdir(), f"tidegate-{os.getuid()}")
    parent.mkdir(mode=0o700, exist_ok=True)
    facts = parent.lstat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or parent.is_symlink():
        return Path(tempfile.mkdtemp(prefix="tidegate-"))  # another user took the name
    return parent


def _remove_unlocked(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # such as BlockingIOError if its process lives
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY)
    try:
        lock_file(lock, folder)
        yield
    finally:
        os.close(lock)
