"""A local file system in memory, where names and contents need a sync to survive a power cut."""

import errno
import os
import posixpath
import random

from tests.simulation.faults import Faults
from tests.simulation.storage import File, Storage, missing, time_of_day


class Disk(Storage):
    """A local file system."""

    def __init__(self, latency: float = 0.001, faults: Faults | None = None) -> None:
        super().__init__(latency, faults)
        self._folders: dict[str, set[str]] = {"/": set()}
        # back after a power cut, unless their folder was synced
        self._removed: dict[str, File] = {}

    def is_folder(self, path: str) -> bool:
        return path in self._folders

    def found(self, path: str) -> File:
        if path not in self.files:
            raise self._missing(path)
        return self.files[path]

    def _missing(self, path: str) -> OSError:
        """Why there is nothing: it is gone, or what should be a folder above it is a file."""
        above = path
        while above != "/":
            above = posixpath.dirname(above)
            if above in self.files:
                return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return missing(path)

    def children(self, folder: str) -> list[str]:
        if folder in self.files:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        if folder not in self._folders:
            raise self._missing(folder)
        return sorted(posixpath.join(folder, name) for name in self._folders[folder])

    def make_folder(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        if path in self._folders and exist_ok:
            return
        if path in self._folders or path in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        parent = posixpath.dirname(path)
        if parent not in self._folders:
            error = self._missing(path)
            if not parents or isinstance(error, NotADirectoryError):
                raise error
            self.make_folder(parent, parents=True, exist_ok=True)
        self._folders[path] = set()
        self._link(path)

    def create(self, path: str, *, exclusive: bool) -> File:
        """Open a file for writing: empty from now on."""
        if exclusive and (path in self.files or path in self._folders):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        old = self.files.get(path)
        if old is not None:
            old.data, old.mtime = b"", time_of_day()
            return old
        self._link(path)
        return self.new_file(path, b"")

    def append(self, file: File, piece: bytes) -> None:
        """Append to an open file, which may have lost its name meanwhile."""
        file.data += piece
        file.mtime = time_of_day()

    def move(self, source: str, target: str) -> None:
        if posixpath.dirname(target) not in self._folders:
            raise self._missing(target)
        file = self.found(source)
        if target == source:
            return
        if target in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        self._link(target)
        old = self.files.get(target)
        if old is not None and old.is_named:
            self._removed[target] = old
        self._unlink(source)
        self.files[target] = file
        file.is_named = False

    def remove(self, path: str) -> None:
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        file = self.found(path)
        self._unlink(path)
        if file.is_named:
            self._removed[path] = file

    def remove_folder(self, path: str) -> None:
        """A folder with all that is in it."""
        for child in self.children(path):
            if child in self._folders:
                self.remove_folder(child)
            else:
                self.remove(child)
        del self._folders[path]
        self._folders[posixpath.dirname(path)].discard(posixpath.basename(path))

    def sync(self, path: str) -> None:
        """The content of a file, or the names in a folder, survive a power cut from now on."""
        if path not in self._folders:
            file = self.found(path)
            file.synced = file.data
            return
        for name in self._folders[path]:
            if (named := self.files.get(posixpath.join(path, name))) is not None:
                named.is_named = True
        for removed in [
            removed_path
            for removed_path in self._removed
            if posixpath.dirname(removed_path) == path
        ]:
            del self._removed[removed]

    def cut_power(self, draws: random.Random) -> None:
        """What was not synced may be gone or torn; what was removed without a sync may be back."""
        for path, file in sorted(self.files.items()):
            if not file.is_named and draws.random() < 0.4:
                self._unlink(path)
            elif file.synced != file.data:
                drawn, base = draws.random(), file.synced or b""
                if drawn < 0.4:
                    file.data = file.data[
                        : draws.randint(min(len(base), len(file.data)), len(file.data))
                    ]
                elif drawn < 0.6:
                    file.data = base
        for path, file in sorted(self._removed.items()):
            if posixpath.dirname(path) in self._folders and draws.random() < 0.5:
                if path not in self.files:
                    self._link(path)
                self.files[path] = file
                if file.synced is not None:
                    file.data = file.synced
        self._removed.clear()
        for file in self.files.values():  # the disk holds what is there now
            file.synced, file.is_named = file.data, True

    def _link(self, path: str) -> None:
        folder, name = posixpath.split(path)
        if folder not in self._folders:
            raise self._missing(path)
        self._folders[folder].add(name)

    def _unlink(self, path: str) -> None:
        del self.files[path]
        folder, name = posixpath.split(path)
        self._folders[folder].discard(name)
