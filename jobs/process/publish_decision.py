"""Decides whether a checked day is published or held back; stores its verdicts and the report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from jobs.errors import PublishConflict
from jobs.schema.records import DayRecord, DeclaredFacts, UnwrittenRun
from jobs.tables.leases.day_leases import Lease
from jobs.tables.records import run_records
from jobs.tables.records.killed_runs import as_published, killed_runs, with_costs
from jobs.wording import one_line


class Quality(Protocol):
    """The checks, and the use of their verdicts."""

    @property
    def checks(self) -> str:
        """module:function, run by the Spark program."""

    def unready(self, declared: DeclaredFacts) -> str:
        """Return why a declared check is unknown, or why verdicts or the report could not be
        stored, in a sentence; or empty.
        """

    def keep(self, record: DayRecord) -> object:
        """Store the verdicts of a run. Raises an exception with a user-facing sentence."""

    def render(
        self, enrichment: str, records: Sequence[DayRecord], unwritten: Sequence[UnwrittenRun]
    ) -> object:
        """Render the report. records: the last of every day. unwritten: runs without files."""


def publish_or_hold_back(
    record: DayRecord, keep: Callable[[DayRecord], object], lease: Lease
) -> DayRecord:
    """Store the verdicts, then publish the day in a single commit, unless a verdict holds it
    back or its lease is lost.

    Verdicts that cannot be stored are a warning: those in memory decide. Returns the saved record.
    """
    # imports Delta, which callers that only name a day do not need
    from jobs.tables import publishing

    record = kept(record, keep)
    try:
        if reason := held_back_by(record):
            return run_records.hold_back(record, reason)
        return publishing.publish(record, lease)
    except PublishConflict as conflict:
        return run_records.hold_back(record, str(conflict))


def held_back_by(record: DayRecord) -> str:
    """Return the sentences of the first verdicts that hold the record back; empty without any."""
    return "; also: ".join(f"{verdict.check}: {verdict.sentence}" for verdict in record.red[:3])


def kept(record: DayRecord, keep: Callable[[DayRecord], object]) -> DayRecord:
    """Return the record after its verdicts are stored; with a warning if they cannot be, because
    that must not lose the day.
    """
    warning = or_warning(lambda: keep(record), "its verdicts are not stored")
    return replace(record, warnings=(*record.warnings, warning)) if warning else record


def render_report(quality: Quality, enrichment: str, table: str) -> None:
    """Render the report of an enrichment from all its records and the traces of killed runs.
    Raises any error that prevents writing it.
    """
    records = as_published(run_records.load(enrichment), table)
    unwritten = run_records.unwritten(enrichment)
    killed = killed_runs(enrichment, table, records=records, unwritten=unwritten)
    quality.render(enrichment, records, with_costs([*unwritten, *killed]))


def or_warning(work: Callable[[], object], failure: str) -> str:
    """Do work on which no day depends. Returns a warning sentence if it failed, or empty."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  # any error, of a database's driver or a template: the day stands
        message = one_line(str(error)) or type(error).__name__
        return f"{failure}: {message.rstrip('.')}."
    return ""
