"""Removes the working folders that killed runs left in the ledger."""

import time
from collections.abc import Callable
from datetime import timedelta

from jobs.errors import LedgerError
from jobs.ledger.store import NO_FOLDERS, LedgerFolder
from jobs.storage.stored_files import error_text

RUNS = "runs"  # <folder>/runs/<run_id>/: working files of one run
ABANDONED = timedelta(days=2)  # without a heartbeat, which a living run writes every few seconds


def remove_abandoned(folder: LedgerFolder, *, clock: Callable[[], float] = time.time) -> int:
    """Delete the folders of runs without a younger file; they contain no answers. Returns the number of runs. Raises
    LedgerError.
    """
    newest: dict[str, float] = {}
    for info in folder.files(RUNS):
        if info.mtime is not None:
            run_id = info.path[len(folder.path) + len(RUNS) + 2 :].split("/")[0]
            newest[run_id] = max(newest.get(run_id, 0.0), info.mtime.timestamp())
    before = clock() - ABANDONED.total_seconds()
    abandoned = [run_id for run_id, last in newest.items() if last < before]
    for run_id in abandoned:
        remove_run(folder, run_id)
    return len(abandoned)


def remove_run(folder: LedgerFolder, run_id: str) -> None:
    """Delete the folder of a run, if it has one. Raises LedgerError."""
    name = f"{RUNS}/{run_id}"
    folder.delete(*folder.names(name))
    if folder.filesystem.type_name in NO_FOLDERS:
        return
    try:
        folder.filesystem.delete_dir(f"{folder.path}/{name}")
    except FileNotFoundError:
        return
    except OSError as error:
        raise LedgerError(f"ledger {folder.root!r}: {name} cannot be deleted: {error_text(error)}.") from error
