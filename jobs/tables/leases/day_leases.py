"""Allows a single run of a day at a time, by a lease that a run shares with its guard and its
Spark, and that publishing requires.

A lease is a lock on a file, held through an open file that the processes of the run inherit. It is
free when the last of them has ended in any way: no clock decides, and a kill leaves no lease
behind. For a table on an object store the lease is an object (store_leases.py).
"""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.errors import DayTaken, DeclarationError, PublishConflict, TidegateError
from jobs.storage import durable
from jobs.storage.urls import is_url
from jobs.tables.leases import store_leases
from jobs.tables.leases.store_leases import FOLDER, StoreLease, holder_named, unknown_run

WAIT = 30.0  # s; a killed run has ended its Spark by then, and its lease on a store has expired
LOOK_EVERY = 0.1  # s
A_MOMENT = 0.001  # s


@dataclass(frozen=True)
class FileLease:
    """A lease of a table in a folder."""

    path: Path
    day: str
    run_id: str
    file: int  # open and locked; children that inherit it share the lease
    before: str = ""  # the previous run of the day, if any

    def confirm(self) -> None:
        """Check that no other run has taken the day since. Raises PublishConflict otherwise, for
        example after a lost lock.
        """
        holder = _holder(self.path).get("run_id", "nobody")
        if holder != self.run_id:
            raise PublishConflict(
                f"run {holder} holds the lease of {self.day} now; this run, {self.run_id}, lost it."
            )

    def keep(self) -> None:
        """Do nothing: whatever is at work has the file open."""


Lease = FileLease | StoreLease  # the right to run and publish a day of a table


@contextlib.contextmanager
def leased(table: str, day: str, run_id: str, *, wait: float = WAIT) -> Iterator[Lease]:
    """Hold the day while the body runs, and while a child with the inherited file lives.

    The lease works across machines that share a file system with locks, or an object store.

    Args:
        table: Path or URL of the published table.
        day: The day to hold.
        run_id: Id of the run that holds it.
        wait: How long to wait for another run to end, in s.

    Raises:
        DayTaken: Another run still works after `wait`; the message names it, its host and its
            start.
        DeclarationError: The table's folder is read-only or full.
    """
    if is_url(table):
        with store_leases.leased(table, day, _own(run_id), wait=wait) as lease:
            yield lease
        return
    path = Path(table, FOLDER, f"{day}.json")
    with _writing(table):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with _writing(table):
            _lock(file, path, day, wait)
            before = _read_owner_run(path)
            _sign(file, run_id)
        yield FileLease(path, day, run_id, file, before)
    finally:
        os.close(file)


def at_work(table: str) -> dict[str, str]:
    """Return the runs that hold a day now: run id -> day. Raises TidegateError."""
    if is_url(table):
        return store_leases.at_work(table)
    found = {}
    for path in _paths(table):
        with _reading(path), path.open() as file:
            if not _locks(file.fileno(), fcntl.LOCK_SH):
                found[_read_owner_run(path) or unknown_run(path.stem)] = path.stem
    return found


def last_runs(table: str) -> dict[str, str]:
    if is_url(table):
        return store_leases.last_runs(table)
    return {path.stem: _read_owner_run(path) for path in _paths(table)}


def _paths(table: str) -> list[Path]:
    """Return all leases' files. Raises if the folder cannot be listed, which `glob` would hide."""
    folder = Path(table, FOLDER)
    with _reading(folder):
        if durable.is_there(folder):
            return [path for path in folder.iterdir() if path.suffix == ".json"]
        return []


@contextlib.contextmanager
def _writing(table: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DeclarationError(
            f"output: {table} cannot be written: {error}. Nothing was called."
        ) from error


def _sign(file: int, run_id: str) -> None:
    """Write the holder of the day into the lease, for later runs."""
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(_own(run_id)).encode(), 0)


def _own(run_id: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": f"{now():%FT%TZ}",
    }


def _lock(
    file: int,
    path: Path,
    day: str,
    wait: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    deadline = clock() + wait
    while True:
        if _locks(file, fcntl.LOCK_EX):
            return
        # no run holds it: another process is just reading the holder
        if _locks(file, fcntl.LOCK_SH):
            fcntl.flock(file, fcntl.LOCK_UN)
            sleep(A_MOMENT)
            continue
        if clock() >= deadline:
            raise DayTaken(
                f"{day} is being run by {holder_named(_holder(path))}; nothing was started."
            )
        sleep(LOOK_EVERY)


def _locks(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_owner_run(path: Path) -> str:
    return str(_holder(path).get("run_id", ""))


def _holder(path: Path) -> dict[str, Any]:
    """Return the lease's content; empty while it is being written, and for foreign content."""
    with _reading(path):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TidegateError(
            f"lease {path} cannot be read: {error.strerror}. Nothing was changed; start again when "
            "it can be."
        ) from error
