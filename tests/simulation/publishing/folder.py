"""The real folder of a night: a step, and maybe a kill or an error, before each file operation of
Python and around each call of deltalake.

Python tells an audit hook of each file that is opened, renamed, removed or listed, before it is
done. deltalake works outside of Python, so that each of its calls is one step: what it commits is
there, or not.
"""

import contextlib
import errno
import fcntl
import functools
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError

from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process, SimulatedThread, current

READS = frozenset({"os.scandir", "os.listdir", "read"})
CHANGES = frozenset(
    {
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.utime",
        "write",
    }
)
REMOVES = frozenset({"os.remove", "os.rmdir"})
KILL_WEIGHT_OF_READS = 0.2
OFTEN = 0.1  # of operations that take long
SLOW = 5.0  # s; the longest operation of a slow process
STUCK = 4  # operations of a slow process that take so long
LOOKS_AGAIN = 0.05  # s; who waits for a lock
NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")  # drawn by deltalake


class Folder:
    """A night's folder, and the steps of those who work in it.

    Attributes:
        path: Its absolute path.
        may_kill: Whether a process may be killed at a step.
        fails_between: Virtual seconds between which operations may fail.
        slow: The name of the processes some of whose operations take very long.
        removes: Is called with the path of each file or folder before it is removed.
        committed: Is called after each call of deltalake, with its name.
        synced: Is called with each open file or folder that was synced.
        is_unseen: File operations are no steps at present.
    """

    def __init__(self, path: Path, faults: Faults, latency: float, stalls: float) -> None:
        self.path, self.latency, self._stalls = str(path), latency, stalls
        self.fails_between, self.slow = (0.0, 0.0), ""
        self.operations = 0
        self.removes: Callable[[str], object] = lambda _: None
        self.committed: Callable[[str], object] = lambda _: None
        self.synced: Callable[[int], object] = lambda _: None
        self._faults = faults
        self._draws = scheduler().stream("folder")
        self.is_unseen = False
        self._stuck: Counter[Process] = Counter()

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """The body's file operations are no steps: they are of the judge, not of the product."""
        before, self.is_unseen = self.is_unseen, True
        try:
            yield
        finally:
            self.is_unseen = before

    def operation(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A file operation is about to happen. Raises Killed and the errors that strike; it then
        does not.
        """
        path = _path_of(event, arguments)
        if self.is_unseen or not self._is_here(path):
            return
        name = _name_of(event, arguments)
        self.step(name, path, weight=KILL_WEIGHT_OF_READS if name in READS else 1.0)
        if name != "fcntl.flock" and self._fails():
            number = errno.EIO if self._draws.random() < 0.5 else errno.EACCES
            raise OSError(number, os.strerror(number), path)
        if name in REMOVES:
            with self.unseen():
                self.removes(_absolute(path, arguments))

    def step(self, name: str, path: str, *, weight: float = 1.0) -> None:
        night = scheduler()
        process = night.me().process
        self.operations += 1
        self._take_time()
        night.say(name, self._shown(path))
        if self._faults.strikes("kill at a file", weight=weight):
            night.kill(process)
        night.me()

    def locked(self) -> None:
        """Somebody has locked a file. Where operations often take long, others work meanwhile."""
        if self._stalls >= OFTEN:
            self.step("locked", "")

    def call(self, name: str, work: Callable[[], Any], *, commits: bool) -> Any:
        """A call of deltalake, with a step before and after it."""
        night = scheduler()
        process = night.me().process
        self.operations += 1
        self._take_time()
        if commits and self._faults.strikes("kill at a commit", weight=0.5):
            night.kill(process)
        night.me()
        if commits and self._fails():
            raise DeltaError(
                f"Generic LocalFileSystem error: {os.strerror(errno.ENOSPC)} (os "
                f"error {errno.ENOSPC})"
            )
        try:
            with self.unseen():
                done = work()
        except Exception as error:
            night.say(name, "failed", type(error).__name__)
            raise
        night.say(name)
        with self.unseen():
            self.committed(name)
        if commits and self._faults.strikes("kill at a commit"):
            night.kill(process)
        night.give_way()
        night.me()
        return done

    def _take_time(self) -> None:
        night = scheduler()
        drawn, process = self._draws.random(), night.me().process
        if drawn >= 0.85 and process.name == self.slow and self._stuck[process] < STUCK:
            self._stuck[process] += 1
            night.sleep(SLOW * self._draws.random())
        elif drawn < 0.3:
            night.sleep(self.latency * drawn)
        elif drawn < 1 - self._stalls:
            night.give_way()
        else:
            night.sleep(30 * self.latency * self._draws.random())

    def _fails(self) -> bool:
        begin, end = self.fails_between
        return begin <= scheduler().now < end and self._faults.strikes(
            "error before a file operation"
        )

    def _is_here(self, path: str) -> bool:
        return not path.startswith("/") or path.startswith(self.path)

    def _shown(self, path: str) -> str:
        return NAMES.sub("*", path.removeprefix(self.path))


def _path_of(event: str, arguments: tuple[Any, ...]) -> str:
    path = arguments[1] if event in ("os.link", "os.symlink") else arguments[0]
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""


def _name_of(event: str, arguments: tuple[Any, ...]) -> str:
    if event != "open":
        return event
    mode, flags = arguments[1], arguments[2]
    writes = (
        set(mode) & set("wxa+")
        if isinstance(mode, str)
        else flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )
    return "write" if writes else "read"


def _absolute(path: str, arguments: tuple[Any, ...]) -> str:
    """As shutil.rmtree removes by a name in an open folder."""
    folder = (
        arguments[1]
        if len(arguments) > 1 and isinstance(arguments[1], int) and arguments[1] >= 0
        else None
    )
    if folder is not None:
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)  # noqa: PTH115, PTH118
    return os.path.abspath(path)  # noqa: PTH100


def _worker() -> SimulatedThread | None:
    """The simulated thread that asks; None for the night's own."""
    thread = current()
    return None if thread is None or thread.process.name == "root" else thread


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if (
        event == "open" or event in READS or event in CHANGES or event == "fcntl.flock"
    ) and _worker() is not None:
        scheduler().folder.operation(event, arguments)


@functools.cache
def listen() -> None:
    """Have each file operation of this process as a step, for ever: Python forgets no audit
    hook.
    """
    sys.addaudithook(_heard)


def flock(file: int, operation: int) -> None:
    """fcntl.flock, which waits in virtual time."""
    while True:
        try:
            fcntl.flock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if operation & fcntl.LOCK_NB:
                raise
            scheduler().sleep(LOOKS_AGAIN)
        else:
            if _worker() is not None and not operation & fcntl.LOCK_UN:
                scheduler().folder.locked()
            return


def stepped(
    function: Callable[..., Any], name: str, *, commits: bool = False
) -> Callable[..., Any]:
    """A function of deltalake with steps around it."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if _worker() is None or scheduler().folder.is_unseen:
            return function(*arguments, **named)
        return scheduler().folder.call(name, lambda: function(*arguments, **named), commits=commits)

    return call


def step_before(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of `os` of which Python tells no audit hook."""

    def call(*arguments: Any) -> Any:
        if _worker() is not None and not scheduler().folder.is_unseen:
            scheduler().folder.step(name, "")
        return function(*arguments)

    return call


def fsync(file: int) -> None:
    """os.fsync, which a power cut heeds."""
    if _worker() is not None:
        folder = scheduler().folder
        folder.step("fsync", "")
        with folder.unseen():
            folder.synced(file)


def age(folder: Path, days: int) -> None:
    """Let so many days pass: whatever is in the folder becomes so much older, and the logs of its
    tables say so.

    Their checkpoints, which are no text, go: the logs still have all entries.
    """
    milliseconds = days * 86_400_000

    def older(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) - milliseconds}"

    for inner, _, names in os.walk(folder):
        for path in (Path(inner, name) for name in (*names, "")):
            times = path.stat()
            if path.parent.name == "_delta_log" and (
                path.suffix == ".parquet" or path.name == "_last_checkpoint"
            ):
                path.unlink()
                continue
            if path.parent.name == "_delta_log" and path.suffix == ".json":
                path.write_text(TIMES.sub(older, path.read_text()))
            os.utime(
                path,
                ns=tuple(
                    at - milliseconds * 1_000_000 for at in (times.st_atime_ns, times.st_mtime_ns)
                ),
            )


TIMES = re.compile(r'("(?:deletionTimestamp|modificationTime|timestamp)":)(\d+)')
