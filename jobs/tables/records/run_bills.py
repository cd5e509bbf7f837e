"""Keeps what services bill each run, until its record has it: a killed run has only its bill.

A bill is a JSON file beside the run's record. It names the folder in which the run's tasks count
(billing_meter.py): beside it, or in the table's folder.
"""

import datetime as dt
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from jobs.clients.billing_meter import Meters, Usage, metered, unwritable
from jobs.clients.request_counter import DAY, UNKNOWN_USE
from jobs.declare.limits.budgets import most_parts, parts_of
from jobs.declare.lookup import Lookup, service_identity
from jobs.declare.values.prices import SENT, cost_of, in_force, priced_units, reported_units
from jobs.schema.records import (
    Billed,
    BilledUnit,
    DayFacts,
    DayMetrics,
    DayRecord,
    LookupFacts,
    RunBill,
    sum_bills,
)
from jobs.storage import durable
from jobs.storage.urls import is_url
from jobs.storage.work_folders import work_folder
from jobs.tables.records import run_records
from jobs.wording import counted, priced

NOTHING: Mapping[str, int] = MappingProxyType({})
FOLDER = "_bills"  # readers of tables ignore names that begin with _
METERS = ".meters"  # suffix of a folder beside the bill


def begin(facts: DayFacts, lookups: Sequence[Lookup], *, elsewhere: bool = False) -> Meters | None:
    """Start a bill, if a lookup has a price and tasks share a disk with the driver.

    Args:
        facts: Of the run.
        lookups: As declared.
        elsewhere: Whether tasks run on other machines: they share the folder of the table with the
            driver, and not that of the records.

    Returns:
        Where the run's tasks count.

    Raises:
        TidegateError: The bill cannot be written.
    """
    both = zip(facts.declared.lookups, lookups, strict=True)
    services = {declared: service_identity(lookup) for declared, lookup in both if declared.prices}
    # the driver cannot read the disks of tasks on other machines
    if not services or is_url(facts.folder):
        return None
    path = run_records.bill_file(facts.declared.enrichment, facts.day, facts.run_id)
    # people remove work folders and tables, and keep records
    place = (
        Path(work_folder(facts.declared.table), FOLDER, facts.run_id)
        if elsewhere
        else path.with_name(facts.run_id + METERS)
    )
    folder = str(place.resolve())
    bill = RunBill(
        facts.declared.enrichment, facts.day, facts.run_id, facts.started_at, tuple(services),
        folder, tuple(services.values()), facts.declared.ledger,
    )  # fmt: skip
    try:
        durable.make_folder(Path(folder))
        durable.write(path, bill.to_json().encode())
    except OSError as error:
        raise unwritable(error.filename or str(path), error) from error
    units = {
        declared.name: (*priced_units(declared.prices), *((UNKNOWN_USE,) if lookup.bill else ()))
        for declared, lookup in zip(facts.declared.lookups, lookups, strict=True)
        if declared.prices
    }
    return Meters(folder, units, bill.run_id, bill.started_at)


def end(bill: RunBill | None) -> None:
    """Remove the bill of a run whose record is saved; first the file that names its folder."""
    if bill is not None:
        run_records.bill_file(bill.enrichment, bill.day, bill.run_id).unlink(missing_ok=True)
        shutil.rmtree(bill.folder, ignore_errors=True)


def spent(bill: RunBill, service: str) -> int | None:
    """Return what a run spent at a service, in billionths, at the price of the day it began.

    A request whose use is unknown, such as those in flight at a kill, counts as `at_most`. Returns
    None where that is not declared, where a coroutine reports what its calls used, and where the
    counts are gone with the table's folder, are another user's, or cannot be read.

    Args:
        bill: Of a run whose calls have ended.
        service: As its limits over runs are named.
    """
    if not os.access(bill.folder, os.R_OK | os.X_OK):
        return None
    try:
        usage, amount = metered(Path(bill.folder)), 0
    except (OSError, ValueError):
        return None
    for lookup, called in zip(bill.lookups, bill.services, strict=True):
        if called != service:
            continue
        prices, used = in_force(lookup.prices, bill.started_at[:10]), usage.get(lookup.name)
        units = _sums(used or Counter())
        reported = [price for price in prices if price.unit not in SENT]
        if reported and lookup.kind == "coroutine":
            return None
        most = most_parts(reported, 1)
        if reported and units[UNKNOWN_USE] and not most:
            return None
        each = sum((parts_of(price) * units[price.unit] for price in prices), Fraction(0))
        amount += math.ceil(each) + most * units[UNKNOWN_USE]
    return amount


def _sums(usage: Usage) -> Counter[str]:
    """Return the number of each unit over all days."""
    found: Counter[str] = Counter()
    for (unit, _), many in usage.items():
        found[unit] += many
    return found


def charges(bill: RunBill) -> Mapping[str, Billed]:
    """Return by lookup what the run was billed so far, for lookups with a charge."""
    usage = metered(Path(bill.folder))
    return {
        lookup.name: billed(lookup, usage[lookup.name])
        for lookup in bill.lookups
        if lookup.name in usage
    }


