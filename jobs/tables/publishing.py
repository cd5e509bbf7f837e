"""Publishes a day by a Delta commit that removes the day's old files and adds the run's files.

Readers see the old day or the new day. The files are those that the checks judged; they may have
more columns than the table. `vacuum` removes the files of runs that were never published.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from jobs.errors import PublishConflict
from jobs.schema.records import DayFacts, DayRecord
from jobs.storage.parquet_files import read_schema
from jobs.storage.urls import is_url
from jobs.storage.work_folders import work_folder
from jobs.tables import audit, dead_letters
from jobs.tables.delivery import deliver, discard_work, write_beside
from jobs.tables.delta import by_run
from jobs.tables.delta.added_columns import add_columns, missing_columns
from jobs.tables.delta.delta_log import (
    COMMIT_TRIES,
    commit_hooks,
    format_mark,
    lasting,
    saying_format,
    table_at,
)
from jobs.tables.delta.published_files import publication_mark, transaction_name
from jobs.tables.delta.publishers import alone_with
from jobs.tables.delta.write_errors import storing
from jobs.tables.delta.written_files import (
    NewFile,
    add_actions,
    create_table,
    end_of_run,
    table_columns,
)
from jobs.tables.leases.day_leases import Lease
from jobs.tables.records import run_records
from jobs.tables.shown import shown_elsewhere


def publish(
    record: DayRecord,
    lease: Lease | None = None,
    *,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> DayRecord:
    """Publish this run's files: first audit and dead letters, then the table.

    After a crash before the commit readers see the previous version; the tables beside it then have
    rows of an unpublished run, marked by run_id, until the day is published again.

    Returns:
        The saved record, after everything was synced to disk.

    Raises:
        PublishConflict: The run lost the lease, a verdict holds the day back, or another run
            published the day meanwhile.
        TidegateError: The disk fails.
    """
    facts = record.facts
    if red := record.red:
        raise PublishConflict(f"{facts.day} is held back: {red[0].check}: {red[0].sentence}")
    with storing(facts.declared.table), alone_with(facts.declared.table):
        # read first, so that a commit of a run that takes the lease later is a conflict
        published = table_at(facts.declared.table)
        if lease is not None:
            lease.confirm()
        delivered = deliver(facts)
        version = _committed(record, published)
        shown_elsewhere.show(facts.declared)
        at = now().isoformat(timespec="seconds")
        saved = run_records.save(
            dataclasses.replace(
                record,
                facts=delivered,
                state="published",
                published_version=version,
                published_at=at,
            )
        )
        discard_work(facts)
        return saved


def _committed(record: DayRecord, published: DeltaTable | None) -> int:
    """Commit audit, dead letters and the day, then remove other runs' rows. Returns the version.

    Each step is synced before the next step begins: after a power cut the tables beside have the
    rows of the run whose day readers see.
    """
    facts = write_beside(record.facts)
    with lasting_beside(facts):
        remove_other_runs = audit.write(facts), dead_letters.write(facts)
    try:
        before = facts.changes.over if facts.changes else None
        with lasting(facts.declared.table):
            version = (
                first_day(record)
                if published is None
                else replace_day(published, record, before=before)
            )
    except PublishConflict:
        for table in beside(facts):
            by_run.remove(table, facts)
        raise
    with lasting_beside(facts):
        for remove in remove_other_runs:
            remove()
    return version


@contextmanager
def lasting_beside(facts: DayFacts) -> Iterator[None]:
    """Sync the body's commits to the tables beside the published table."""
    audit_table, letters_table = beside(facts)
    with lasting(audit_table), lasting(letters_table):
        yield


def beside(facts: DayFacts) -> tuple[str, str]:
    """Return the tables with rows of the published run."""
    table = facts.declared.table
    return audit.table_of(table), dead_letters.table_of(table)


def published_columns(facts: DayFacts) -> list[str]:
    """Return the published columns, without the partition column."""
    return [*facts.input_columns, *(answer.name for answer in facts.declared.published_answers())]


def first_day(record: DayRecord) -> int:
    """Create the table with this day, in a single commit. If another program created the table
    first, commits on top of it. Returns the version.
    """
    facts = record.facts
    try:
        _create(facts, actions_of_run(facts), _properties(record, 1, format_mark()))
    except DeltaError:
        if (published := table_at(facts.declared.table)) is None:
            raise
        return replace_day(published, record, before=0)
    return 0


