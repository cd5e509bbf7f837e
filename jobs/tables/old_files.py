"""Removes files that no reader needs: old versions of days, and runs that were never published."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import pyarrow as pa

from jobs.input.staged_files import FOLDER as INPUTS
from jobs.storage import objects
from jobs.storage.objects import ListedObject
from jobs.storage.urls import below, is_url
from jobs.storage.work_folders import RUNS, work_folder
from jobs.tables.delta.delta_log import commit_on_top, sync_log, table_at
from jobs.tables.delta.publishers import storing
from jobs.tables.leases.day_leases import at_work

if TYPE_CHECKING:
    from deltalake import DeltaTable

KEYS = "-keys"  # suffix of the folder of the run's keys, beside the run's folder
RETENTION = timedelta(days=7)


@dataclass(frozen=True)
class Removed:
    """The removed files.

    Attributes:
        old: Files that a later commit replaced.
        runs: Folders of runs that were never published.
    """

    old: int = 0
    runs: int = 0


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
        older_than: The limit, as an age.
        clock: Returns the time in s since the epoch.

    Raises:
        TidegateError: The disk is full or read-only, because Delta records its deletions first.
    """
    # in this order, because a run takes its lease before it makes its folder, and holds it until
    # its files are in the table
    work = work_folder(table)
    folders = [folder for folder in Path(work, RUNS).glob("*") if folder.is_dir()]
    copies = _copies(table)
    working = at_work(table)
    old, named = _remove_old_versions(table, older_than)
    needed = _needed(table, named)
    ended = [folder for folder in folders if not _list_runs(folder.name) & working.keys()]
    before = clock() - older_than.total_seconds()
    at_once = not older_than  # the clock of the store may be ahead of ours
    before_on_store = math.inf if at_once else before
    _remove_inputs(work / INPUTS, {*working.values()}, before)
    _remove_stored_inputs(table, {*working.values()}, before_on_store)
    runs = sum(_remove_run(folder, needed, before) for folder in ended)
    left = {run: found for run, found in copies.items() if not _list_runs(run) & working.keys()}
    return Removed(old, runs + _remove_copies(table, left, named, before_on_store))


def remove_run(table: str, run_id: str) -> None:
    """Removes the folders of a run that was not published; files of a version of the table stay.

    Raises TidegateError as `vacuum` does.
    """
    work = work_folder(table)
    folders = [
        folder for name in (run_id, run_id + KEYS) if (folder := Path(work, RUNS, name)).is_dir()
    ]
    if folders:
        needed = _needed(table, named_files(table))
        for folder in folders:
            _remove_run(folder, needed, math.inf)


def _list_runs(folder: str) -> set[str]:
    return {folder, folder.removesuffix(KEYS)}


def _copies(table: str) -> dict[str, list[ListedObject]]:
    found: dict[str, list[ListedObject]] = {}
    if is_url(table):
        with storing(table):
            for one in objects.listed(below(table, RUNS)):
                found.setdefault(one.name.partition("/")[0], []).append(one)
    return found


def _remove_copies(
    table: str, runs: Mapping[str, Sequence[ListedObject]], needed: set[str], before: float
) -> int:
    removed, unpublished = [], 0
    for copies in runs.values():
        unneeded = [one for one in copies if f"{RUNS}/{one.name}" not in needed]
        is_published = len(unneeded) < len(copies)
        old = [one for one in unneeded if one.changed.timestamp() <= before]
        if is_published or len(old) == len(copies):
            removed += [one.name for one in old]
            unpublished += not is_published
    if removed:
        with storing(table):
            objects.delete(below(table, RUNS), removed)
    return unpublished


def _remove_old_versions(table: str, older_than: timedelta) -> tuple[int, set[str]]:
    opened = table_at(table)
    if opened is None:
        return 0, set()
    hours = older_than // timedelta(hours=1)

    def remove() -> list[str]:
        sync_log(table)  # else a power cut could restore a version whose files are gone
        return opened.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)

    with storing(table):
        old = commit_on_top(opened, remove)
        named = _named_in(opened)
        settings = opened.metadata().configuration
        if is_url(table) and settings.get("delta.enableExpiredLogCleanup") != "false":
            # entries of the log, which a commit on a store does not delete
            opened.cleanup_metadata()
    return len(old), named


def named_files(table: str) -> set[str]:
    """Returns the files that readers of the table's versions need; empty without a table."""
    opened = table_at(table)
    if opened is None:
        return set()
    with storing(table):
        return _named_in(opened)


def _named_in(opened: DeltaTable) -> set[str]:
    """Returns the files of this version, and of earlier versions that are not vacuumed yet, below
    the table: each by its name, and by its form in the log.
    """
    replaced_since = opened.vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=True
    )
    named = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
    return {form for name in (*named, *replaced_since) for form in (name, unquote(name))}


def _needed(table: str, named: set[str]) -> set[Path]:
    root = work_folder(table).resolve()
    return set() if is_url(table) else {(root / name).resolve() for name in named}


def _remove_run(folder: Path, needed: set[Path], before: float) -> bool:
    """Removes the folder; returns whether it had unpublished rows. before: the age limit, s."""
    with storing(str(folder)):  # a failed listing must not count as empty
        try:
            files = {path: path.stat().st_mtime for path in _files(folder)}
            newest = max([folder.stat().st_mtime, *files.values()])
        except FileNotFoundError:  # another vacuum is at work
            return False
    if any(path.resolve() in needed for path in files):
        _remove_strays({path for path, changed in files.items() if changed <= before}, needed)
        return False
    if newest > before:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    # otherwise only the rest of an old version
    return any(path.suffix == ".parquet" for path in files)


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


def _remove_strays(files: set[Path], needed: set[Path]) -> None:
    """Removes files that abandoned tasks wrote after the end of the run: they have rows too."""
    for path in files:
        if path.resolve() not in needed:
            path.unlink(missing_ok=True)