def charges_so_far(bill: RunBill | None) -> Mapping[str, Billed]:
    """Return what `charges` does, to be shown; nothing without a bill, or if it is unreadable."""
    try:
        return charges(bill) if bill else {}
    except (OSError, ValueError):
        return {}


def count_calls(charges: Iterable[Billed]) -> int | None:
    """Return the calls in these charges: a lookup's items, or without a price per item its
    requests; None if neither has a price.
    """
    sent = [{part.unit: part.units for part in charge.parts} for charge in charges]
    calls = [units.get("item", units.get("request")) for units in sent]
    known = [count for count in calls if count is not None]
    return sum(known) if known else None


def cost_so_far(run_id: str, enrichment: str, day: str) -> str:
    """Return what a run at work was billed so far, as `1.20 USD`; empty without prices."""
    billed = charges_so_far(run_records.bill_of(run_id, enrichment, day)).values()
    return priced(sum_bills(billed))


def with_bill(
    figures: DayMetrics, meters: Meters | None, declared: tuple[LookupFacts, ...]
) -> DayMetrics:
    """Return the figures with all that the run was billed, also by task attempts that died.

    No file has the requests of such attempts.
    """
    if meters is None:
        return figures
    usage = metered(Path(meters.folder))
    lookups = []
    for lookup, found in zip(declared, figures.lookups, strict=True):
        known = found.billed
        if known is not None and lookup.prices:
            used = usage.get(lookup.name, Counter())
            units, before = _sums(used), {part.unit: part for part in known.parts}
            lost = {
                unit: part.lost + max(0, units[unit] - part.units) for unit, part in before.items()
            }
            known = replace(billed(lookup, used, lost), saved=known.saved)
        lookups.append(replace(found, billed=known))
    return replace(figures, lookups=tuple(lookups))


def with_saved(
    figures: DayMetrics, declared: Sequence[LookupFacts], earlier: Callable[[], Iterable[DayRecord]]
) -> DayMetrics:
    """Return the figures with what stored answers saved, if only an answer shows what it costs.

    Each key then counts the mean cost of an answer in this run, or in the last run that paid for
    any.
    """
    lookups = list(figures.lookups)
    for place, (lookup, found) in enumerate(zip(declared, figures.lookups, strict=True)):
        if found.billed is not None and found.keys_from_ledger and reported_units(lookup.prices):
            before = (
                figures
                for record in sorted(earlier(), key=lambda record: record.order, reverse=True)
                for figures in record.figures.lookups
                if figures.name == lookup.name
            )
            paid = next(
                (
                    candidate
                    for candidate in (found, *before)
                    if candidate.billed and candidate.billed.units and candidate.answered
                ),
                None,
            )
            if paid is not None and paid.billed is not None:
                saved = Decimal(paid.billed.cost) * found.keys_from_ledger / paid.answered
                lookups[place] = replace(
                    found, billed=replace(found.billed, saved=f"{round(saved, 9).normalize():f}")
                )
    return replace(figures, lookups=tuple(lookups))


def unknown_uses(figures: DayMetrics) -> tuple[str, ...]:
    """Return a sentence for each lookup whose calls did not all report what they used."""
    never = tuple(
        f"lookup {lookup.name}: no call reported {' or '.join(units)} (bill), so their cost is not "
        "in the bill"
        for lookup in figures.lookups
        if lookup.billed is not None
        and lookup.answered > lookup.outcomes.get("miss", 0)  # it may be free
        if (units := [part.unit for part in lookup.billed.parts if part.unit not in SENT])
        if not any(part.units for part in lookup.billed.parts if part.unit in units)
    )
    return never + tuple(
        f"lookup {lookup.name}: {lookup.requests.unknown_use:,} of "
        f"{counted(lookup.requests.sent, 'request')} did not report what they used (bill); their "
        "cost is not in the bill"
        for lookup in figures.lookups
        if lookup.requests is not None and lookup.requests.unknown_use
    )


def billed(lookup: LookupFacts, usage: Usage, lost: Mapping[str, int] = NOTHING) -> Billed:
    """Return the bill for these units of each day, counted from the epoch in UTC.

    Args:
        lookup: A lookup with prices.
        usage: What was counted.
        lost: By unit, the number without an answer.
    """
    parts = [_billed_unit(lookup, unit, usage, lost) for unit in priced_units(lookup.prices)]
    cost = sum((Decimal(part.cost) for part in parts[1:]), Decimal(parts[0].cost))
    return Billed(
        parts[0].units, parts[0].lost, parts[0].unit, f"{cost:f}", lookup.prices[0].currency,
        by_unit=tuple(parts) if len(parts) > 1 else (),
    )  # fmt: skip


def _billed_unit(
    lookup: LookupFacts, unit: str, usage: Usage, lost: Mapping[str, int]
) -> BilledUnit:
    prices = [price for price in lookup.prices if price.unit == unit]
    days = {day: many for (name, day), many in usage.items() if name == unit}
    costs = (cost_of(in_force(prices, _date(day)), {unit: many}) for day, many in days.items())
    cost = sum(costs, cost_of(prices[:1], {}))  # with the price's decimals
    return BilledUnit(unit, sum(days.values()), lost.get(unit, 0), f"{cost:f}")


def _date(day: int) -> str:
    return dt.datetime.fromtimestamp(day * DAY, dt.UTC).date().isoformat()
