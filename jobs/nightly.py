"""A day from its declaration to its readers: enrich and check with Spark, then publish, or hold back and say why.

What Dagster and the commands share. Checks and their reports are not of this package: they come as hooks.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs import records
from jobs.enrich_day import STOPPED, WRONG
from jobs.errors import PublishConflict
from jobs.schema import DayRecord
from jobs.spark_program import SparkSubmit, ended

if TYPE_CHECKING:
    from jobs.declarations import Enrichment

PUBLISHED, HELD_BACK, STOPPED_BY_SERVICE, FAILED = "published", "held back", "stopped: service", "failed"


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
    state: str  # published, held back, stopped: service, failed
    reason: str  # one sentence; empty for a published day
    record: DayRecord | None = None
    wrong: bool = False  # the declaration or its input is: the same again cannot go well

    @property
    def is_published(self) -> bool:
        return self.state == PUBLISHED


def publish_or_hold_back(record: DayRecord, keep: Callable[[DayRecord], object]) -> DayRecord:
    """Keep the verdicts, then publish the day in one commit unless one of them holds it back. Returns the record."""
    from jobs.tables import publishing  # loads Delta, which those who only name a day need not wait for

    keep(record)
    blocking = [verdict for verdict in record.verdicts if verdict.holds_back]
    try:
        if blocking:
            return records.hold_back(record, " ".join(verdict.sentence for verdict in blocking[:3]))
        return publishing.publish(record)
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
) -> DayOutcome:
    """One day under the rules of the nightly job, without Dagster: checked, published or held back, summaries made.

    Killed at any moment, readers keep what they had; the same again takes what was answered from the ledger.
    """
    run_id = uuid.uuid4().hex
    log = records.spark_log(enrichment.name, day, run_id)
    code = submit.run(reference, day=day, run_id=run_id, log=log, options=("--checks", quality.checks, *options))
    written = next((one for one in records.load(enrichment.name, day) if one.facts.run_id == run_id), None)
    how = ended(code, written, "", log)
    if how.record is None:
        state = STOPPED_BY_SERVICE if code == STOPPED else FAILED
        return DayOutcome(day, run_id, state, how.reason, wrong=code == WRONG)
    record = publish_or_hold_back(how.record, quality.keep)
    if record.state == "published":
        _summarize(enrichment, day)
    quality.render(enrichment.name)
    return DayOutcome(day, run_id, record.state, record.reason, record)


def _summarize(enrichment: Enrichment, day: str) -> None:
    from jobs.tables.summaries import summarize

    for summary in enrichment.summaries:
        summarize(enrichment, summary, day)
