"""Lists and deletes what is below a folder, on a disk or on a store alike."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from jobs.storage import objects
from jobs.storage.urls import is_url


def list_below(folder: str) -> list[tuple[str, float]]:
    """Return the files and empty folders below a folder, with the times of their last change.

    Args:
        folder: Path or URL; it need not exist.

    Returns:
        Each name below the folder, and its time in s since the epoch.

    Raises:
        OSError: A folder cannot be read, which must not count as empty.
    """
    if is_url(folder):
        return [(listed.name, listed.changed.timestamp()) for listed in objects.listed(folder)]
    found = []
    for path in _paths_below(Path(folder)):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            found.append((path.relative_to(folder).as_posix(), path.lstat().st_mtime))
    return found


def _paths_below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # another process removes it
            raise error

    for inner, folders, names in os.walk(folder, onerror=refuse) if folder.is_dir() else ():
        yield from (Path(inner, name) for name in names)
        if not (folders or names) and Path(inner) != folder:
            yield Path(inner)


def delete_below(folder: str, names: Collection[str]) -> None:
    """Delete the files among these names below a folder; missing ones are no error.

    Raises:
        OSError: A file cannot be deleted.
    """
    if not is_url(folder):
        for path in (Path(folder, name) for name in names):
            if not path.is_dir():
                path.unlink(missing_ok=True)
    elif names:
        objects.delete(folder, names)
