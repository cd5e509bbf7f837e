"""Publishes a micro-batch of a stream by a single Delta commit that adds its rows to their days.

The commit has Spark's query id and batch number as its transaction, which identifies the batch if
it comes again.
"""

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from jobs.declare.enrichment import Enrichment
from jobs.errors import PublishConflict
from jobs.schema.records import DayFacts, DayRecord
from jobs.streams.day_so_far import add_batch, can_sum_bills, run_plus_batch
from jobs.tables import audit, dead_letters
from jobs.tables.delivery import deliver, discard_beside, write_beside
from jobs.tables.delta.added_columns import add_columns
from jobs.tables.delta.asked_keys import runs_in_table
from jobs.tables.delta.delta_log import COMMIT_TRIES, commit_hooks, commit_on_top, lasting, table_at
from jobs.tables.delta.published_files import publication_mark, transaction_name
from jobs.tables.delta.publishers import alone_with
from jobs.tables.delta.write_errors import storing
from jobs.tables.leases.day_leases import Lease
from jobs.tables.publishing import actions_of_run, created, delta_schema, lasting_beside
from jobs.tables.records import run_records
from jobs.tables.records.publications import published_versions
from jobs.tables.records.published_runs import last_published, was_published
from jobs.tables.shown import shown_elsewhere

Clock = Callable[[], dt.datetime]
_UNKNOWN: Mapping[str, str] = {}


@dataclass(frozen=True)
class MicroBatch:
    """A batch of a query.

    Attributes:
        query: Spark's query id, which a new checkpoint changes; batch numbers then begin at 0.
    """

    query: str
    number: int

    @property
    def runs(self) -> str:
        """The prefix of the ids of its runs, for each day and each try."""
        return f"{self.query}-{self.number}-"


def last_batch(table: str, query: str) -> int | None:
    """Return the number of the last published batch of a query."""
    published = table_at(table)
    return None if published is None else published.transaction_version(query)


def complete_records(
    enrichment: Enrichment, batch: MicroBatch, now: Clock = lambda: dt.datetime.now(dt.UTC)
) -> list[DayRecord]:
    """Return a published batch's records; save as published those that a kill left as written."""
    runs, _ = runs_in_table(enrichment)
    found = [
        run_records.of_run(enrichment.name, day, run)
        for day, run in runs
        if run.startswith(batch.runs)
    ]
    records = [record for record in found if record is not None]
    if left := [record for record in records if record.state == "written"]:
        table = table_at(enrichment.output.path)
        assert table is not None  # the table has the batch
        shown_elsewhere.catch_up(enrichment.facts())
        version = published_versions(table).get(left[0].facts.run_id, table.version())
        _save_published(left, batch, version, now)
    return records


def _save_published(
    records: Sequence[DayRecord],
    batch: MicroBatch,
    version: int,
    now: Clock,
    runs_before: Mapping[str, str] = _UNKNOWN,
) -> list[DayRecord]:
    """Save each record with the figures of its day so far; it replaces that of the batch before.

    Args:
        records: The records of this batch.
        batch: The batch.
        version: The version of the table that the batch published.
        now: The clock.
        runs_before: By day, the run that held its lease before.

    Returns:
        The records with the figures of this batch.
    """
    at = now().isoformat(timespec="seconds")
    published = [
        dataclasses.replace(record, state="published", published_version=version, published_at=at)
        for record in records
    ]
    for record in published:
        name, day = record.facts.declared.enrichment, record.facts.day
        before = _published_before(record.facts, batch, runs_before.get(day, ""))
        if before is None:
            run_records.save(record)
        # the record of a day's run stays, and a record whose bill is of another day than the new
        # bill, or cannot be added to it
        elif (
            not before.facts.run_id.startswith(f"{batch.query}-")
            or before.facts.started_at[:10] != record.facts.started_at[:10]
            or not can_sum_bills(before.figures, record.figures)
        ):
            figures, counted_from = run_plus_batch(before, record.figures), before.facts.run_id
            run_records.save(dataclasses.replace(record, figures=figures, counts_too=counted_from))
        else:
            both = dataclasses.replace(
                record,
                figures=add_batch(before.figures, record.figures),
                adds_to=before.facts.run_id,
                counts_too=before.counts_too,
                first_published_at=before.first_published_at or before.published_at or "",
            )
            run_records.save(both)
            run_records.remove(name, record.facts.declared.table, run_records.record_path(before))
    return published


