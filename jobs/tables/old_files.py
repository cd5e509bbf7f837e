"""Removes files that no reader needs: old versions of days, and runs that were never published."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

import pyarrow as pa

from jobs.errors import DeclarationError
from jobs.input.staged_files import FOLDER as INPUTS
from jobs.storage import objects
from jobs.storage.objects import ListedObject
from jobs.storage.urls import below, is_url
from jobs.storage.work_folders import RUNS, work_folder
from jobs.tables.delta.delta_log import commit_on_top, sync_log, table_at
from jobs.tables.delta.publishers import storing
from jobs.tables.leases.day_leases import at_work
from jobs.wording import counted

FORGETS = "delta.deletedFileRetentionDuration"  # how long a checkpoint names a replaced file
INTERVAL = re.compile(r"interval ([0-9]{1,6}) (week|day|hour|minute|second)s?")
KEYS = "-keys"  # suffix of the folder of the run's keys, beside the run's folder
RETENTION = timedelta(days=7)  # Delta's default too


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
    """Raises DeclarationError if the table's log may have forgotten what was replaced since.

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
    """Deletes files that no reader needs.

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
    # The order matters: a run takes its lease before it makes its folder, and holds it until its
    # files are in the table. So a folder that is there first, and whose run then has no lease, is
    # of a run that has ended, and the table, which is read last, names its files if it published.
    folders, copies = _run_folders(table), _run_copies(table)
    working = at_work(table)
    old = _remove_old_versions(table, older_than)
    named = named_files(table)

    # afterwards, because the removal of an old version changes its folder
    before = clock() - older_than.total_seconds()
    # the clock of the store may be ahead of ours
    before_on_store = before if older_than else math.inf

    ended = [folder for folder in folders if not _is_at_work(folder.name, working)]
    needed = _on_disk(table, named)
    runs = sum(_remove_run(folder, needed, before) for folder in ended)
    left = [found for run, found in copies.items() if not _is_at_work(run, working)]
    runs += _remove_copies(table, left, named, before_on_store)

    days = {*working.values()}
    _remove_inputs(work_folder(table) / INPUTS, days, before)
    _remove_stored_inputs(table, days, before_on_store)
    return Removed(old, runs)


def remove_run(table: str, run_id: str) -> None:
    """Removes the folders of a run that was not published; files of a version of the table stay.

    Raises TidegateError as `vacuum` does.
    """
    runs = Path(work_folder(table), RUNS)
    folders = [path for name in (run_id, run_id + KEYS) if (path := runs / name).is_dir()]
    needed = _on_disk(table, named_files(table)) if folders else set()
    for folder in folders:
        _remove_run(folder, needed, math.inf)


def named_files(table: str) -> set[str]:
    """Returns the files of this version, and of earlier versions that are not vacuumed yet, below
    the table: each as the log writes it and unquoted. Empty without a table.
    """
    opened = table_at(table)
    if opened is None:
        return set()
    with storing(table):
        replaced = opened.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
        named = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
    return {form for name in (*named, *replaced) for form in (name, unquote(name))}


def _on_disk(table: str, named: set[str]) -> set[Path]:
    """Returns these files as paths; a store's table has none on the disk."""
    root = work_folder(table).resolve()
    return set() if is_url(table) else {(root / name).resolve() for name in named}


def _run_folders(table: str) -> list[Path]:
    return [folder for folder in Path(work_folder(table), RUNS).glob("*") if folder.is_dir()]


def _run_copies(table: str) -> dict[str, list[ListedObject]]:
    """Returns the objects of the table's store by the run's folder; empty for a table on a disk."""
    found: dict[str, list[ListedObject]] = {}
    if is_url(table):
        with storing(table):
            for one in objects.listed(below(table, RUNS)):
                found.setdefault(one.name.partition("/")[0], []).append(one)
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
        there = _count_there(table, vacuum_files(dry_run=True))
        if there:
            vacuum_files(dry_run=False)
        return there

    with storing(table):
        old = commit_on_top(opened, remove)
        settings = opened.metadata().configuration
        if is_url(table) and settings.get("delta.enableExpiredLogCleanup") != "false":
            # entries of the log, which a commit on a store does not delete
            opened.cleanup_metadata()
    return old


def _count_there(table: str, names: Sequence[str]) -> int:
    """Returns how many of these files exist: the log names a file long after it is deleted."""
    forms = [{name, unquote(name)} for name in names]
    if not is_url(table):
        return sum(any(Path(table, form).exists() for form in both) for both in forms)
    there = {one.name for one in objects.listed(table)} if forms else set()
    return sum(not both.isdisjoint(there) for both in forms)


def _remove_run(folder: Path, needed: set[Path], before: float) -> bool:
    """Removes the folder of an ended run; returns whether it had rows, and no version has them.

    Of a run with a needed file only strays go: files that abandoned tasks wrote after its end.
    """
    with storing(str(folder)):  # a failed listing must not count as empty
        try:
            files = {path: path.stat().st_mtime for path in _files(folder)}
            newest = max([folder.stat().st_mtime, *files.values()])
        except FileNotFoundError:  # another vacuum is at work
            return False
    unneeded = [path for path in files if path.resolve() not in needed]
    if len(unneeded) < len(files):
        for path in unneeded:
            if files[path] <= before:
                path.unlink(missing_ok=True)
        return False
    if newest > before:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    # without Parquet it is only what an old version left
    return any(path.suffix == ".parquet" for path in files)


def _remove_copies(
    table: str, runs: Iterable[Sequence[ListedObject]], named: set[str], before: float
) -> int:
    """Removes objects of ended runs, as `_remove_run` removes files; returns the same, counted."""
    removed, unpublished = [], 0
    for copies in runs:
        unneeded = [one for one in copies if f"{RUNS}/{one.name}" not in named]
        old = [one.name for one in unneeded if one.changed.timestamp() <= before]
        is_published = len(unneeded) < len(copies)
        if is_published or len(old) == len(copies):
            removed += old
            unpublished += not is_published
    if removed:
        with storing(table):
            objects.delete(below(table, RUNS), removed)
    return unpublished


def _remove_inputs(folder: Path, days: set[str], before: float) -> None:
    with storing(str(folder)):
        for path in _files(folder) if folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another vacuum is at work
                if (
                    path.parent.name.rpartition("=")[2] not in days
                    and path.stat().st_mtime <= before
                ):
                    path.unlink()


def _remove_stored_inputs(table: str, days: set[str], before: float) -> None:
    """Removes inputs that tasks on other machines read. A store does not know when an input was
    last read, so its time of writing counts.
    """
    if not is_url(table):
        return
    folder = below(table, INPUTS)
    with storing(table):
        old = [one.name for one in objects.listed(folder) if one.changed.timestamp() <= before]
        unused = [name for name in old if name.partition("/")[0].rpartition("=")[2] not in days]
        if unused:
            objects.delete(folder, unused)


def _files(folder: Path) -> Iterator[Path]:
    """Yields all files. Raises OSError for an unreadable folder, which `rglob` would skip."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    for inner, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(inner, name) for name in names)
