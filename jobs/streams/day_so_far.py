"""Sums the figures of a day that came in several micro-batches."""

from collections.abc import Collection
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any, TypeVar

from jobs.schema.records import (
    Billed,
    BilledUnit,
    DayMetrics,
    DayRecord,
    LookupMetrics,
    RequestMetrics,
)

Costs = TypeVar("Costs", Billed, BilledUnit)


def can_sum_bills(before: DayMetrics, now: DayMetrics) -> bool:
    """Return whether each earlier bill has the units and the currency of its lookup's new bill.

    Prices and lookups may be declared anew between two batches.
    """
    bills = {lookup.name: lookup.billed for lookup in now.lookups}
    return all(
        lookup.billed is None
        or (lookup.name in bills and _priced_alike(lookup.billed, bills[lookup.name]))
        for lookup in before.lookups
    )


def _priced_alike(before: Billed, now: Billed | None) -> bool:
    return now is None or (
        [before.currency, *(part.unit for part in before.parts)]
        == [now.currency, *(part.unit for part in now.parts)]
    )


def run_plus_batch(run: DayRecord, now: DayMetrics) -> DayMetrics:
    """Return the figures of a day after its run, kept rows included, plus the figures of a batch.

    The calls of the run and their bill stay in the run's record.
    """
    uncalled = tuple(
        LookupMetrics(
            lookup.name, lookup.outcomes, 0, 0, 0.0, 0.0, None, None,
            from_ledger=lookup.from_ledger, shared=lookup.shared,
            oldest_answer_at=lookup.oldest_answer_at,
        )
        for lookup in run.figures.lookups
    )  # fmt: skip
    return add_batch(replace(run.figures, rows_out=run.rows_published, lookups=uncalled), now)


def add_batch(before: DayMetrics, now: DayMetrics) -> DayMetrics:
    """Return the sums of a day's batches so far and another one, which gives what has no sum, such
    as latencies. A lookup that is no longer declared keeps its figures.
    """
    known = {lookup.name: lookup for lookup in before.lookups}
    sums = {
        lookup.name: _add_lookup(known[lookup.name], lookup) if lookup.name in known else lookup
        for lookup in now.lookups
    }
    return replace(
        now,
        rows_in=before.rows_in + now.rows_in,
        rows_out=before.rows_out + now.rows_out,
        rows_late=before.rows_late + now.rows_late,
        lookups=tuple((sums | known | sums).values()),  # lookups of the batch come first
        job_s=round(before.job_s + now.job_s, 3),
    )


def _add_lookup(before: LookupMetrics, now: LookupMetrics) -> LookupMetrics:
    oldest = [at for at in (before.oldest_answer_at, now.oldest_answer_at) if at is not None]
    return replace(
        now,
        **_sums(before, now, leave=("latency_p50_ms", "latency_p99_ms")),
        outcomes={
            outcome: before.outcomes.get(outcome, 0) + rows
            for outcome, rows in now.outcomes.items()
        },
        oldest_answer_at=min(oldest, default=None),
        requests=_requests(before.requests, now.requests),
        billed=_billed(before.billed, now.billed),
    )


def _requests(before: RequestMetrics | None, now: RequestMetrics | None) -> RequestMetrics | None:
    return replace(now, **_sums(before, now)) if before and now else now or before


def _billed(before: Billed | None, now: Billed | None) -> Billed | None:
    return billed_together(before, now) if before and now else now or before


def billed_together(before: Billed, now: Billed) -> Billed:
    """Return the sum of two bills of the same units and currency."""
    saved = Decimal(before.saved) + Decimal(now.saved)
    parts = zip(before.by_unit, now.by_unit, strict=True)
    return replace(
        _costs(before, now), saved=f"{saved:f}", by_unit=tuple(_costs(*both) for both in parts)
    )


def _costs(before: Costs, now: Costs) -> Costs:
    cost = Decimal(before.cost) + Decimal(now.cost)
    return replace(now, **_sums(before, now), cost=f"{cost:f}")


def _sums(before: Any, now: Any, *, leave: Collection[str] = ()) -> dict[str, Any]:
    """Return the sums of all fields that are numbers on both sides."""
    numbers = {
        field.name: (getattr(before, field.name), getattr(now, field.name)) for field in fields(now)
    }
    return {
        name: one + other
        for name, (one, other) in numbers.items()
        if name not in leave and isinstance(one, int | float) and isinstance(other, int | float)
    }
