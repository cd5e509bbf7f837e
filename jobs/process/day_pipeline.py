"""A day from its declaration to its readers: enrich and check with Spark, then publish, or hold back and say why.

What Dagster and the commands share. Checks and their reports are not of this package: they come as hooks.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jobs.errors import PublishConflict
from jobs.process.spark_submit import SparkSubmit, ended
from jobs.run.enrich_day import STOPPED
from jobs.schema import DayRecord, UnwrittenRun
from jobs.tables import run_records
from jobs.tables.leases import WAIT, Lease, leased

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment

PUBLISHED, FAILED = "published", "failed"
Watch = Callable[[dict[str, Any]], None]  # takes the last event of the Spark program
Accept = Callable[[DayRecord], str]  # why the day is not to be published; empty when it may be


@dataclass(frozen=True)
class Quality:
    """The checks, as hooks. checks: module:function, run by the Spark program. keep: stores a record's verdicts.

    render: draws the reports of an enrichment, by its name. ready: raises DeclarationError where what `keep` or
    `render` will do cannot be done; by the enrichment's name.
    """

    checks: str
    keep: Callable[[DayRecord], object]
    render: Callable[[str], object]
    ready: Callable[[str], object] = lambda _enrichment: None


@dataclass(frozen=True)
class DayOutcome:
    """What came of one run of one day. record is None when the day was not written."""

    day: str
    run_id: str
    state: str  # published, held back, failed, or stopped: and by what (errors.RunStopped)
    reason: str  # one sentence; empty for a published day
    record: DayRecord | None = None
    code: int = 0  # exit status of the Spark program
    warnings: tuple[str, ...] = ()  # sentences: what went wrong beside the day, and changes nothing of its state

    @property
    def is_published(self) -> bool:
        return self.state == PUBLISHED


def publish_or_hold_back(record: DayRecord, keep: Callable[[DayRecord], object], lease: Lease) -> DayRecord:
    """Keep the verdicts, then publish the day in one commit unless one of them holds it back, or its lease is lost.

    Verdicts that cannot be kept are a warning: those in hand decide. Returns the record, saved.
    """
    from jobs.tables import publishing  # loads Delta, which those who only name a day need not wait for

    record = kept(record, keep)
    blocking = [verdict for verdict in record.verdicts if verdict.holds_back]
    try:
        if blocking:
            return run_records.hold_back(
                record, "; also: ".join(f"{verdict.check}: {verdict.sentence}" for verdict in blocking[:3])
            )
        return publishing.publish(record, lease)
    except PublishConflict as conflict:
        return run_records.hold_back(record, str(conflict))


def kept(record: DayRecord, keep: Callable[[DayRecord], object]) -> DayRecord:
    """The record, once its verdicts are kept; with a warning where they cannot be: no day is lost for that."""
    warning = or_warning(lambda: keep(record), "its verdicts are not stored")
    return replace(record, warnings=(*record.warnings, warning)) if warning else record


def or_warning(work: Callable[[], object], what: str) -> str:
    """Do what no day depends on. Returns why it could not be done, in a sentence, as a warning; else empty."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  # a database's driver, a template: whatever it is, the day stands
        message = " ".join(str(error).split()) or type(error).__name__
        return f"{what}: {message.rstrip('.')}."
    return ""


def run_day(
    reference: str,
    enrichment: Enrichment,
    day: str,
    *,
    quality: Quality,
    submit: SparkSubmit,
    options: Sequence[str] = (),
    accept: Accept | None = None,
    wait: float = WAIT,
    watch: Watch | None = None,
) -> DayOutcome:
    """One day under the rules of the nightly job, without Dagster: checked, published or held back, summaries made.

    Killed at any moment, readers keep what they had; the same again takes what was answered from the ledger. Raises
    DayTaken, with nothing started, while another run of the day is at work, and DeclarationError where its verdicts or
    its report could not be stored. options: of the Spark program. accept: what
    a command demands of a written day beyond its checks. wait: s, for a run of the day that is ending. watch: gets
    the last event of the run every second, with the kinds starting and deciding besides those of the program.
    """
    quality.ready(enrichment.name)
    run_id = uuid.uuid4().hex
    began = _now()
    log = run_records.spark_log(enrichment.name, day, run_id)
    checks = ("--checks", quality.checks, *options)
    with leased(enrichment.output.path, day, run_id, wait=wait) as lease:
        run_records.progress_file(enrichment.name, day).unlink(missing_ok=True)  # that of an earlier run
        if watch is not None:
            submit = replace(submit, tell_every=1.0)
            watch({"kind": "starting", "day": day, "log": str(log)})
        code = submit.run(
            reference, days=[day], run_id=run_id, log=log, options=checks, leases=[lease],
            while_running=None if watch is None else lambda: watch({"day": day} | _last_event(enrichment.name, day)),
        )  # fmt: skip
        written = next((one for one in run_records.load(enrichment.name, day) if one.facts.run_id == run_id), None)
        how = ended(code, written, "", log)
        if how.record is None:
            state = _last_event(enrichment.name, day).get("state", FAILED) if code == STOPPED else FAILED
            again = f"Once that is mended, run the day again: `tidegate run {enrichment.name} --day {day}`."
            run = UnwrittenRun(enrichment.name, day, run_id, state, how.reason, again, began, _now())
            failures = (
                or_warning(lambda: run_records.save_unwritten(run), "how it ended is not kept"),
                or_warning(lambda: quality.render(enrichment.name), "its report is not written"),
            )
            return DayOutcome(day, run_id, state, how.reason, code=code, warnings=tuple(filter(None, failures)))
        if watch is not None:
            watch({"kind": "deciding", "day": day, "held_back": any(one.holds_back for one in how.record.verdicts)})
        refused = accept(how.record) if accept else ""
        if refused:
            record = run_records.hold_back(kept(how.record, quality.keep), refused)
        else:
            record = publish_or_hold_back(how.record, quality.keep, lease)
        if record.state == "published":
            _summarize(enrichment, day)
    warning = or_warning(lambda: quality.render(enrichment.name), "its report is not written")
    warnings = (*record.warnings, warning) if warning else record.warnings
    return DayOutcome(day, run_id, record.state, record.reason, record, warnings=warnings)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def _last_event(enrichment: str, day: str) -> dict[str, Any]:
    """What the Spark program said last; nothing before it has said anything."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(run_records.progress_file(enrichment, day).read_text()))
    return {}


def _summarize(enrichment: Enrichment, day: str) -> None:
    from jobs.tables.summaries import summarize

    for summary in enrichment.summaries:
        summarize(enrichment, summary, day)
