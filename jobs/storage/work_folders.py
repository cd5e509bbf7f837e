"""The folder in which the files of a table are written and checked, before readers see them."""

import os
from pathlib import Path

from jobs.storage.urls import is_url

VARIABLE = "TIDEGATE_WORK"
DEFAULT = "data/work"
RUNS = "runs"  # folder of the runs' folders


def work_place(table: str, *, on_store: bool) -> str:
    """Where files of a table are written before readers see them.

    Args:
        table: Its folder or URL.
        on_store: They are written on the store that the table is on, by tasks that share no disk.
    """
    return table.rstrip("/") if on_store else str(work_folder(table))


def work_folder(table: str) -> Path:
    """The table's own folder; of a table on an object store one on disk, in TIDEGATE_WORK, by default data/work.

    Driver and executors share it.
    """
    if not is_url(table):
        return Path(table)
    return Path(os.environ.get(VARIABLE) or DEFAULT, table.rstrip("/").replace("://", "/"))
