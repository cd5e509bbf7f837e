"""Folders and files by path or by filesystem URL, as s3://bucket/orders.

Credentials and the endpoint of an object store come from where pyarrow takes them: the environment, the profile, or
the role of the instance.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from jobs.storage.urls import is_url
from jobs.wording import one_line

REQUEST = re.compile(r" \(Request ID: .*?\)")  # of a store's error; no two are equal


def filesystem_of(place: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of a path or a URL, and the path in it. Raises OSError, ArrowException or ValueError."""
    if not is_url(place):
        return fs.LocalFileSystem(), os.path.abspath(place)  # noqa: PTH100  # without following links, as from_uri
    root, _, path = place.partition("://")[2].partition("/")
    if "?" in place or not root or not path:
        filesystem, path = fs.FileSystem.from_uri(place)
        return filesystem, path
    return _filesystem(f"{place.partition('://')[0]}://{root}/"), f"{root}/{path}"


@functools.lru_cache(maxsize=8)
def _filesystem(root: str) -> fs.FileSystem:
    """One client for all files of a bucket, as each looks for its region and credentials."""
    return fs.FileSystem.from_uri(root)[0]


def error_text(error: Exception) -> str:
    """The message of a storage error on one line, without full stop and without the number of the request."""
    return REQUEST.sub("", one_line(str(error))).rstrip(".") or type(error).__name__


@dataclass(frozen=True)
class StoredFile:
    """A file as it was when its folder was listed.

    Attributes:
        place: Its path or URL.
        size: In bytes.
        changed_ns: In ns since the epoch.
    """

    place: str
    size: int
    changed_ns: int

    @classmethod
    def at(cls, place: str) -> StoredFile:
        """Look at the file anew. Raises FileNotFoundError if it is gone, and OSError if it cannot be looked at."""
        filesystem, path = filesystem_of(place)
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"there is no file {place}")
        return cls(place, info.size, info.mtime_ns)

    @property
    def name(self) -> str:
        return self.place.rpartition("/")[2]

    def open(self, *, compression: str | None = "detect") -> pa.NativeFile:
        """For reading from its start; decompressed as its name says."""
        filesystem, path = filesystem_of(self.place)
        return filesystem.open_input_stream(path, compression=compression)


def files_in(folder: str) -> list[StoredFile]:
    """The files in a folder, by name, without those in folders below; none if it does not exist.

    Raises OSError if the folder cannot be listed, as without its bucket.
    """
    found = sorted(
        (info for info in _children(folder) if info.type == fs.FileType.File), key=lambda info: info.base_name
    )
    return [StoredFile(f"{folder.rstrip('/')}/{info.base_name}", info.size, info.mtime_ns) for info in found]


def folders_in(folder: str) -> list[str]:
    """The names of the folders in a folder, sorted; none if it does not exist. Raises OSError as `files_in`."""
    return sorted(info.base_name for info in _children(folder) if info.type == fs.FileType.Directory)


def _children(folder: str) -> list[fs.FileInfo]:
    filesystem, path = filesystem_of(folder)
    try:
        found: list[fs.FileInfo] = filesystem.get_file_info(fs.FileSelector(path.rstrip("/")))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return found
