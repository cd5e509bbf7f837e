"""Puts a new folder in the place of another, in a single step if the kernel can."""

import ctypes
import errno
import os
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux
# an older kernel, or a file system of another machine
NOT_HERE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def exchange(new: Path, old: Path) -> None:
    """Make `new` the folder at `old`, and an existing folder at `old` the folder at `new`.

    On a file system that cannot exchange names, such as NFS, `old` is missing for a moment. Raises
    OSError.
    """
    if not old.is_dir():
        new.rename(old)
    elif not _exchanged(new, old):
        aside = new.with_name(f"{new.name}.old")
        old.rename(aside)
        new.rename(old)
        aside.rename(new)


def _exchanged(new: Path, old: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if not rename(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE):
        return True
    if (error := ctypes.get_errno()) in NOT_HERE:
        return False
    raise OSError(error, os.strerror(error), str(old))
