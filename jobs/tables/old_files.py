"""Files that no reader of a table needs any more: old versions of days, and runs that were never published."""

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

from jobs.tables.delta_log import table_at
from jobs.tables.leases import at_work
from jobs.tables.publishers import storing

RUNS = "runs"
KEYS = "-keys"  # ends the name of the folder beside the run's own, with the keys that it asks
RETENTION = timedelta(days=7)


@dataclass(frozen=True)
class Removed:
    """What was taken away. old: files that a later commit replaced. runs: folders of runs that were never published."""

    old: int = 0
    runs: int = 0


def vacuum(table: str, *, older_than: timedelta = RETENTION, clock: Callable[[], float] = time.time) -> Removed:
    """Delete the files that were replaced so long ago, and the folders of unpublished runs that are so old; in those of
    published runs, files that are in no version.

    Who reads a version older than that cannot any more. The run of a day that is at work keeps its folder, however old
    that is. Needs a folder on a file system. A crash half way leaves files that the next vacuum takes. Raises
    TidegateError when the disk refuses, as Delta notes first what it takes away.
    """
    # in this order: a run takes its lease before it makes its folder, and has it until its files are in the table
    folders = [folder for folder in Path(table, RUNS).glob("*") if folder.is_dir()]
    working = at_work(table)
    old, needed = _remove_old_versions(table, older_than)
    ended = [folder for folder in folders if not {folder.name, folder.name.removesuffix(KEYS)} & working.keys()]
    before = clock() - older_than.total_seconds()
    return Removed(old, sum(_remove_run(folder, needed, before) for folder in ended))


def _remove_old_versions(table: str, older_than: timedelta) -> tuple[int, set[Path]]:
    """How many files went, and those that a version needs which can still be read."""
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
    """Whether it held rows that were never published, and is gone. before: s since the epoch; what is older may go."""
    with storing(str(folder)):  # a look that fails says nothing of what is there
        files = {path: path.stat().st_mtime for path in _files(folder)}
    if any(path.resolve() in needed for path in files):
        _remove_strays({path for path, changed in files.items() if changed <= before}, needed)
        return False
    if max([folder.stat().st_mtime, *files.values()]) > before:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return any(path.suffix == ".parquet" for path in files)  # else it is what is left of an old version


def _files(folder: Path) -> Iterator[Path]:
    """Every file below a folder. Raises OSError when a folder cannot be listed, where `rglob` passes over it."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    for inner, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(inner, name) for name in names)


def _remove_strays(files: set[Path], needed: set[Path]) -> None:
    """What a task wrote that Spark no longer counted on, when the run had ended: it holds rows all the same."""
    for path in files:
        if path.resolve() not in needed:
            path.unlink(missing_ok=True)
