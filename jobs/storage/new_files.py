"""Writes new files, which are at their place whole or not at all."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from jobs.storage import objects
from jobs.storage.urls import is_url

Writable = Path | IO[bytes]  # a target that pyarrow writes a file to


@contextlib.contextmanager
def new_file(place: str) -> Iterator[Writable]:
    """Write a new file in the body. An error leaves no file.

    On a disk the body writes at the place itself. For a store it writes a file without a name on
    this machine, which leaves nothing behind even if the process is killed. Then a request uploads
    it, or several requests, of which only the last makes it visible.

    Raises:
        OSError: The store does not take the file.
    """
    if is_url(place):
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            objects.upload(file, place)
        return
    path = Path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def copy_file(source: str, target: str) -> None:
    """Copy a file to a place; a file that is there is replaced.

    A store copies its objects itself. On a disk both names are of one file, where it can do that.

    Args:
        source: Path or URL.
        target: Path, or URL; a file on a store is copied within its bucket only.

    Raises:
        OSError: The file cannot be read or written.
    """
    if is_url(target):
        if is_url(source):
            objects.copy(source, target)
        else:
            objects.upload(Path(source), target)
        return
    place = Path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    try:
        place.hardlink_to(source)
    except OSError:  # as on a disk without links
        shutil.copyfile(source, place)


def written_bytes(file: Writable) -> int:
    """Return the number of bytes written so far."""
    return file.stat().st_size if isinstance(file, Path) else file.seek(0, 2)
