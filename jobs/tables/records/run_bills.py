"""Keeps what services bill each run, until its record has it: a killed run has only its bill.

A bill is a JSON file beside the run's record. It names the folder in which the run's tasks count
(billing_meter.py).
"""

import datetime as dt
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from jobs.clients.billing_meter import Meters, metered, unwritable
from jobs.clients.request_counter import DAY
from jobs.declare.budgets import parts_of
from jobs.declare.lookup import Lookup, service_identity
from jobs.declare.values.prices import SENT, in_force, price_units
from jobs.schema.records import Billed, DayFacts, DayMetrics, DayRecord, LookupFacts, RunBill
from jobs.storage import durable
from jobs.storage.urls import is_url
from jobs.storage.work_folders import work_folder
from jobs.tables.records import run_records

FOLDER = "_bills"  # readers of tables ignore names that begin with _


def begin(facts: DayFacts, lookups: Sequence[Lookup]) -> Meters | None:
    """Starts a bill, if a lookup has a price and tasks share a disk with the driver.

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
    folder = str(Path(work_folder(facts.declared.table), FOLDER, facts.run_id).resolve())
    bill = RunBill(
        facts.declared.enrichment, facts.day, facts.run_id, facts.started_at, tuple(services),
        folder, tuple(services.values()),
    )  # fmt: skip
    path = run_records.bill_file(bill.enrichment, bill.day, bill.run_id)
    try:
        durable.write(path, bill.to_json().encode())
    except OSError as error:
        raise unwritable(str(path), error) from error
    units = {lookup.name: lookup.prices[0].unit for lookup in services}
    return Meters(folder, units, bill.run_id, bill.started_at)


def end(bill: RunBill | None) -> None:
    """Removes the bill of a run whose record is saved; first the file that names its folder."""
    if bill is not None:
        run_records.bill_file(bill.enrichment, bill.day, bill.run_id).unlink(missing_ok=True)
        shutil.rmtree(bill.folder, ignore_errors=True)


def spent(bill: RunBill, service: str) -> int | None:
    """Returns what a run spent at a service, in billionths, at the price of the day it began.

    Returns None if only answers show what a call cost: a call in flight at a kill may have cost
    more than is counted.

    Args:
        bill: Of a run whose calls have ended.
        service: As its limits over runs are named.
    """
    if not bill.services:  # of an earlier version
        return None
    units, amount = metered(Path(bill.folder)), 0
    for lookup, of in zip(bill.lookups, bill.services, strict=True):
        price = in_force(lookup.prices, bill.started_at[:10])
        if of == service and lookup.prices[0].unit not in SENT:
            return None
        if of == service and price is not None:
            amount += math.ceil(
                parts_of(price.amount, price.per) * units.get(lookup.name, Counter()).total()
            )
    return amount


def charges(bill: RunBill) -> Mapping[str, Billed]:
    """Returns by lookup what the run was billed so far, for lookups with a charge."""
    units = metered(Path(bill.folder))
    return {
        lookup.name: billed(lookup, units[lookup.name])
        for lookup in bill.lookups
        if lookup.name in units
    }


def with_bill(
    figures: DayMetrics, meters: Meters | None, declared: tuple[LookupFacts, ...]
) -> DayMetrics:
    """Returns the figures with all that the run was billed, also by task attempts that died.

    No file has the requests of such attempts.
    """
    if meters is None:
        return figures
    units = metered(Path(meters.folder))
    lookups = []
    for lookup, found in zip(declared, figures.lookups, strict=True):
        known, whole = (
            found.billed,
            billed(lookup, units.get(lookup.name, Counter())) if lookup.prices else None,
        )
        if known is not None and whole is not None:
            lost = known.lost + max(0, whole.units - known.units)
            known = replace(whole, lost=lost, saved=known.saved)
        lookups.append(replace(found, billed=known))
    return replace(figures, lookups=tuple(lookups))


def with_saved(
    figures: DayMetrics, declared: Sequence[LookupFacts], earlier: Callable[[], Iterable[DayRecord]]
) -> DayMetrics:
    """Returns the figures with what stored answers saved, if only an answer shows what it costs.

    Each key then counts the mean cost of an answer in this run, or in the last run that paid for
    any.

    Args:
        figures: The figures of the run.
        declared: Its lookups.
        earlier: Returns the records of the enrichment, the latest first.
    """
    lookups = list(figures.lookups)
    for place, (lookup, found) in enumerate(zip(declared, figures.lookups, strict=True)):
        if (
            found.billed is not None
            and found.keys_from_ledger
            and lookup.prices[0].unit not in SENT
        ):
            before = (
                one
                for record in earlier()
                for one in record.figures.lookups
                if one.name == lookup.name
            )
            paid = next(
                (
                    one
                    for one in (found, *before)
                    if one.billed and one.billed.units and one.answered
                ),
                None,
            )
            if paid is not None and paid.billed is not None:
                saved = Decimal(paid.billed.cost) * found.keys_from_ledger / paid.answered
                lookups[place] = replace(
                    found, billed=replace(found.billed, saved=f"{round(saved, 9).normalize():f}")
                )
    return replace(figures, lookups=tuple(lookups))


def billed(lookup: LookupFacts, days: Counter[int]) -> Billed:
    """Returns the bill for these units of each day, counted from the epoch in UTC."""
    first = lookup.prices[0]
    costs = (price_units(in_force(lookup.prices, _date(day)), units) for day, units in days.items())
    cost = sum(costs, price_units(first, 0))  # with the price's decimals
    return Billed(days.total(), 0, first.unit, f"{cost:f}", first.currency)


def _date(day: int) -> str:
    return dt.datetime.fromtimestamp(day * DAY, dt.UTC).date().isoformat()
