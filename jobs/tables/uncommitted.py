"""Removes rows that killed runs left beside the published table and did not commit.

The files with the audit rows and dead letters of a run are linked on a disk, or copied by a store,
before the commit that names them. After a kill between the two they have rows that no reader sees.
"""

import math
from datetime import timedelta
from urllib.parse import unquote

from jobs.storage.listings import delete_below, list_below
from jobs.tables import audit, dead_letters
from jobs.tables.delta.by_run import RUN
from jobs.tables.delta.write_errors import storing
from jobs.tables.leases.day_leases import at_work
from jobs.tables.old_files import named_files


def remove_uncommitted(table: str, *, older_than: timedelta, now: float) -> None:
    """Delete such files, except those of running runs and younger files. A version's files stay.

    Args:
        table: Path or URL of the published table.
        older_than: The age limit.
        now: Seconds since the epoch.

    Raises:
        TidegateError: A disk or a store fails.
    """
    # the clock of a store may be ahead of ours
    before = now - older_than.total_seconds() if older_than else math.inf
    for beside in (audit.table_of(table), dead_letters.table_of(table)):
        # in this order, because a run holds its lease until its rows are in the table
        with storing(beside):
            listed = list_below(beside)
        working = {"", *at_work(table)}
        left = [
            name for name, changed in listed if changed <= before and _run_id(name) not in working
        ]
        if left:
            named = named_files(beside)
            with storing(beside):
                delete_below(beside, [name for name in left if name not in named])


def _run_id(name: str) -> str:
    """Return the run of a file; empty for a file of the log."""
    folder = name.split("/")[-2] if "/" in name else ""
    return unquote(folder.removeprefix(f"{RUN}=")) if folder.startswith(f"{RUN}=") else ""
