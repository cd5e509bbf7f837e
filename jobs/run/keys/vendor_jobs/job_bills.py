"""What the jobs of a lookup cost: for the record of a day, and for the costs of a month."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from jobs.ledger.job_files import NEVER_SENT
from jobs.schema.records import Billed, BilledUnit, DayMetrics, LookupMetrics

Facts = Mapping[str, Any]


def bill_jobs(jobs: Iterable[Facts]) -> Billed | None:
    """Return the bill of these jobs; None if none has a price.

    Args:
        jobs: The facts of their done.json, or the most that open jobs may cost.
    """
    priced = [job for job in jobs if "cost" in job]
    if not priced:
        return None
    units: dict[str, BilledUnit] = {}
    for job in priced:
        for unit, many in job["units"].items():
            before = units.get(unit, BilledUnit(unit, 0, 0, "0"))
            cost = Decimal(before.cost) + Decimal(job["costs"][unit])
            lost = max(0, many - job.get("answered", many)) if unit == "item" else 0
            units[unit] = BilledUnit(unit, before.units + many, before.lost + lost, f"{cost:f}")
    first, *others = units.values()
    total = sum((Decimal(job["cost"]) for job in priced), Decimal(0))
    return Billed(
        first.units, first.lost, first.unit, f"{total:f}", priced[0]["currency"],
        by_unit=(first, *others) if others else (),
    )  # fmt: skip


def with_job_bills(
    figures: DayMetrics, jobs: Mapping[str, Iterable[Facts]], settled_keys: Mapping[str, int]
) -> DayMetrics:
    """Return the figures with the day's jobs, and what they cost.

    Args:
        figures: Of the day, which have the rows of all jobs as answered by the ledger.
        jobs: Lookup -> the facts of its jobs.
        settled_keys: Lookup -> the number of keys that these jobs answered, or that they failed at.
    """

    def with_bill(figures: LookupMetrics) -> LookupMetrics:
        jobs_of_day = [*jobs.get(figures.name, ())]
        figures = replace(figures, jobs=sum(job["state"] != NEVER_SENT for job in jobs_of_day))
        found = bill_jobs(jobs_of_day)
        if found is None or figures.billed is None:
            return figures
        keys = figures.keys_from_ledger
        stored = max(0, keys - settled_keys[figures.name])
        saved = Decimal(figures.billed.saved) * stored / keys if keys else Decimal(0)
        return replace(
            figures,
            answered=sum(job.get("answered", 0) for job in jobs_of_day),
            keys_from_ledger=stored,
            billed=replace(found, saved=f"{saved.normalize():f}"),
        )

    return replace(figures, lookups=tuple(map(with_bill, figures.lookups)))
