"""Removes files that no reader needs: old versions of days, and runs that were never published."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

from jobs.input.staged_files import FOLDER as INPUTS
from jobs.tables.delta_log import table_at
from jobs.tables.leases import at_work
from jobs.tables.publishers import storing

RUNS = "runs"
KEYS = "-keys"  # suffix of the folder of the run's keys, beside its own folder
RETENTION = timedelta(days=7)


@dataclass(frozen=True)
class Removed:
    """The removed files. old: files that a later commit replaced. runs: folders of runs that were never published."""

    old: int = 0
    runs: int = 0


def vacuum(table: str, *, older_than: timedelta = RETENTION, clock: Callable[[], float] = time.time) -> Removed:
    """Delete files that were replaced before the limit, folders of unpublished runs older than it, in the folders of
    published runs files in no version, and inputs that were converted and last used before it.

    Older versions become unreadable. A running run keeps its folder at any age. Needs a folder on a file system. A
    crash leaves files that the next vacuum removes. Raises TidegateError if the disk is full or read-only, because
    Delta records its deletions first.
    """
    # in this order: a run takes its lease before it makes its folder, and holds it until its files are in the table
    folders = [folder for folder in Path(table, RUNS).glob("*") if folder.is_dir()]
    working = at_work(table)
    old, needed = _remove_old_versions(table, older_than)
    ended = [folder for folder in folders if not {folder.name, folder.name.removesuffix(KEYS)} & working.keys()]
    before = clock() - older_than.total_seconds()
    _remove_inputs(Path(table, INPUTS), {*working.values()}, before)
    return Removed(old, sum(_remove_run(folder, needed, before) for folder in ended))


def _remove_old_versions(table: str, older_than: timedelta) -> tuple[int, set[Path]]:
    """The number of removed files, and the files of readable versions."""
    opened = table_at(table)
    if opened is None:
        return 0, set()
    hours = older_than // timedelta(hours=1)
    with storing(table):
        old = opened.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)
        replaced_since = opened.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
    root = Path(table).resolve()
    named = [uri.removeprefix("file://") for uri in opened.file_uris()]
    needed = {Path(form).resolve() for name in named for form in (name, unquote(name))}
    return len(old), needed | {root / unquote(name) for name in replaced_since}


def _remove_run(folder: Path, needed: set[Path], before: float) -> bool:
    """Remove a run's folder; True if it had rows that were never published. before: s since the epoch, the age
    limit.
    """
    with storing(str(folder)):  # a failed listing must not count as empty
        files = {path: path.stat().st_mtime for path in _files(folder)}
    if any(path.resolve() in needed for path in files):
        _remove_strays({path for path, changed in files.items() if changed <= before}, needed)
        return False
    if max([folder.stat().st_mtime, *files.values()]) > before:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return any(path.suffix == ".parquet" for path in files)  # otherwise it is the rest of an old version


def _remove_inputs(folder: Path, days: set[str], before: float) -> None:
    """Remove inputs converted to Parquet that were last used before the limit, except those of `days`."""
    with storing(str(folder)):
        for path in _files(folder) if folder.is_dir() else ():
            if path.parent.name.rpartition("=")[2] not in days and path.stat().st_mtime <= before:
                path.unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[Path]:
    """Every file below a folder. Raises OSError for a folder that cannot be listed, which `rglob` would skip."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    for inner, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(inner, name) for name in names)


def _remove_strays(files: set[Path], needed: set[Path]) -> None:
    """Remove files of tasks that Spark had given up, written after the end of the run: they contain rows too."""
    for path in files:
        if path.resolve() not in needed:
            path.unlink(missing_ok=True)
