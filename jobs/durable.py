"""Files on a local disk that survive a power cut once they are written, as far as the disk keeps its word."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a reader sees the old bytes or the new ones, also after a power cut.

    Its folder is made where there is none. Raises OSError with the file's name; a full disk leaves nothing.
    """
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # a write that finds the disk full does not say where
        raise


def write_new(path: Path, data: bytes | memoryview) -> None:
    """Write a file of a new name; when this returns, it survives a power cut. Until then a reader may see a part of it.

    Its folder is made where there is none. Raises OSError.
    """
    make_folder(path.parent)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, whose names survive a power cut."""
    missing = [folder] if not folder.is_dir() else []
    while missing and not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync(one.parent)


def sync(path: Path) -> None:
    """Return when what was written to a file, or which names a folder holds, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_there(path: Path) -> bool:
    """Whether there is a file or folder of this name. Raises OSError when that cannot be known, as `exists` of newer
    Pythons does not.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
