"""Removes files that no reader needs: old versions of days, and runs that were never published."""

import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from jobs.errors import DeclarationError
from jobs.input.staged_files import FOLDER as INPUTS
from jobs.storage import objects
from jobs.storage.listings import delete_below, list_below
from jobs.storage.urls import below, is_url
from jobs.storage.work_folders import KEYS, RUNS, work_folder
from jobs.tables.delta.delta_log import commit_on_top, sync_log, table_at
from jobs.tables.delta.write_errors import storing
from jobs.tables.leases.day_leases import at_work
from jobs.wording import counted

FORGETS = "delta.deletedFileRetentionDuration"  # how long a checkpoint names a replaced file
INTERVAL = re.compile(r"interval ([0-9]{1,8}) (week|day|hour|minute|second)s?")
RETENTION = timedelta(days=7)  # Delta's default too
# by the name of a run's folder: its files, each with its time in s since the epoch
FilesByRun = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Removed:
    """The removed files.

    Attributes:
        old: Files that a later commit replaced.
        runs: Folders of runs of which no version has a row.
    """

    old: int = 0
    runs: int = 0

    @property
    def words(self) -> str:
        runs = counted(self.runs, "folder of a run", "folders of runs")
        return f"{counted(self.old, 'old file')} and {runs}"


def require_known(table: str, older_than: timedelta) -> None:
    """Raise DeclarationError if the table's log may have forgotten what was replaced since.

    A checkpoint leaves out files that were replaced longer ago than the table's setting says. The
    files of that version cannot be told from files of a run that was never published.
    """
    opened = table_at(table)
    if opened is None:
        return
    setting = INTERVAL.fullmatch(opened.metadata().configuration.get(FORGETS, "").lower())
    known = timedelta(**{f"{setting[2]}s": int(setting[1])}) if setting else RETENTION
    if older_than > known:
        raise DeclarationError(
            f"--keep-days is {older_than.days}, and the log of {table} knows the files of replaced "
            f"versions for {known.days} days only ({FORGETS}). Keep at most {known.days}, or set "
            f"that property of the table to 'interval {older_than.days} days'."
        )


def vacuum(
    table: str, *, older_than: timedelta = RETENTION, clock: Callable[[], float] = time.time
) -> Removed:
    """Delete files that no reader needs.

    These are files that were replaced before the limit, folders of unpublished runs older than it,
    files of published runs' folders that are in no version, and converted inputs last used before
    it. Older versions become unreadable. A running run keeps its folder at any age. A crash leaves
    files that the next vacuum removes.

    Args:
        table: Path or URL of the published table.
        older_than: The limit, as an age that `require_known` allows.
        clock: Returns the time in s since the epoch.

    Raises:
        TidegateError: The disk is full or read-only, because Delta records its deletions first.
    """
    # The order matters: a run takes its lease before it makes its folder, and holds the lease until
    # its files are in the table. So a run whose folder is listed first, and that then has no lease,
    # has ended, and the table, which is read last, names the files of the run if it published.
    places = [str(work_folder(table)), *([table] if is_url(table) else [])]
    found = {place: _files_by_run(place) for place in places}
    working = at_work(table)
    old = _remove_old_versions(table, older_than)
    named = named_files(table)

    now, runs = clock(), 0
    for place, of_runs in found.items():
        # the clock of a store may be ahead of this process
        keeps = older_than.total_seconds() if older_than or not is_url(place) else -math.inf
        ended = {run: files for run, files in of_runs.items() if not _is_at_work(run, working)}
        shown = named if place == places[-1] else set()
        runs += _remove_runs(place, ended, shown, now - keeps)
        _remove_inputs(place, {*working.values()}, now - keeps)
    return Removed(old, runs)


def remove_run(table: str, run_id: str) -> None:
    """Remove the folders of a run that was not published; files of a version of the table stay.

    Raises TidegateError as `vacuum` does.
    """
    place = str(work_folder(table))
    found = _files_by_run(place)
    if of_run := {name: found[name] for name in (run_id, run_id + KEYS) if name in found}:
        _remove_runs(place, of_run, named_files(table), math.inf)


def named_files(table: str) -> set[str]:
    """Return the files of this version, and of earlier versions that are not vacuumed yet, below
    the table: each as the log writes it and unquoted. Empty without a table.
    """
    opened = table_at(table)
    if opened is None:
        return set()
    with storing(table):
        replaced = opened.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
        named = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
    return {form for name in (*named, *replaced) for form in (name, unquote(name))}


def _files_by_run(place: str) -> FilesByRun:
    """Return the files of each run's folder. A failed listing must not count as empty."""
    found: FilesByRun = {}
    with storing(place):
        for name, changed in list_below(below(place, RUNS)):
            found.setdefault(name.partition("/")[0], {})[name] = changed
    return found


def _is_at_work(folder: str, working: Mapping[str, str]) -> bool:
    return folder in working or folder.removesuffix(KEYS) in working


def _remove_old_versions(table: str, older_than: timedelta) -> int:
    opened = table_at(table)
    if opened is None:
        return 0
    hours = math.ceil(older_than / timedelta(hours=1))

    def vacuum_files(*, dry_run: bool) -> list[str]:
        return opened.vacuum(
            retention_hours=hours, enforce_retention_duration=False, dry_run=dry_run
        )

    def remove() -> int:
        sync_log(table)  # else a power cut could restore a version whose files are gone
        existing = _count_existing(table, vacuum_files(dry_run=True))
        if existing:
            vacuum_files(dry_run=False)
        return existing

    with storing(table):
        old = commit_on_top(opened, remove)
        settings = opened.metadata().configuration
        if is_url(table) and settings.get("delta.enableExpiredLogCleanup") != "false":
            # entries of the log, which a commit on a store does not delete
            opened.cleanup_metadata()
    return old


def _count_existing(table: str, names: Sequence[str]) -> int:
    """Return how many of these files exist: the log names a file long after it is deleted."""
    forms = [{name, unquote(name)} for name in names]
    if not is_url(table):
        return sum(any(Path(table, form).exists() for form in both) for both in forms)
    existing = {listed.name for listed in objects.listed(table)} if forms else set()
    return sum(not both.isdisjoint(existing) for both in forms)


def _remove_runs(place: str, runs: FilesByRun, named: Collection[str], before: float) -> int:
    """Remove the files of ended runs; return how many had rows, and no version has them.

    A run with a named file was published: only the files that abandoned tasks wrote after its end
    are removed.
    """
    unpublished, folder = 0, below(place, RUNS)
    for run, files in runs.items():
        unneeded = [name for name in files if f"{RUNS}/{name}" not in named]
        old = [name for name in unneeded if files[name] <= before]
        is_published = len(unneeded) < len(files)
        if is_published or len(old) == len(files):
            with storing(place):
                delete_below(folder, old)
            # a folder without Parquet has only what an old version of Tidegate left
            unpublished += not is_published and any(name.endswith(".parquet") for name in old)
            for inner, _, _ in () if is_url(place) else os.walk(Path(folder, run), topdown=False):
                with contextlib.suppress(OSError):  # it has files that stay
                    Path(inner).rmdir()
    return unpublished


def _remove_inputs(place: str, days: Collection[str], before: float) -> None:
    """Remove inputs that no running day reads. A store does not know when one was last read, so
    its time of writing counts.
    """
    folder = below(place, INPUTS)
    with storing(place):
        old = [name for name, changed in list_below(folder) if changed <= before]
        unused = [name for name in old if name.partition("/")[0].rpartition("=")[2] not in days]
        delete_below(folder, unused)
