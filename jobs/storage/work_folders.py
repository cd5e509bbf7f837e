"""The folder in which the files of a table are written and checked, before readers see them."""

import os
from pathlib import Path

from jobs.storage.urls import is_url

VARIABLE = "TIDEGATE_WORK"
DEFAULT = "data/work"
RUNS = "runs"  # folder of the runs' folders
KEYS = "-keys"  # suffix of the folder of a run's keys, which no reader needs, beside the run's


def work_place(table: str, *, on_store: bool) -> str:
    """Return where files of a table are written before readers see them.

    Args:
        table: The table's folder or URL.
        on_store: Whether tasks that share no disk write them on the table's store.
    """
    return table.rstrip("/") if on_store else str(work_folder(table))


def work_folder(table: str) -> Path:
    """Return the table's folder; for a store's table, one in TIDEGATE_WORK or data/work.

    Driver and executors share it.
    """
    if not is_url(table):
        return Path(table)
    return Path(os.environ.get(VARIABLE) or DEFAULT, table.rstrip("/").replace("://", "/"))


def moved_here(folder: str) -> str:
    """Return where a folder of this project is now, if the project was moved since it was noted.

    It looks below the current folder for the longest end of the path. A folder that is still
    there, or nowhere, stays as it is.
    """
    path = Path(folder)
    if not folder or is_url(folder) or path.is_dir():
        return folder
    ends = (Path(*path.parts[start:]) for start in range(1, len(path.parts)))
    return next((str(end.resolve()) for end in ends if end.is_dir()), folder)
