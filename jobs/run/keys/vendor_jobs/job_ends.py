"""What is noted of a job that ended: the facts of its end, and its bill."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.declare.values.prices import cost_of, in_force
from jobs.declare.vendor_jobs import JobLookup
from jobs.ledger.job_files import Intent, Job
from jobs.schema.records import PriceFacts
from jobs.wording import one_line


def let_go(state: str, lookup: JobLookup, job: Job, intent: Intent, now: float) -> dict[str, Any]:
    """Return the facts of a job whose results are unknown: all its items count as billed."""
    return describe(state, job, intent, now) | most_cost(lookup.prices, intent)


def describe(state: str, job: Job, intent: Intent, now: float) -> dict[str, Any]:
    """Return the facts of a job that ended, without a bill."""
    return {
        "state": one_line(state), "job": job.id, "items": intent.items, "ended_at": now,
        **intent.facts(),
    }  # fmt: skip


def most_cost(declared: Sequence[PriceFacts], intent: Intent) -> dict[str, Any]:
    """Return the most that a job may cost."""
    return cost(declared, intent, {"item": intent.items, "request": 1})


def cost(
    declared: Sequence[PriceFacts], intent: Intent, units: Mapping[str, int]
) -> dict[str, Any]:
    """Return what a job cost at the prices in force on the UTC day of its intent; without a price
    only `billed`, its number of items. units: at least "item" and "request"; a unit that is not
    there counts at its most.
    """
    prices = in_force(declared, f"{dt.datetime.fromtimestamp(intent.at, dt.UTC):%F}")
    if not prices:
        return {"billed": units["item"]}
    used = {
        price.unit: units.get(price.unit, (price.at_most or 0) * units["item"]) for price in prices
    }
    costs = {price.unit: f"{cost_of([price], used):f}" for price in prices}
    return {
        "billed": units["item"], "units": used, "costs": costs,
        "cost": f"{cost_of(prices, used):f}", "currency": prices[0].currency,
    }  # fmt: skip
