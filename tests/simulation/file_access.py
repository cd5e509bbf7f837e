"""How the product reaches the simulated disk: Arrow's file system, paths, and the functions of `os`
on descriptors.
"""

import io
import itertools
import os
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyarrow import fs

from tests.simulation import clock
from tests.simulation.disk import Disk
from tests.simulation.night_at_work import is_at_work, scheduler
from tests.simulation.storage import File, ObjectStore, Storage, missing

TORN_ABOVE = 50  # bytes; a longer write is two steps


class ArrowFiles(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The disk as one of Arrow's file systems. A read is one step at the open, as Arrow's own
    threads have none.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get_type_name(self) -> str:
        return self._storage.type_name

    def normalize_path(self, path: str) -> str:
        return path

    def _info(self, path: str) -> fs.FileInfo:
        file = self._storage.files.get(path)
        if file is not None:
            return fs.FileInfo(
                path, fs.FileType.File, size=len(file.data), mtime_ns=int(file.mtime * 1e9)
            )
        is_folder = self._storage.is_folder(path)
        return fs.FileInfo(path, fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return self._storage.step("info", paths[0], lambda: [self._info(path) for path in paths])

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """A store answers a listing whole; a disk folder by folder, with what changes in
        between.
        """
        found: list[fs.FileInfo] = []
        waiting = [selector.base_dir.rstrip("/")]
        try:
            if isinstance(self._storage, ObjectStore) and selector.recursive:
                self._storage.step("list", waiting[0], lambda: self._below(waiting, found))
            while waiting:
                folder = waiting.pop()
                listed = self._storage.step(
                    "list",
                    folder,
                    lambda folder=folder: [*map(self._info, self._storage.children(folder))],
                )
                found += listed
                if selector.recursive:
                    waiting += [
                        entry.path for entry in listed if entry.type == fs.FileType.Directory
                    ]
        except FileNotFoundError:
            if found or not selector.allow_not_found:
                raise
        return found

    def _below(self, waiting: list[str], found: list[fs.FileInfo]) -> None:
        while waiting:
            for path in self._storage.children(waiting.pop()):
                found.append(self._info(path))
                if path not in self._storage.files:
                    waiting.append(path)

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001  # Arrow's
        disk, folder = self._storage, path.rstrip("/")
        if isinstance(disk, Disk) and not disk.is_folder(folder):
            disk.step(
                "mkdir", folder, lambda: disk.make_folder(folder, parents=recursive, exist_ok=True)
            )

    def delete_dir(self, path: str) -> None:
        disk = self._storage
        assert isinstance(disk, Disk)
        disk.step("rmdir", path, lambda: disk.remove_folder(path))

    def delete_file(self, path: str) -> None:
        self._storage.step("delete", path, lambda: self._storage.remove(path))  # type: ignore[attr-defined]

    def move(self, src: str, dest: str) -> None:
        disk = self._storage
        assert isinstance(disk, Disk)
        disk.step("move", dest, lambda: disk.move(src, dest))

    def create_file(self, path: str, data: bytes) -> None:
        """On condition that there is none: on a disk by a hard link to a synced draft, on a store
        by one request.
        """
        storage = self._storage
        if isinstance(storage, Disk):
            self.create_dir(path.rpartition("/")[0], recursive=True)

        def create() -> None:
            if path in storage.files:
                raise FileExistsError(path)
            if isinstance(storage, Disk):
                storage.create(path, exclusive=True)
            file = storage.new_file(path, data)
            file.synced, file.is_named = data, True

        storage.step("create", path, create)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(
            self._storage.step("read", path, lambda: self._storage.found(path).data)
        )

    open_input_file = open_input_stream

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        disk = self._storage
        made = WholeObject(disk, path) if isinstance(disk, ObjectStore) else OpenFile(disk, path)  # type: ignore[arg-type]
        return pa.PythonFile(made, mode="w")

    def _not_simulated(self, *_: object) -> Any:
        raise AssertionError("the ledger needs no such operation")

    delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = _not_simulated


def create(files: Any, name: str, data: bytes) -> None:
    """In place of `LedgerFiles._create`."""
    files.filesystem.handler.create_file(f"{files.path}/{name}", data)


class FileSystem(fs.PyFileSystem):  # type: ignore[misc]
    """Named as the real one: Arrow puts "py::" before the name of one in Python."""

    @property
    def type_name(self) -> str:
        return str(self.handler.get_type_name())


_handles: dict[int, tuple[Disk, str]] = {}
_numbers = itertools.count(1 << 20)


class OpenFile(io.RawIOBase):
    """A file of the disk that is being written; a kill leaves what was written until then."""

    def __init__(self, disk: Disk, path: str, *, exclusive: bool = False) -> None:
        self._disk, self._path = disk, path
        self._night = scheduler()
        self._handle = 0
        self._file: File = disk.step("create", path, lambda: disk.create(path, exclusive=exclusive))

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        whole = bytes(data)
        if not is_at_work(self._night):
            return len(whole)  # Arrow flushes the file of a killed process once it is collected
        half = len(whole) // 2 if len(whole) > TORN_ABOVE else 0
        for piece in (whole[:half], whole[half:]) if half else (whole,):
            self._disk.step(
                "write", self._path, lambda piece=piece: self._disk.append(self._file, piece)
            )
        return len(whole)

    def fileno(self) -> int:
        if not self._handle:
            self._handle = next(_numbers)
            _handles[self._handle] = (self._disk, self._path)
        return self._handle

    def close(self) -> None:
        _handles.pop(self._handle, None)
        super().close()

    def flush(self) -> None:
        pass


class WholeObject(io.RawIOBase):
    """An object that the store has once it is closed."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path, self._data = store, path, b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._data += bytes(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._store.step("put", self._path, lambda: self._store.put(self._path, self._data))


class DiskPath(PurePosixPath):
    """What the product does with a `Path` on the simulated disk. disk: that of the night at
    work.
    """

    disk: Disk

    def is_dir(self) -> bool:
        return self.disk.is_folder(str(self))

    def stat(self) -> SimpleNamespace:
        path = str(self)

        def look() -> SimpleNamespace:
            if self.disk.is_folder(path):
                return SimpleNamespace(st_ino=0, st_size=0, st_mtime_ns=0)
            file = self.disk.found(path)
            return SimpleNamespace(
                st_ino=file.inode, st_size=len(file.data), st_mtime_ns=int(file.mtime * 1e9)
            )

        return self.disk.step("info", path, look)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002
        path = str(self)
        if not (exist_ok and self.disk.is_folder(path)):
            self.disk.step(
                "mkdir",
                path,
                lambda: self.disk.make_folder(path, parents=parents, exist_ok=exist_ok),
            )

    def open(self, mode: str = "r") -> OpenFile:
        assert mode in ("wb", "xb"), mode
        return OpenFile(self.disk, str(self), exclusive=mode == "xb")

    def replace(self, target: "DiskPath") -> "DiskPath":
        self.disk.step("move", str(target), lambda: self.disk.move(str(self), str(target)))
        return target

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002
        try:
            self.disk.step("delete", str(self), lambda: self.disk.remove(str(self)))
        except FileNotFoundError:
            if not missing_ok:
                raise


def os_open(path: Any, flags: int, *rest: int) -> int:
    if not isinstance(path, DiskPath):
        return os.open(path, flags, *rest)
    name = str(path)
    if name not in path.disk.files and not path.disk.is_folder(name):
        raise missing(name)
    handle = next(_numbers)
    _handles[handle] = (path.disk, name)
    return handle


def os_close(handle: int) -> None:
    if _handles.pop(handle, None) is None:
        os.close(handle)


def os_fsync(handle: int) -> None:
    if handle not in _handles:
        os.fsync(handle)
        return
    disk, path = _handles[handle]
    disk.step("fsync", path, lambda: disk.sync(path))


def os_utime(path: Any) -> None:
    """Give a file the time of now."""
    disk = getattr(DiskPath, "disk", None)
    if disk is None or not str(path).startswith(ROOT):
        os.utime(path)
        return

    def renew() -> None:
        disk.found(str(path)).mtime = clock.time()

    disk.step("utime", str(path), renew)


def os_stat(path: Any) -> Any:
    """Of a path of the simulated disk, or of a real one."""
    disk = getattr(DiskPath, "disk", None)
    if disk is not None and str(path).startswith(ROOT):
        return DiskPath(path).stat()
    return os.stat(path)  # noqa: PTH116


ROOT = "/simulated/"
