"""Sums what services billed in a month, from records and bills of runs."""

import csv
import datetime as dt
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from jobs.declare.values.calendar import FRAME
from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import DeclarationError
from jobs.ledger.job_files import JobFiles
from jobs.ledger.store import LedgerFolder
from jobs.ledger.stored_request import versions
from jobs.run.keys.vendor_jobs.job_bills import bill_jobs
from jobs.run.keys.vendor_jobs.job_ends import most_cost
from jobs.run.settling import settle_killed_runs
from jobs.schema.records import Billed, DayRecord, LookupFacts, RunBill, sum_bills
from jobs.storage.urls import absolute
from jobs.streams.day_so_far import billed_together
from jobs.tables.records import run_bills, run_records

FOCUS = (
    "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd",
    "ChargeCategory", "ServiceName", "ResourceName", "ChargeDescription", "ConsumedQuantity",
    "ConsumedUnit", "BilledCost", "BillingCurrency",
)  # fmt: skip


@dataclass(frozen=True)
class Charge:
    """The cost of a lookup's calls in the runs that started on a day, in UTC."""

    day: dt.date
    service: str
    enrichment: str
    lookup: str
    billed: Billed


@dataclass(frozen=True)
class MonthlyCosts:
    """The costs of a month.

    Attributes:
        first: The first day.
        charges: The charges.
        unrecorded: Runs that started in the month, were charged and have no record, because they
            were stopped or killed, or are still running; their charges are those so far.
    """

    first: dt.date
    charges: tuple[Charge, ...]
    unrecorded: int

    @property
    def end(self) -> dt.date:
        return (self.first + dt.timedelta(days=31)).replace(day=1)

    def totals(self) -> dict[str, Decimal]:
        """Return the cost of the month by currency."""
        return sum_bills(charge.billed for charge in self.charges)

    def by_lookup(self) -> list[Charge]:
        """Return a charge for each lookup: the sum of its charges of the month."""
        return _sum(replace(charge, day=self.first) for charge in self.charges)

    def focus_csv(self) -> str:
        """Return the charges in the columns of FOCUS, the FinOps format of bills."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(FOCUS)
        lines = [(charge, part) for charge in self.charges for part in charge.billed.parts]
        for charge, part in lines:
            writer.writerow(
                (
                    _instant(self.first), _instant(self.end), _instant(charge.day),
                    _instant(charge.day + dt.timedelta(days=1)), "Usage", charge.service,
                    charge.enrichment, f"lookup {charge.lookup}", part.units, part.unit, part.cost,
                    charge.billed.currency,
                )
            )  # fmt: skip
        return text.getvalue()


def list_costs(month: str, enrichment: str | None = None) -> MonthlyCosts:
    """Return every charge of a month. Settles the budgets of killed runs.

    Args:
        month: As 2026-11. A run counts in the month, in UTC, in which it started.
        enrichment: Only this enrichment; None for all whose records are here.

    Raises:
        DeclarationError: `month` is not a month.
    """
    try:
        first = dt.date.fromisoformat(f"{month}-01")
    except ValueError as error:
        raise DeclarationError(
            f"--month is {month!r}; it must be a month, such as 2026-11."
        ) from error
    names = [enrichment] if enrichment else recorded_enrichments()
    lookups: dict[tuple[str, str, str], LookupFacts] = {}
    # bills first, because a run that ends meanwhile saves its record and then removes its bill
    bills = [bill for name in names for bill in run_records.bills(name)]
    for bill in bills:
        lookups |= _with_jobs(bill.enrichment, bill.ledger, bill.lookups)
    bills = [bill for bill in bills if bill.started_at.startswith(month)]
    so_far = {bill.run_id: [*_charges_of_bill(bill)] for bill in bills}
    frames = {bill.run_id for bill in bills if bill.day == FRAME}
    if so_far:
        settle_killed_runs()
    charges: list[Charge] = []
    for record in (record for name in names for record in run_records.load(name)):
        so_far.pop(record.facts.run_id, None)
        declared = record.facts.declared
        lookups |= _with_jobs(declared.enrichment, declared.ledger, declared.lookups)
        if record.facts.started_at.startswith(month):
            charges += _charges_of_record(record)
    charges += [charge for of_run in so_far.values() for charge in of_run]
    for (name, ledger, _), lookup in lookups.items():
        of_jobs = _charges_of_jobs(name, ledger, lookup)
        charges += [charge for charge in of_jobs if f"{charge.day:%Y-%m}" == month]
    unrecorded = {run_id for run_id, of_run in so_far.items() if of_run} - frames
    return MonthlyCosts(first, tuple(_sum(charges)), len(unrecorded))


def recorded_enrichments() -> list[str]:
    """Return the enrichments with records of runs here, also those not declared any more."""
    return sorted(path.name for path in run_records.ROOT.glob("*") if path.is_dir())


def _charges_of_record(record: DayRecord) -> Iterator[Charge]:
    declared, day = record.facts.declared, dt.date.fromisoformat(record.facts.started_at[:10])
    services = {lookup.name: lookup.service for lookup in declared.lookups}
    by_jobs = {lookup.name for lookup in declared.lookups if lookup.kind == JobLookup.kind}
    for lookup in record.figures.lookups:
        billed = lookup.billed
        if billed is not None and lookup.name in by_jobs:  # the ledger has the bills of jobs
            billed = _only_saved(billed)
        if billed is not None:
            yield Charge(day, services[lookup.name], declared.enrichment, lookup.name, billed)


def _only_saved(billed: Billed) -> Billed | None:
    if not Decimal(billed.saved):
        return None
    parts = tuple(replace(part, units=0, lost=0, cost="0") for part in billed.by_unit)
    return replace(billed, units=0, lost=0, cost="0", by_unit=parts)


def _charges_of_bill(bill: RunBill) -> Iterator[Charge]:
    day = dt.date.fromisoformat(bill.started_at[:10])
    services = {lookup.name: lookup.service for lookup in bill.lookups}
    for lookup, billed in run_bills.charges(bill).items():
        yield Charge(day, services[lookup], bill.enrichment, lookup, billed)


def _with_jobs(
    enrichment: str, ledger: str | None, lookups: Iterable[LookupFacts]
) -> dict[tuple[str, str, str], LookupFacts]:
    """Return the lookups whose bills are in a ledger by enrichment, ledger and name: each once,
    whatever its prices were, and however the path of its ledger was written.
    """
    if ledger is None:
        return {}
    place = absolute(ledger)
    return {
        (enrichment, place, lookup.name): lookup
        for lookup in lookups
        if lookup.kind == JobLookup.kind
    }


def _charges_of_jobs(enrichment: str, ledger: str, lookup: LookupFacts) -> Iterator[Charge]:
    """Yield the charge of each job of any request of a lookup; an open job counts as billed."""
    for folder in versions(LedgerFolder(ledger, lookup.name, "")):
        files = JobFiles(folder)
        for job in files.jobs():
            intent = None if job.done else files.intent(job.token)
            facts = (
                job.done
                if intent is None
                else {**intent.facts(), **most_cost(lookup.prices, intent)}
            )
            billed = bill_jobs([facts])
            if billed is not None and facts["enrichment"] == enrichment:
                day = dt.datetime.fromtimestamp(facts["at"], dt.UTC).date()
                yield Charge(day, lookup.service, enrichment, lookup.name, billed)


def _sum(charges: Iterable[Charge]) -> list[Charge]:
    """Sum charges per day, service, enrichment, lookup, units and currency; sort by these."""
    found: dict[tuple[Any, ...], Charge] = {}
    for charge in charges:
        key = (
            charge.day,
            charge.service,
            charge.enrichment,
            charge.lookup,
            tuple(part.unit for part in charge.billed.parts),
            charge.billed.currency,
        )
        before = found.get(key)
        found[key] = (
            charge
            if before is None
            else replace(charge, billed=billed_together(before.billed, charge.billed))
        )
    return [found[key] for key in sorted(found)]


def _instant(day: dt.date) -> str:
    return f"{day.isoformat()}T00:00:00Z"
