"""A disk in memory that fails as disks do: slow, full of errors for a while, torn by a kill or a
power cut.

Each operation is a step: the seed decides how long it takes, who runs meanwhile, whether it fails
before or after it was carried out, and whether the process that asked for it dies there. A `Disk`
is a local file system, where names and contents need a sync to survive a power cut; an
`ObjectStore` puts whole objects.
"""

import errno
import os
import posixpath
import random
from collections.abc import Callable
from typing import TypeVar

from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.scheduler import EPOCH, Process

Result = TypeVar("Result")

READS = frozenset({"info", "list", "read"})
AIMED_WEIGHT = 20.0  # of a kill at a change that the night aims at
KILL_WEIGHT_OF_READS = 0.2  # a kill between two changes shows more than one between two looks


class File:
    """synced: the content that a power cut leaves. is_named: its name is on the disk."""

    __slots__ = ("data", "inode", "is_named", "mtime", "synced")

    def __init__(self, data: bytes, mtime: float, inode: int) -> None:
        self.data, self.mtime, self.inode = data, mtime, inode
        self.synced: bytes | None = None
        self.is_named = False


class Storage:
    """What a disk and an object store have in common: files by path, and steps.

    Attributes:
        files: By absolute path.
        may_kill: Whether a process may be killed at a step.
        kill: Kills it.
        fails_between: Virtual seconds between which operations may fail.
        aim: A piece of the paths at whose changes most kills strike; "": none.
    """

    type_name = "local"

    def __init__(self, latency: float = 0.001, faults: Faults | None = None) -> None:
        self.files: dict[str, File] = {}
        self.operations = 0
        self.latency = latency
        self.fails_between = (0.0, 0.0)
        self.aim = ""
        self.may_kill: Callable[[Process], bool] = lambda _: False
        self.kill: Callable[[Process], None] = lambda process: scheduler().kill(process)
        self._faults = faults
        self._draws: random.Random | None = None
        self._inodes = 0

    def step(self, name: str, path: str, work: Callable[[], Result]) -> Result:
        """Carry out one operation as a step. Raises what `work` raises, and the errors that
        strike.
        """
        night = scheduler()
        me = night.me()
        self.operations += 1
        self._take_time()
        fails = (
            self._faults is not None and self.fails_between[0] <= night.now < self.fails_between[1]
        )
        if fails and self._faults and self._faults.strikes("error before a file operation"):
            raise self.error(path)
        done = work()
        night.say(name, path)
        weight = KILL_WEIGHT_OF_READS if name in READS else 1.0
        if self.aim and self.aim in path and name not in READS:
            weight = AIMED_WEIGHT
        if (
            self._faults
            and self.may_kill(me.process)
            and self._faults.strikes("kill at a file", weight=weight)
        ):
            self.kill(me.process)
        night.give_way()
        night.me()
        if (
            fails
            and name not in READS
            and self._faults
            and self._faults.strikes("error after a file operation")
        ):
            raise self.error(path)
        return done

    def _take_time(self) -> None:
        night = scheduler()
        if self._draws is None:
            self._draws = night.stream("disk")
        drawn = self._draws.random()
        if drawn < 0.75:
            night.sleep(self.latency * self._draws.random())
        elif drawn < 0.98:
            night.give_way()
        else:
            night.sleep(50 * self.latency * self._draws.random())

    def error(self, path: str) -> OSError:
        return OSError(errno.EIO, os.strerror(errno.EIO), path)

    def new_file(self, path: str, data: bytes) -> File:
        self._inodes += 1
        file = self.files[path] = File(data, _now(), self._inodes)
        return file

    def found(self, path: str) -> File:
        file = self.files.get(path)
        if file is None:
            raise missing(path)
        return file

    def is_folder(self, path: str) -> bool:
        raise NotImplementedError

    def children(self, folder: str) -> list[str]:
        """The paths directly below a folder, sorted. Raises FileNotFoundError without it."""
        raise NotImplementedError


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
            old.data, old.mtime = b"", _now()
            return old
        self._link(path)
        return self.new_file(path, b"")

    def append(self, file: File, piece: bytes) -> None:
        """Append to an open file, which may have lost its name meanwhile."""
        file.data += piece
        file.mtime = _now()

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
        for removed in [one for one in self._removed if posixpath.dirname(one) == path]:
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


class ObjectStore(Storage):
    """Whole objects that are put, got, listed and deleted; a folder is a prefix of names."""

    type_name = "s3"

    def error(self, path: str) -> OSError:
        return OSError(
            f"AWS Error SLOW_DOWN during an operation on {path}: Please reduce your request rate."
        )

    def is_folder(self, path: str) -> bool:
        start = path.rstrip("/") + "/"
        return any(name.startswith(start) for name in self.files)

    def children(self, folder: str) -> list[str]:
        start = folder.rstrip("/") + "/"
        found = {
            start + name[len(start) :].split("/")[0]
            for name in self.files
            if name.startswith(start)
        }
        if not found:
            raise missing(folder)
        return sorted(found)

    def put(self, path: str, data: bytes) -> None:
        self.new_file(path, data)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def cut_power(self, draws: random.Random) -> None:
        """A store keeps what it acknowledged."""


def _now() -> float:
    """The time of day by the clock of the disk's machine."""
    return EPOCH + scheduler().now + scheduler().clock_offset


def missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
