"""Durable writes: files on a local disk that survive a power cut, if the disk honours fsync."""

import contextlib
import errno
import os
import secrets
from pathlib import Path

DRAFT = ".draft"  # suffix of an unfinished file, which a crash leaves behind
LONGEST_NAME = 200  # bytes of a file's name in its draft's; disks take 255
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def name_draft(path: Path) -> Path:
    """Return a new name beside a file, for its content until it is whole.

    Process numbers repeat in containers, so a draft of a killed process might be in the way.
    """
    name = path.name.encode()[:LONGEST_NAME].decode(errors="ignore")
    return path.with_name(f".{name}.{secrets.token_hex(4)}{DRAFT}")


def write(path: Path, data: bytes) -> None:
    """Write a file as `replace` does, so that its bytes also survive a power cut."""
    replace(path, data, is_durable=True)


def replace(path: Path, data: bytes, *, is_durable: bool = False) -> None:
    """Write a file atomically: a reader sees the old or the new bytes.

    Creates its folder if needed. Raises OSError with the file's name; a full disk leaves no file.
    """
    draft = name_draft(path)
    try:
        if is_durable:
            make_folder(path.parent)
            _write_new(draft, data)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("xb") as file:
                file.write(data)
        draft.replace(path)
        if is_durable:
            sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # the error of a full disk has no file name
        raise


def create(path: Path, data: bytes) -> None:
    """Write a file durably under an unused name: readers see all of it or nothing.

    Without hard links, as on some network disks, a reader or a crash may see a part of it. Creates
    its folder if needed. Raises FileExistsError if the file exists, and OSError.
    """
    make_folder(path.parent)
    draft = name_draft(path)
    try:
        _write_new(draft, data)
        path.hardlink_to(draft)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        _write_new(path, data)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    sync(path.parent)


def _write_new(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    with contextlib.suppress(PermissionError):  # another user owns the parent
        sync(folder.parent)  # a process may have been killed between creating the folder and this
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_there(path: Path) -> bool:
    """Return whether a file or folder exists.

    Raises OSError if that is unknown, where `exists` of newer Pythons returns False.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
