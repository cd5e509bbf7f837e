"""Cleans up after publications that crashed: rows beside the published table, and records.

The files with the audit rows and dead letters of a run are linked on a disk, or copied by a store,
before the commit that names them. After a kill between the two they have rows that no reader sees.
"""

import math
from datetime import timedelta
from urllib.parse import unquote

from jobs.declare.enrichment import Enrichment
from jobs.errors import TidegateError
from jobs.schema.records import DayRecord
from jobs.storage.listings import delete_below, list_below
from jobs.storage.stored_files import is_there
from jobs.storage.urls import absolute, below
from jobs.tables import audit, dead_letters
from jobs.tables.delta import by_run
from jobs.tables.delta.asked_keys import runs_in_table
from jobs.tables.delta.delta_log import LOG, sync_log, table_at
from jobs.tables.delta.publishers import alone_with
from jobs.tables.delta.write_errors import storing
from jobs.tables.leases.day_leases import at_work
from jobs.tables.old_files import named_files
from jobs.tables.records import run_records
from jobs.tables.records.killed_runs import as_published


def delete_what_crashes_left(enrichment: Enrichment) -> None:
    """Delete audit rows and dead letters of unpublished runs, except of days whose files another
    program rewrote: the table no longer names the runs of these days.
    """
    table = enrichment.output.path
    with storing(table), alone_with(table):
        published, unknown = runs_in_table(enrichment)
        for beside in (audit.table_of(table), dead_letters.table_of(table)):
            by_run.keep_published(beside, enrichment.input.partition, published, unknown)


def remove_uncommitted(table: str, *, older_than: timedelta, now: float) -> None:
    """Delete files of the tables beside that no commit names, except those of running runs and
    files younger than this age at `now`, in s since the epoch. A version's files stay.

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
    mark = f"{by_run.RUN}="
    return unquote(folder.removeprefix(mark)) if folder.startswith(mark) else ""


def save_published_records(enrichment: Enrichment) -> None:
    """Save the records of published runs of days that a crash left as written.

    A stream completes those of its batches when it starts. Raises TidegateError.
    """
    if not _left_as_written(enrichment):
        return
    # no publication is running
    with storing(enrichment.output.path), alone_with(enrichment.output.path):
        if table_at(enrichment.output.path) is not None:
            sync_log(enrichment.output.path)
        for record in as_published(_left_as_written(enrichment), enrichment.output.path):
            if record.state != "written":
                run_records.save(record)


def _left_as_written(enrichment: Enrichment) -> list[DayRecord]:
    return [record for record in run_records.load(enrichment.name) if record.state == "written"]


def require_log(enrichment: Enrichment) -> None:
    """Refuse a folder with files of published days and without a log, by which they would count as
    files of unpublished runs.

    Raises TidegateError.
    """
    table = enrichment.output.path
    if table_at(table) is not None:
        return
    for record in run_records.load(enrichment.name):
        is_of_table = absolute(record.facts.declared.table) == absolute(table)
        is_published = is_of_table and record.state == "published"
        are_there = is_published and any(map(is_there, record.facts.published_files))
        if are_there and table_at(table) is None:  # else the first day was published meanwhile
            raise TidegateError(
                f"{enrichment.name}: {below(table, LOG)} is missing, and files of published days "
                f"are there, as of {record.facts.day}; nothing was removed. Restore the log from a "
                "copy; without one move the table away and run its days again, with the ledger's "
                "answers."
            )
