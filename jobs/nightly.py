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

from jobs import records
from jobs.enrich_day import STOPPED
from jobs.errors import PublishConflict
from jobs.schema import DayRecord, UnwrittenRun
from jobs.spark_program import SparkSubmit, ended
from jobs.tables.leases import WAIT, Lease, leased

if TYPE_CHECKING:
    from jobs.declarations import Enrichment

PUBLISHED, FAILED = "published", "failed"
Watch = Callable[[dict[str, Any]], None]  # takes the last event of the Spark program
Accept = Callable[[DayRecord], str]  # why the day is not to be published; empty when it may be


@dataclass(frozen=True)
class Quality:
    """The checks, as hooks. checks: module:function, run by the Spark program. keep: stores a record's verdicts.

    render: draws the reports of an enrichment, by its name.
    """

    checks: str
    keep: Callable[[DayRecord], object]
    render: Callable[[str], object]


@dataclass(frozen=True)
class DayOutcome:
    """What came of one run of one day. record is None when the day was not written."""

    day: str
    run_id: str
    state: str  # published, held back, failed, or stopped: and by what (errors.RunStopped)
    reason: str  # one sentence; empty for a published day
    record: DayRecord | None = None
    code: int = 0  # exit status of the Spark program

    @property
    def is_published(self) -> bool:
        return self.state == PUBLISHED


def publish_or_hold_back(record: DayRecord, keep: Callable[[DayRecord], object], lease: Lease) -> DayRecord:
    """Keep the verdicts, then publish the day in one commit unless one of them holds it back, or its lease is lost.

    Returns the record, saved.
    """
    from jobs.tables import publishing  # loads Delta, which those who only name a day need not wait for

    keep(record)
    blocking = [verdict for verdict in record.verdicts if verdict.holds_back]
    try:
        if blocking:
            return records.hold_back(
                record, "; also: ".join(f"{verdict.check}: {verdict.sentence}" for verdict in blocking[:3])
            )
        return publishing.publish(record, lease)
    except PublishConflict as conflict:
        return records.hold_back(record, str(conflict))


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
    DayTaken, with nothing started, while another run of the day is at work. options: of the Spark program. accept: what
    a command demands of a written day beyond its checks. wait: s, for a run of the day that is ending. watch: told
    of the progress every second.
    """
    run_id = uuid.uuid4().hex
    began = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    log = records.spark_log(enrichment.name, day, run_id)
    checks = ("--checks", quality.checks, *options)
    with leased(enrichment.output.path, day, run_id, wait=wait) as lease:
        if watch is not None:
            submit = replace(submit, tell_every=1.0)
        code = submit.run(
            reference, days=[day], run_id=run_id, log=log, options=checks, leases=[lease],
            while_running=None if watch is None else lambda: watch(_last_event(enrichment.name, day)),
        )  # fmt: skip
        written = next((one for one in records.load(enrichment.name, day) if one.facts.run_id == run_id), None)
        how = ended(code, written, "", log)
        if how.record is None:
            state = _last_event(enrichment.name, day).get("state", FAILED) if code == STOPPED else FAILED
            ended_at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
            again = f"Once that is mended, run the day again: `tidegate run {enrichment.name} --day {day}`."
            records.save_unwritten(
                UnwrittenRun(enrichment.name, day, run_id, state, how.reason, again, began, ended_at)
            )
            quality.render(enrichment.name)
            return DayOutcome(day, run_id, state, how.reason, code=code)
        refused = accept(how.record) if accept else ""
        if refused:
            quality.keep(how.record)
            record = records.hold_back(how.record, refused)
        else:
            record = publish_or_hold_back(how.record, quality.keep, lease)
        if record.state == "published":
            _summarize(enrichment, day)
    quality.render(enrichment.name)
    return DayOutcome(day, run_id, record.state, record.reason, record)


def _last_event(enrichment: str, day: str) -> dict[str, Any]:
    """What the Spark program said last; nothing before it has said anything."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(records.progress_file(enrichment, day).read_text()))
    return {}


def _summarize(enrichment: Enrichment, day: str) -> None:
    from jobs.tables.summaries import summarize

    for summary in enrichment.summaries:
        summarize(enrichment, summary, day)
