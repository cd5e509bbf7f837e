"""Brings a run's files to their readers: synced to disk, or copied to the table's object store.

An interrupted copy leaves files that are in no version of the table; `vacuum` removes them.
"""

import dataclasses
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq

from jobs.schema.records import DayFacts
from jobs.storage import objects
from jobs.storage.parquet_files import RunTask, read_footer
from jobs.storage.removal import remove_folder
from jobs.storage.urls import below, is_url
from jobs.storage.work_folders import work_folder
from jobs.tables import rows_beside
from jobs.tables.delta.delta_log import to_disk

AT_ONCE = 8  # uploads


def write_beside(facts: DayFacts, run: RunTask | None = None) -> DayFacts:
    """Write the rows of the tables beside the published one into the run's folder.

    Args:
        facts: The run; if its rows beside are written, they stay as they are.
        run: Runs a task on each of several files; None: this thread writes one file of each table.

    Returns:
        The facts with those files.
    """
    files = with_rows(facts)
    if facts.audit_files or not files:
        return facts
    written = (
        [rows_beside.write(facts, files)]
        if run is None
        else run(lambda file, _facts: rows_beside.write(facts, [file]), files)
    )
    return dataclasses.replace(
        facts,
        audit_files=tuple(audit for audit, _ in written),
        letter_files=tuple(letters for _, letters in written if letters is not None),
    )


def deliver(facts: DayFacts) -> DayFacts:
    """Return facts with the files' final places; a store gets no empty file. Raises OSError."""
    table = facts.declared.table
    root = work_folder(table).resolve()
    if not is_url(table):
        to_disk(map(Path, facts.published_files), root)
        return dataclasses.replace(facts, audit_files=(), letter_files=())
    if is_url(facts.folder):  # tasks wrote them there
        empty = {file.place for file in facts.written if not file.rows}
        with_rows = tuple(file for file in facts.files if file not in empty)
        return dataclasses.replace(facts, files=with_rows, audit_files=(), letter_files=())
    files = tuple(file for file in facts.files if pq.read_metadata(file).num_rows)
    of_windows = [
        file for window in facts.windows for file in (*window.files, *window.dropped_files)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(
            pool.map(
                lambda file: objects.upload(Path(file), _place(file, table, root)),
                [*files, *facts.kept_files, *of_windows],
            )
        )
    delivered = dataclasses.replace(facts, files=files, audit_files=(), letter_files=())
    return delivered.moved(
        _place(facts.folder, table, root), lambda file: _place(file, table, root)
    )


def with_rows(facts: DayFacts) -> list[str]:
    """Return the published files of a run that are not empty."""
    known = {file.place: file.rows for file in facts.written}
    return [
        file
        for file in facts.published_files
        if known.get(file) or (file not in known and read_footer(file).num_rows)
    ]


def discard_work(facts: DayFacts) -> None:
    """Remove what a published run has in the work folder, or for the tables beside the published
    one.
    """
    if is_url(facts.declared.table) and not is_url(facts.folder):
        shutil.rmtree(facts.folder, ignore_errors=True)
    else:
        discard_beside(facts)


def discard_beside(facts: DayFacts) -> None:
    """Remove what `write_beside` wrote."""
    remove_folder(below(facts.folder, rows_beside.FOLDER))


def _place(file: str, table: str, root: Path) -> str:
    return below(table, *Path(file).relative_to(root).parts)
