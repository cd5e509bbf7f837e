"""Whether a checked day is published or held back; and what is stored beside the table: verdicts, the report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from jobs.errors import PublishConflict
from jobs.schema import DayRecord, UnwrittenRun
from jobs.tables.leases.day_leases import Lease
from jobs.tables.records import run_records
from jobs.tables.records.killed_runs import killed_runs, with_costs
from jobs.wording import one_line


class Quality(Protocol):
    """The checks, and what is made of their verdicts."""

    @property
    def checks(self) -> str:
        """module:function, run by the Spark program."""

    @property
    def batch_checks(self) -> str:
        """The same for a micro-batch of a stream."""

    def unready(self, enrichment: str) -> str:
        """Why verdicts or the report could not be stored, in a sentence; empty when they can."""

    def keep(self, record: DayRecord) -> object:
        """Store the verdicts of a run. Raises an exception with a sentence for people when it cannot."""

    def render(self, enrichment: str, records: Sequence[DayRecord], unwritten: Sequence[UnwrittenRun]) -> object:
        """Draw the report. records: the last of every day. unwritten: runs that ended without files."""


def publish_or_hold_back(record: DayRecord, keep: Callable[[DayRecord], object], lease: Lease) -> DayRecord:
    """Keep the verdicts, then publish the day in one commit unless one of them holds it back, or its lease is lost.

    Verdicts that cannot be kept are a warning: those in hand decide. Returns the record, saved.
    """
    from jobs.tables import publishing  # loads Delta, which those who only name a day need not wait for

    record = kept(record, keep)
    try:
        if reason := held_back_by(record):
            return run_records.hold_back(record, reason)
        return publishing.publish(record, lease)
    except PublishConflict as conflict:
        return run_records.hold_back(record, str(conflict))


def held_back_by(record: DayRecord) -> str:
    """What the first verdicts that hold the record back say; empty where none does."""
    blocking = [verdict for verdict in record.verdicts if verdict.holds_back]
    return "; also: ".join(f"{verdict.check}: {verdict.sentence}" for verdict in blocking[:3])


def kept(record: DayRecord, keep: Callable[[DayRecord], object]) -> DayRecord:
    """The record, once its verdicts are kept; with a warning where they cannot be: no day is lost for that."""
    warning = or_warning(lambda: keep(record), "its verdicts are not stored")
    return replace(record, warnings=(*record.warnings, warning)) if warning else record


def render_report(quality: Quality, enrichment: str, table: str) -> None:
    """Draw the report of an enrichment from all records there are, and the traces of killed runs. Raises whatever keeps
    it from being written.
    """
    ended = [*run_records.unwritten(enrichment), *killed_runs(enrichment, table)]
    quality.render(enrichment, run_records.load(enrichment), with_costs(ended))


def or_warning(work: Callable[[], object], what: str) -> str:
    """Do what no day depends on. Returns why it could not be done, in a sentence, as a warning; else empty."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  # a database's driver, a template: whatever it is, the day stands
        message = one_line(str(error)) or type(error).__name__
        return f"{what}: {message.rstrip('.')}."
    return ""
