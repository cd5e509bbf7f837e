"""Finds killed runs, which report no end and leave their files behind."""

import datetime as dt
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from jobs.errors import TidegateError
from jobs.schema.records import DayRecord, UnwrittenRun, sum_bills
from jobs.tables.leases.day_leases import Lease, at_work
from jobs.tables.records import run_bills, run_records
from jobs.tables.records.publications import publications

STATE = "killed"
RUNNING, AT_WORK = "running", "the run is at work"
REASON = "the run ended without a report, as after a kill"


def killed_runs(
    enrichment: str,
    table: str,
    *,
    records: Sequence[DayRecord] = (),
    unwritten: Sequence[UnwrittenRun] = (),
) -> list[UnwrittenRun]:
    """Return the runs here that began, are not at work, and have no recorded end."""
    unended = unended_runs(enrichment, table, records=records, unwritten=unwritten)
    return [run for run in unended if run.state == STATE]


def unended_runs(
    enrichment: str,
    table: str,
    day: str | None = None,
    *,
    records: Sequence[DayRecord],
    unwritten: Sequence[UnwrittenRun],
) -> list[UnwrittenRun]:
    """Return the runs here without a recorded end: killed or at work.

    Args:
        enrichment: The enrichment's name.
        table: The path or URL of the published table.
        day: The day; None for all days.
        records: Records of runs with files that the caller has read.
        unwritten: Records of runs without files that the caller has read.
    """
    # first, so that a run that begins later is not in it
    began = _begun_batches(records) | _begun(enrichment, day, _ids_of_ended(records, unwritten))
    if not began:
        return []
    try:
        alive = at_work(table)
    except TidegateError:  # an unreadable lease does not prove that a run was killed
        return []
    known = _ended(enrichment, day)  # again: a run may have ended before the leases were read
    return [
        replace(run, state=RUNNING, reason=AT_WORK, next_step="") if run_id in alive else run
        for run_id, run in began.items()
        if run_id not in known
    ]


def _ended(enrichment: str, day: str | None) -> set[str]:
    return _ids_of_ended(run_records.load(enrichment, day), run_records.unwritten(enrichment, day))


def _ids_of_ended(records: Sequence[DayRecord], unwritten: Sequence[UnwrittenRun]) -> set[str]:
    ended = {record.facts.run_id for record in records if record.state != "written"}
    return ended | {run.run_id for run in unwritten}


def _begun(enrichment: str, only: str | None, ended: Collection[str]) -> dict[str, UnwrittenRun]:
    runs = {}
    for day, run_id, log in run_records.run_logs(enrichment, only or "*"):
        if run_id in ended:
            continue
        with suppress(OSError):  # removed meanwhile
            last = dt.datetime.fromtimestamp(log.stat().st_mtime, dt.UTC).isoformat(
                timespec="milliseconds"
            )
            again = f"Run the day again: `tidegate run {enrichment} --day {day}`."
            bill = run_records.bill_of(run_id, enrichment, day)
            began = last if bill is None else bill.started_at
            runs[run_id] = UnwrittenRun(enrichment, day, run_id, STATE, REASON, again, began, last)
    return runs


def _begun_batches(records: Sequence[DayRecord]) -> dict[str, UnwrittenRun]:
    """Return the runs without a log, as batches of a stream are, whose days are written only."""
    runs = {}
    for facts in (record.facts for record in records if record.state == "written"):
        name, day = facts.declared.enrichment, facts.day
        again = f"Start the stream again, or run the day: `tidegate run {name} --day {day}`."
        times = facts.started_at, facts.finished_at
        runs[facts.run_id] = UnwrittenRun(name, day, facts.run_id, STATE, REASON, again, *times)
    return runs


def as_published(records: Sequence[DayRecord], table: str) -> list[DayRecord]:
    """Return the records, with those as published that a kill left as written after the commit of
    their day. A stream completes those of its batches when it starts. Raises TidegateError.
    """
    if all(record.state != "written" for record in records):
        return [*records]
    # deltalake, which definitions load without
    from jobs.tables.delta.delta_log import table_at

    log = table_at(table)
    found = [] if log is None else publications(log)
    commits = {commit.run_id: commit for commit in found if not commit.of_batch}
    return [
        replace(
            record,
            state="published",
            published_version=commit.version,
            published_at=commit.at.isoformat(timespec="seconds"),
        )
        if record.state == "written" and (commit := commits.get(record.facts.run_id))
        else record
        for record in records
    ]


def with_costs(runs: Sequence[UnwrittenRun]) -> list[UnwrittenRun]:
    """Return the runs with their costs and calls, for those that left a bill."""
    return [_with_cost(run) for run in runs]


def _with_cost(run: UnwrittenRun) -> UnwrittenRun:
    bill = run_records.bill_of(run.run_id, run.enrichment, run.day)
    charges = run_bills.charges_so_far(bill).values()
    costs = sum_bills(charges).items()
    cost = ", ".join(f"{cost} {currency}" for currency, cost in costs)
    return replace(run, cost=cost, calls=run_bills.count_calls(charges))


def remove_files_of_killed(enrichment: str, table: str, lease: Lease) -> None:
    """Remove the files of the day's previous run, if it was killed before it had a record, because
    they may have personal values. Its processes have ended: the lease was free. Files that readers
    can see stay.
    """
    from jobs.tables import old_files  # deltalake, which definitions load without

    if (
        lease.file is not None
        and lease.before
        and run_records.of_run(enrichment, lease.day, lease.before) is None
    ):
        with suppress(TidegateError):  # `vacuum` removes them later
            old_files.remove_run(table, lease.before)
