"""Folders and files by path or by filesystem URL, such as s3://bucket/orders.

As in pyarrow, credentials and the endpoint of an object store come from the environment, the
profile, or the role of the instance.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from jobs.errors import RunStopped, TidegateError
from jobs.storage import durable
from jobs.storage.urls import is_url
from jobs.wording import one_line

REQUEST = re.compile(r" \(Request ID: .*?\)")  # of a store's error, unique to each
ENDPOINTS = {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}
# a store's answer in the text of an error
ANSWER = re.compile(r"<Code>(\w+)</Code>\s*(?:<Message>(.*?)</Message>)?")

# in errors of obstore, which repeats requests that no answer or a 5xx ended, and of Arrow
UNREACHABLE = re.compile(r"after \d+ retries|NETWORK_CONNECTION")


def open_filesystem(place: str) -> tuple[fs.FileSystem, str]:
    """Return a place's filesystem and path. Raises OSError, ArrowException or ValueError."""
    if not is_url(place):
        return fs.LocalFileSystem(), os.path.abspath(place)  # noqa: PTH100  # without following links, as from_uri
    root, _, path = place.partition("://")[2].partition("/")
    if "?" in place or not root or not path:
        filesystem, path = fs.FileSystem.from_uri(place)
        return filesystem, path
    filesystem, bucket = _filesystem(f"{place.partition('://')[0]}://{root}/")
    return filesystem, f"{bucket.rstrip('/')}/{path}"


@functools.lru_cache(maxsize=8)
def _filesystem(root: str) -> tuple[fs.FileSystem, str]:
    """Return a client for all files of a bucket, and the bucket's name.

    The client is shared, because each new client looks up its region and credentials. The bucket is
    only a part of the root in abfss://container@account.dfs.core.windows.net/.
    """
    if root.startswith("s3://"):
        if os.environ.keys() & ENDPOINTS:
            # other servers, such as Ceph's gateway, take no upload that ends with a checksum
            os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        # the oldest supported pyarrow does not have the option
        with contextlib.suppress(pa.ArrowInvalid):
            # with it a small file takes one request, not three
            filesystem, bucket = fs.FileSystem.from_uri(f"{root}?allow_delayed_open=true")
            return filesystem, bucket
    filesystem, bucket = fs.FileSystem.from_uri(root)
    return filesystem, bucket


def error_text(error: Exception) -> str:
    """Return a storage error's message on one line, without full stop and request number."""
    if answer := ANSWER.search(str(error)):
        return ": ".join(filter(None, answer.groups())).rstrip(".")
    text = str(error).partition("\n\nDebug source:")[0].partition("\n   0: ")[0]  # Rust's backtrace
    return REQUEST.sub("", one_line(text)).rstrip(".") or type(error).__name__


def unreachable_or(refused: type[TidegateError], error: Exception) -> type[TidegateError]:
    """Return RunStopped if a store did not answer, because a later run may; else `refused`."""
    return RunStopped if UNREACHABLE.search(str(error)) else refused


@dataclass(frozen=True)
class StoredFile:
    """A file as it was when its folder was listed."""

    place: str  # its path or URL
    size: int  # bytes
    changed_ns: int  # since the epoch

    @classmethod
    def at(cls, place: str) -> StoredFile:
        """Return the file as it is now. Raises FileNotFoundError if it is gone, and OSError."""
        filesystem, path = open_filesystem(place)
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"there is no file {place}")
        return cls(place, info.size, info.mtime_ns)

    def is_like(self, other: StoredFile) -> bool:
        """Return whether another look at this place found the same file.

        Many stores list a file's time with milliseconds, and give the time of a single file in
        whole seconds.
        """
        unit = 10**9 if is_url(self.place) else 1
        return (self.size, self.changed_ns // unit) == (other.size, other.changed_ns // unit)

    @property
    def name(self) -> str:
        return self.place.rpartition("/")[2]

    @property
    def version(self) -> str:
        """What changes with the file's content."""
        return f"{self.name} {self.size} {self.changed_ns}"

    def open(self) -> pa.NativeFile:
        """Open the stored bytes for reading from their start."""
        filesystem, path = open_filesystem(self.place)
        return filesystem.open_input_stream(path, compression=None)


def version_of(files: Iterable[StoredFile]) -> str:
    """Return what changes when a file is added, removed, replaced or changed."""
    found = [file.version for file in files]
    return f"{len(found)}-{hashlib.sha256(repr(found).encode()).hexdigest()[:16]}"


def has_files(folder: str) -> bool:
    """Return whether a folder exists; on a store, whether it has a file."""
    filesystem, path = open_filesystem(folder)
    return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)


def is_there(place: str) -> bool:
    """Return whether a file exists. Raises OSError if that is unknown."""
    if not is_url(place):
        return durable.is_there(Path(place))
    filesystem, path = open_filesystem(place)
    return bool(filesystem.get_file_info(path).type == fs.FileType.File)


def files_in(folder: str) -> list[StoredFile]:
    """Return the files in a folder, by name, without subfolders; empty if the folder is missing.

    Raises OSError if the folder cannot be listed, for example without its bucket.
    """
    return entries_in(folder)[0]


def folders_in(folder: str) -> list[str]:
    """Return the folders in a folder, sorted. Missing folders and errors as in `files_in`."""
    return entries_in(folder)[1]


def entries_in(folder: str) -> tuple[list[StoredFile], list[str]]:
    """Return the files of `files_in` and the names of `folders_in`, by a single listing."""
    found = sorted(_children(folder), key=lambda info: info.base_name)
    files = [
        StoredFile(f"{folder.rstrip('/')}/{info.base_name}", info.size, info.mtime_ns)
        for info in found
        if info.type == fs.FileType.File
    ]
    return files, [info.base_name for info in found if info.type == fs.FileType.Directory]


def broken_links_in(folder: str) -> list[str]:
    """Return the links to nothing in a folder, which `files_in` leaves out, sorted.

    The folder itself may be one. Errors as `files_in`; a store has no links.
    """
    if is_url(folder):
        return []
    if not Path(folder).is_dir():
        return [folder] if Path(folder).is_symlink() else []
    with os.scandir(folder) as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
    return sorted(link for link in links if not Path(link).exists())


def paths_below(folder: str) -> list[str]:
    """Return the relative paths of all files below a folder, sorted. Errors as `files_in`."""
    found = _children(folder, recursive=True)
    root = open_filesystem(folder)[1].rstrip("/")
    return sorted(info.path[len(root) + 1 :] for info in found if info.type == fs.FileType.File)


def _children(folder: str, *, recursive: bool = False) -> list[fs.FileInfo]:
    filesystem, path = open_filesystem(folder)
    try:
        selector = fs.FileSelector(path.rstrip("/"), recursive=recursive)
        found: list[fs.FileInfo] = filesystem.get_file_info(selector)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return found
