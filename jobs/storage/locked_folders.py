"""Folders that belong to a live process.

Each folder is locked, and the maker of a folder removes the folders of killed processes.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jobs.storage.file_lock import lock_file


@dataclass(frozen=True)
class LockedFolder:
    """A folder and its lock, which holds until `remove` or the end of the process."""

    path: Path
    lock: int

    @classmethod
    def make(cls, parent: Path, prefix: str) -> "LockedFolder":
        """Make a folder in the parent; first remove folders of killed processes."""
        with _locked(parent):  # no process sees the folder without its lock
            _remove_unlocked(parent, prefix)
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent.resolve()))
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(folder, lock)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the folders of killed processes."""
    if parent.is_dir():
        with _locked(parent):
            _remove_unlocked(parent, prefix)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder that is removed after the body. Raises OSError."""
    folder = _temporary()
    try:
        yield folder.path
    finally:
        folder.remove()


def folder_of_process() -> Path:
    """Return a temporary folder that is removed when the process ends. Raises OSError."""
    folder = _temporary()
    atexit.register(folder.remove)
    return folder.path


def _temporary() -> LockedFolder:
    """Make a folder inside a folder that only this user can enter: the system's is open to all."""
    parent = Path(tempfile.gettempdir(), f"tidegate-{os.getuid()}")
    parent.mkdir(mode=0o700, exist_ok=True)
    facts = parent.lstat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or parent.is_symlink():
        parent = Path(tempfile.mkdtemp(prefix="tidegate-"))  # another user took the name
    return LockedFolder.make(parent, "process-")


def _remove_unlocked(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
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
