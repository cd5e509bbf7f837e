"""The folder in which the files of a table are written and checked, before readers see them."""

import os
from pathlib import Path

from jobs.storage.urls import is_url

VARIABLE = "TIDEGATE_WORK"
DEFAULT = "data/work"


def work_folder(table: str) -> Path:
    """The table's own folder; of a table on an object store one on disk, in TIDEGATE_WORK, by default data/work.

    Driver and executors share it.
    """
    if not is_url(table):
        return Path(table)
    return Path(os.environ.get(VARIABLE) or DEFAULT, table.rstrip("/").replace("://", "/"))
