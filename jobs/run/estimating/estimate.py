"""Estimates the calls of days, with reasons, without a call or a write."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.declare.chains import places_read
from jobs.declare.values.calendar import name_unit
from jobs.errors import DeclarationError, NoInput
from jobs.ledger.index import write_index
from jobs.run.changes.changed_rows import find_changes
from jobs.run.estimating.figures import Estimate, LookupEstimate
from jobs.run.estimating.key_counts import count_keys
from jobs.run.estimating.last_run import last_runs
from jobs.run.estimating.lookup_estimate import estimate_lookup
from jobs.run.estimating.planned_keys import PlannedKeys
from jobs.run.estimating.rungs import forecast_rungs
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.run.plan.preflight import find_day, steps_of_day
from jobs.storage.locked_folders import temporary_folder
from jobs.tables.records import run_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay
    from jobs.ledger.plan import LedgerPlan


def estimate(
    spark: Callable[[], SparkSession],
    enrichment: Enrichment,
    days: Sequence[str],
    clock: Callable[[], int] = time.time_ns,
) -> Estimate:
    """Count the calls of these days without making any.

    Days without input are left out and named; it is an error if no day has input.

    Args:
        spark: See PlannedKeys.
        enrichment: The enrichment.
        days: The days.
        clock: Returns the time in ns since the epoch.

    Raises:
        DeclarationError: No day has input, or the declaration does not fit the input.
        LedgerError: The ledger cannot be read.
    """
    found = _find_days(enrichment, days)
    changes: Counter[str] = Counter()
    for day, input_day in found.items() if enrichment.input.only_changed else ():
        changed = find_changes(enrichment, input_day, day)
        found[day] = changed.input_day
        changes.update(changed.changes.counts)
    inputs = tuple(found.values())
    plans = [plan_ledger(enrichment, lookup, "plan", RunOptions()) for lookup in enrichment.lookups]
    return Estimate(
        enrichment=enrichment.name,
        days=tuple(found),
        without_input=tuple(day for day in days if day not in found),
        lookups=tuple(_lookups(PlannedKeys(enrichment, inputs, spark), plans, clock)),
        published=_count_published(enrichment, found),
        rows=sum(input_day.rows for input_day in inputs),
        ledger=None if enrichment.ledger is None else enrichment.ledger.path,
        changes=tuple(changes.items()),
        waterfalls=forecast_rungs(enrichment, inputs, plans, clock() // 1000),
    )


def _find_days(enrichment: Enrichment, days: Sequence[str]) -> dict[str, InputDay]:
    """Return the days that have input, which fits the declaration."""
    found = {}
    for day in days:
        try:
            found[day] = find_day(enrichment, day)
        except NoInput:
            if len(days) == 1:
                raise
    if not found:
        raise DeclarationError(
            f"{enrichment.name}: input: none of the {len(days)} {name_unit(days)}s has any; "
            "nothing to plan."
        )
    for day, input_day in found.items():
        for step in steps_of_day(enrichment, input_day, day):
            step()
    return found


def _lookups(
    planned: PlannedKeys, plans: Sequence[LedgerPlan | None], clock: Callable[[], int]
) -> Iterator[LookupEstimate]:
    """Yield the estimate of each lookup. Later keys may be made of earlier lookups' answers."""
    lookups = planned.enrichment.lookups
    runs, read = last_runs(planned.enrichment.name), places_read(lookups)
    with temporary_folder() as folder:
        for number, (lookup, plan) in enumerate(zip(lookups, plans, strict=True)):
            wanted = planned.of(number, has_ledger=plan is not None)
            now_us = clock() // 1000
            counts = count_keys(lookup, wanted, plan, now_us)
            if plan is not None and number in read and counts.answers.num_rows:
                index = str(folder / f"answers-{number}.arrow")
                write_index(index, counts.answers)
                planned.answered[number] = replace(plan, index=index)
            yield estimate_lookup(
                lookup, wanted, counts, plan, runs.get(lookup.name),
                unknown=planned.unknown.get(number, 0), now_us=now_us,
            )  # fmt: skip


def _count_published(enrichment: Enrichment, days: dict[str, InputDay]) -> int:
    """Count the days that are published with the current declaration."""
    return sum(
        record.state == "published" and record.facts.declared.fingerprint == enrichment.fingerprint
        for record in run_records.latest(enrichment.name)
        if record.facts.day in days
    )
