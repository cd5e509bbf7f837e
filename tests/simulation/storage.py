"""Files in memory that fail as files do: slow, full of errors for a while, cut by a kill.

Each operation is a step: the seed decides how long it takes, who runs meanwhile, whether it fails
before or after it was carried out, and whether the process that asked for it dies there.
"""

import errno
import os
import random
from collections.abc import Callable
from typing import TypeVar

from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process
from tests.simulation.scheduler import EPOCH

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
        file = self.files[path] = File(data, time_of_day(), self._inodes)
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


def time_of_day() -> float:
    """The time of day by the clock of the disk's machine."""
    return EPOCH + scheduler().now + scheduler().clock_offset


def missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
