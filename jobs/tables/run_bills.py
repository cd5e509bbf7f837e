"""What each run has services bill, kept until its record says it: a run that was stopped or killed has only its bill.

A bill is a JSON file beside the run's record. It names the folder in which the run's tasks count (billing_meter.py).
"""

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from jobs.clients.billing_meter import Meters, metered
from jobs.clients.request_counter import DAY
from jobs.declare.prices import SENT, cost_of, in_force
from jobs.schema import Billed, DayFacts, DayMetrics, DayRecord, LookupFacts, RunBill
from jobs.storage import durable
from jobs.storage.work_folders import work_folder
from jobs.tables import run_records

FOLDER = "_bills"  # readers of tables ignore names that begin with _


def begin(facts: DayFacts) -> Meters | None:
    """Keep a bill from now on, where a lookup has a price. Returns where the run's tasks count."""
    priced = tuple(lookup for lookup in facts.declared.lookups if lookup.prices)
    if not priced:
        return None
    folder = str(Path(work_folder(facts.declared.table), FOLDER, facts.run_id).resolve())
    bill = RunBill(facts.declared.enrichment, facts.day, facts.run_id, facts.started_at, priced, folder)
    path = run_records.bill_file(bill.enrichment, bill.day, bill.run_id)
    durable.write(path, bill.to_json().encode())
    return Meters(folder, {lookup.name: lookup.prices[0].unit for lookup in priced})


def end(facts: DayFacts) -> None:
    """Remove the bill of a run whose record is saved."""
    if any(lookup.prices for lookup in facts.declared.lookups):
        run_records.bill_file(facts.declared.enrichment, facts.day, facts.run_id).unlink(missing_ok=True)
        shutil.rmtree(Path(work_folder(facts.declared.table), FOLDER, facts.run_id), ignore_errors=True)


def charges(bill: RunBill) -> Mapping[str, Billed]:
    """By lookup what the run had billed so far; without those that billed nothing."""
    units = metered(Path(bill.folder))
    return {lookup.name: billed(lookup, units[lookup.name]) for lookup in bill.lookups if lookup.name in units}


def with_bill(figures: DayMetrics, meters: Meters | None, declared: tuple[LookupFacts, ...]) -> DayMetrics:
    """The figures with all that the run had billed, by task attempts that died too, whose requests no file has."""
    if meters is None:
        return figures
    units = metered(Path(meters.folder))
    lookups = []
    for lookup, found in zip(declared, figures.lookups, strict=True):
        known, whole = found.billed, billed(lookup, units.get(lookup.name, Counter())) if lookup.prices else None
        if known is not None and whole is not None:
            lost = known.lost + max(0, whole.units - known.units)
            known = replace(whole, lost=lost, saved=known.saved)
        lookups.append(replace(found, billed=known))
    return replace(figures, lookups=tuple(lookups))


def with_saved(
    figures: DayMetrics, declared: Sequence[LookupFacts], earlier: Callable[[], Iterable[DayRecord]]
) -> DayMetrics:
    """The figures with what stored answers saved where only an answer tells what it costs: the mean cost of an answer
    in this run, or in the last one that paid for any, for each key.

    earlier: gives the records of the enrichment, the latest first.
    """
    lookups = list(figures.lookups)
    for place, (lookup, found) in enumerate(zip(declared, figures.lookups, strict=True)):
        if found.billed is not None and found.keys_from_ledger and lookup.prices[0].unit not in SENT:
            before = (one for record in earlier() for one in record.figures.lookups if one.name == lookup.name)
            paid = next((one for one in (found, *before) if one.billed and one.billed.units and one.answered), None)
            if paid is not None and paid.billed is not None:
                saved = Decimal(paid.billed.cost) * found.keys_from_ledger / paid.answered
                lookups[place] = replace(found, billed=replace(found.billed, saved=f"{round(saved, 9).normalize():f}"))
    return replace(figures, lookups=tuple(lookups))


def billed(lookup: LookupFacts, days: Counter[int]) -> Billed:
    """The bill for these units of each day, counted from the epoch in UTC."""
    first = lookup.prices[0]
    costs = (cost_of(in_force(lookup.prices, _date(day)), units) for day, units in days.items())
    cost = sum(costs, cost_of(first, 0))  # which has the price's decimals
    return Billed(days.total(), 0, first.unit, f"{cost:f}", first.currency)


def _date(day: int) -> str:
    return dt.datetime.fromtimestamp(day * DAY, dt.UTC).date().isoformat()