def created(facts: DayFacts) -> DeltaTable:
    """Return the published table of a stream, created empty."""
    _create(facts, [], saying_format())
    return DeltaTable(facts.declared.table)


def _create(facts: DayFacts, actions: Sequence[AddAction], properties: CommitProperties) -> None:
    create_table(
        facts.declared.table, delta_schema(facts), actions, properties,
        partition_by=[facts.declared.partition], name=facts.declared.enrichment,
    )  # fmt: skip


def replace_day(table: DeltaTable, record: DayRecord, *, before: int | None = None) -> int:
    """Commit on top of the loaded `table`: remove the day's files and add this run's files, if
    any. Publications of other days do not conflict.

    Args:
        table: The published table.
        record: The run.
        before: The mark of the publication that this run may replace. By default the mark in the
            loaded table, which is read only when the table moves on, because it costs a request for
            each commit on a store.

    Returns:
        The version.

    Raises:
        PublishConflict: Another run published the day since then, or a column changed its type.
        CommitFailedError: Delta refuses the commit, or other programs were first at each try.
    """
    facts = record.facts
    partition = facts.declared.partition
    columns = delta_schema(facts) if facts.files else table.schema()
    refused: CommitFailedError | None = None
    for _ in range(COMMIT_TRIES):
        if missing_columns(table, columns):
            before = publication_mark(table, facts) if before is None else before
            add_columns(table, columns)
        if before is not None and publication_mark(table, facts) != before:
            break
        try:
            table.create_write_transaction(
                [*actions_of_run(facts)], mode="overwrite", schema=table.schema(),
                partition_by=[partition], partition_filters=[(partition, "=", facts.day)],
                commit_properties=_properties(record, table.version() + 2),
                post_commithook_properties=commit_hooks(facts.declared.table, table),
            )  # fmt: skip
        except CommitFailedError as error:
            refused = error
            before = publication_mark(table, facts) if before is None else before
            table.update_incremental()
        else:
            return table.version() + 1
    if (version := _own_version(table, record)) is not None:
        return version
    if refused is not None and publication_mark(table, facts) == before:
        raise refused  # no other run was first
    raise PublishConflict(
        f"another run published {facts.day} of {facts.declared.enrichment} meanwhile; this one did "
        "not. Nothing is lost: readers see the other run's day."
    )


def _own_version(table: DeltaTable, record: DayRecord) -> int | None:
    """Return the version of this run's commit, if any. A store may have taken the commit although
    its answer was lost.
    """
    entries = table.history(COMMIT_TRIES)
    of_run = (entry for entry in entries if entry.get("tidegate.run_id") == record.facts.run_id)
    return next((entry["version"] for entry in of_run), None)


def _properties(record: DayRecord, mark: int, *also: Transaction) -> CommitProperties:
    metadata = {
        "tidegate.run_id": record.facts.run_id,
        "tidegate.day": record.facts.day,
        "tidegate.rows": str(record.rows_published),
        "tidegate.declaration": record.facts.declared.fingerprint,
    }
    # Delta retries no commit: of two commits that create a table it would take the second for a
    # commit that adds to it, which would duplicate the day. So the version is known, too.
    of_day = Transaction(transaction_name(record.facts), mark)
    return CommitProperties(
        custom_metadata=metadata, app_transactions=[of_day, *also], max_commit_retries=0
    )


def actions_of_run(facts: DayFacts) -> list[AddAction]:
    """Return the actions that add the run's files to their day; a file without rows has none."""
    return add_actions(_new_files(facts), {facts.declared.partition: facts.day})


def _new_files(facts: DayFacts) -> Iterator[NewFile]:
    if is_url(facts.folder):
        start = f"{facts.declared.table.rstrip('/')}/"
        for written in facts.written:
            path = written.place.removeprefix(start)
            yield NewFile(path, written.bytes, end_of_run(facts), written.rows)
        return
    root = work_folder(facts.declared.table).resolve()
    for file in map(Path, facts.published_files):
        stat, rows = file.stat(), pq.read_metadata(file).num_rows
        yield NewFile(str(file.relative_to(root)), stat.st_size, int(stat.st_mtime * 1000), rows)


def delta_schema(facts: DayFacts) -> Schema:
    written = read_schema(facts.files[0])
    # a file of a batch that was written before a column was declared lacks it; the table has it
    names = [name for name in published_columns(facts) if name in written.names]
    return table_columns(map(written.field, names), facts)
