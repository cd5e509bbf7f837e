"""Bills of runs without a day and a record, for `tidegate costs`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.declare.values.calendar import FRAME
from jobs.run.coordinator.run_leases import end_run
from jobs.schema.records import DayFacts
from jobs.tables.records import run_bills, run_records

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.task.plan import PartitionPlan


@contextmanager
def billed(
    enrichment: Enrichment,
    tasks: PartitionPlan,
    run_id: str,
    started_at: str,
    *,
    elsewhere: bool = False,
) -> Iterator[PartitionPlan]:
    """Yield the plan of some lookups with meters, and settle the run's budgets after the body.

    `started_at` is in ISO 8601, UTC.
    """
    if not tasks.may_call:
        yield tasks
        return
    declared = replace(
        enrichment.facts(), lookups=tuple(lookup.facts() for lookup in tasks.lookups)
    )
    facts = DayFacts(
        declared=declared, day=FRAME, run_id=run_id, input_files=(), input_columns=(),
        folder="", files=(), shares=tasks.shares, finished_at="",
        started_at=started_at,
    )  # fmt: skip
    try:
        meters = run_bills.begin(facts, tasks.lookups, elsewhere=elsewhere)
        yield replace(tasks, meters=meters)
    finally:
        if (bill := run_records.bill_of(run_id, enrichment.name, FRAME)) is not None:
            end_run(bill)
