"""The working folders of runs in the ledger: registers runs, and deletes folders of ended runs.

    <folder>/runs/<run_id>/run.json     identifies the run; written first; its time is the heartbeat

A registered run deletes its folder itself; other runs delete it once its process is known to be
gone, or when all files in it are older than two days. The same age holds for a folder without a
run.json: its run may be about to register, or its tasks outlived it. Times are those of the
ledger's filesystem, never of this process alone.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from pyarrow import fs

from jobs.errors import LedgerError
from jobs.ledger.ledger_files import NO_FOLDERS
from jobs.ledger.store import LedgerFolder
from jobs.storage.machine import read_boot_id

RUNS = "runs"  # <folder>/runs/<run_id>/: working files of a run
BEAT = "run.json"
DEAD_AFTER = 30.0  # s without a heartbeat or a renewal
# s without a heartbeat, after which a run counts as killed; longer than two machines' clocks differ
QUIET = 600.0
ABANDONED = timedelta(days=2)  # without a heartbeat, which a living run writes every few seconds


def by_run(
    folder: LedgerFolder, files: Iterable[fs.FileInfo]
) -> dict[str, dict[str, datetime | None]]:
    """Return the names and times of files by run, for each run with a folder among these files."""
    start = len(folder.path) + len(RUNS) + 2
    found: dict[str, dict[str, datetime | None]] = {}
    for info in files:
        if info.path.startswith(f"{folder.path}/{RUNS}/"):
            run_id, _, name = info.path[start:].partition("/")
            if name:
                found.setdefault(run_id, {})[name] = info.mtime
    return found


def is_alive(changed: datetime | None, now: datetime | None) -> bool:
    """Return whether a file that a run renews is recent.

    A time far ahead of `now` is not recent either: the clock was set back since.

    Args:
        changed: The time of the file.
        now: The time of the heartbeat of the run that asks.
    """
    return now is None or changed is None or abs((now - changed).total_seconds()) < DEAD_AFTER


def announce(folder: LedgerFolder, run_id: str) -> None:
    """Register a run, before it writes any other file to its folder, or renew its heartbeat.

    Raises LedgerError.
    """
    facts = {"run_id": run_id, "host": _host(), "pid": os.getpid()}
    folder.renew(f"{RUNS}/{run_id}/{BEAT}", json.dumps(facts).encode())


def _host() -> str:
    """Return the scope of process numbers: a start of a machine, or a container on it.

    A host name is not enough: two machines may have the same.
    """
    try:
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # not a path
    except OSError:
        space = ""
    return " ".join(filter(None, (socket.gethostname(), read_boot_id(), space)))


def remove_gone(
    folder: LedgerFolder, files: Iterable[fs.FileInfo], own_run: str | None = None
) -> set[str]:
    """Delete the folders of runs whose process is known to have ended.

    Returns:
        The registered runs whose folders stay, without `own_run`, the run of this process.

    Raises:
        LedgerError: A file cannot be deleted.
    """
    registered = {run_id for run_id, names in by_run(folder, files).items() if BEAT in names} - {
        own_run
    }
    gone = {run_id for run_id in registered if _is_gone(folder, run_id)}
    for run_id in gone:
        remove_run(folder, run_id)
    return registered - gone


def runs_at_work(folder: LedgerFolder, now_us: int) -> set[str]:
    """Return the runs that may still call. Raises LedgerError."""
    files = folder.files(RUNS)
    registered, names = remove_gone(folder, files), by_run(folder, files)
    beats = {run: names[run][BEAT] for run in registered}
    return {
        run
        for run, beat in beats.items()
        if beat is None or now_us / 1e6 - beat.timestamp() < QUIET
    }


def _is_gone(folder: LedgerFolder, run_id: str) -> bool:
    """Return whether a run's process has ended, as far as this host can tell."""
    try:
        facts = json.loads(folder.read_bytes(f"{RUNS}/{run_id}/{BEAT}"))
        if facts["host"] != _host():
            return False
        os.kill(int(facts["pid"]), 0)
    except ProcessLookupError:
        return True
    # deleted meanwhile, another user's process, or a foreign file: it may live
    except (LedgerError, OSError, ValueError, KeyError, TypeError, OverflowError):
        return False
    return False


def remove_abandoned(
    folder: LedgerFolder,
    files: Sequence[fs.FileInfo] | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> set[str]:
    """Delete the folders of runs without a file of the last two days; they contain no answers.

    Args:
        folder: The ledger's folder.
        files: All files of the ledger; None lists them. The two days end at the time of the newest
            file, or at this process's time if that is earlier, so that a wrong clock deletes
            nothing too early.
        clock: Seconds since the epoch.

    Returns:
        The runs.

    Raises:
        LedgerError: A file cannot be listed or deleted.
    """
    files = folder.files() if files is None else files
    times = [info.mtime.timestamp() for info in files if info.mtime is not None]
    before = min(max(times, default=0.0), clock()) - ABANDONED.total_seconds()
    abandoned = {
        run_id for run_id, names in by_run(folder, files).items() if _last(names.values()) < before
    }
    for run_id in abandoned:
        remove_run(folder, run_id)
    return abandoned


def _last(times: Iterable[datetime | None]) -> float:
    return max(float("inf") if time is None else time.timestamp() for time in times)


def remove_run(folder: LedgerFolder, run_id: str) -> None:
    """Delete the folder of a run, if any; its run.json last. Raises LedgerError."""
    name = f"{RUNS}/{run_id}"
    beat = f"{name}/{BEAT}"
    folder.delete(*(found for found in folder.names(name) if found != beat))
    folder.delete(beat)
    if folder.filesystem.type_name in NO_FOLDERS:
        return
    with folder.deleting(name):
        folder.filesystem.delete_dir(f"{folder.path}/{name}")