def _published_before(facts: DayFacts, batch: MicroBatch, run_before: str) -> DayRecord | None:
    """Return the record of the day before this batch. The record of a batch of this query is read
    by its id, which the lease names.
    """
    enrichment, day, table = facts.declared.enrichment, facts.day, facts.declared.table
    record = (
        run_records.of_run(enrichment, day, run_before)
        if run_before.startswith(f"{batch.query}-")
        else None
    )
    if record is not None and record.state == "published":
        return record
    if not was_published(table, facts, times=2):  # this batch is the first publication of the day
        return None
    return last_published(enrichment, day, table=table, before=batch.runs)


def publish_batch(
    records: Sequence[DayRecord],
    batch: MicroBatch,
    leases: Sequence[Lease],
    *,
    now: Clock = lambda: dt.datetime.now(dt.UTC),
) -> list[DayRecord]:
    """Publish a batch, a record for each of its days: first audit and dead letters, then a single
    commit.

    Returns:
        The saved records, after everything was synced to disk.

    Raises:
        PublishConflict: A lease is lost, or the batch is already published.
        TidegateError: The disk fails.
    """
    table = records[0].facts.declared.table
    with storing(table), alone_with(table):
        for lease in leases:
            lease.confirm()
        for record in records:
            deliver(record.facts)
        with lasting(table), lasting_beside(records[0].facts):
            for facts in (write_beside(record.facts) for record in records):
                audit.write(facts, again=False)
                dead_letters.write(facts, again=False)
            version = _append(table_at(table) or created(records[0].facts), records, batch)
        shown_elsewhere.show(records[0].facts.declared)
        saved = _save_published(
            records, batch, version, now, {lease.day: lease.before for lease in leases}
        )
        for record in records:
            discard_beside(record.facts)
        return saved


def _append(table: DeltaTable, records: Sequence[DayRecord], batch: MicroBatch) -> int:
    """Commit the rows on top of the loaded `table`. Returns the version."""
    declared, began = records[0].facts.declared, table.version()

    def commit() -> int:
        if (last := table.transaction_version(batch.query)) is not None and last >= batch.number:
            raise PublishConflict(
                f"another process published batch {batch.number} of {declared.enrichment} "
                "meanwhile; let only one of them run."
            )
        for record in records:
            add_columns(table, delta_schema(record.facts))
        actions = [action for record in records for action in actions_of_run(record.facts)]
        table.create_write_transaction(
            [*actions], mode="append", schema=table.schema(), partition_by=[declared.partition],
            commit_properties=_properties(table, records, batch),
            post_commithook_properties=commit_hooks(declared.table, table),
        )  # fmt: skip
        return table.version() + 1

    try:
        return commit_on_top(table, commit)
    except CommitFailedError as refused:
        table.update_incremental()
        if table.version() == began:  # no other program was first
            raise
        raise PublishConflict(
            f"batch {batch.number} of {declared.enrichment} is not published: other programs "
            f"committed to {declared.table} during each of {COMMIT_TRIES} tries; start the stream "
            "again."
        ) from refused


def _properties(
    table: DeltaTable, records: Sequence[DayRecord], batch: MicroBatch
) -> CommitProperties:
    # so that no run of a day overwrites the batch unnoticed
    days = [
        (transaction_name(record.facts), publication_mark(table, record.facts))
        for record in records
    ]
    return CommitProperties(
        custom_metadata={
            "tidegate.batch": str(batch.number),
            "tidegate.runs": json.dumps(
                {record.facts.day: record.facts.run_id for record in records}
            ),
            "tidegate.rows": str(sum(record.figures.rows_out for record in records)),
            "tidegate.declaration": records[0].facts.declared.fingerprint,
        },
        app_transactions=[
            Transaction(batch.query, batch.number),
            *(Transaction(name, mark + 1) for name, mark in days),
        ],
        max_commit_retries=0,  # so that the version is known
    )
