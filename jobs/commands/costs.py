"""What the services billed in a month, from the records of runs: by service, enrichment and lookup."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from jobs.errors import DeclarationError
from jobs.schema import Billed, DayRecord
from jobs.tables import run_records

FOCUS = (
    "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ServiceName",
    "ResourceName", "ChargeDescription", "ConsumedQuantity", "ConsumedUnit", "BilledCost", "BillingCurrency",
)  # fmt: skip


@dataclass(frozen=True)
class Charge:
    """What one lookup's calls cost in the runs that started on one day.

    Attributes:
        day: In UTC.
        service: As declared.
        enrichment: Its name.
        lookup: Its name.
        billed: The sum of its runs.
    """

    day: dt.date
    service: str
    enrichment: str
    lookup: str
    billed: Billed


@dataclass(frozen=True)
class MonthlyCosts:
    """One month. unrecorded: runs that started in it and ended without a record of what they cost."""

    first: dt.date
    charges: tuple[Charge, ...]
    unrecorded: int

    @property
    def end(self) -> dt.date:
        """The first day after it."""
        return (self.first + dt.timedelta(days=31)).replace(day=1)

    def totals(self) -> dict[str, Decimal]:
        """By currency."""
        found: dict[str, Decimal] = {}
        for charge in self.charges:
            currency = charge.billed.currency
            found[currency] = found.get(currency, Decimal(0)) + Decimal(charge.billed.cost)
        return found

    def by_lookup(self) -> list[Charge]:
        """One charge for the whole month of each lookup, the service's charges together."""
        found: dict[tuple[str, ...], Charge] = {}
        for charge in self.charges:
            key = (charge.service, charge.enrichment, charge.lookup, charge.billed.unit, charge.billed.currency)
            before = found.get(key)
            billed = charge.billed if before is None else _sum(before.billed, charge.billed)
            found[key] = Charge(self.first, charge.service, charge.enrichment, charge.lookup, billed)
        return [found[key] for key in sorted(found)]

    def focus_csv(self) -> str:
        """All charges, a line per day and lookup, in columns of FOCUS."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(FOCUS)
        for one in self.charges:
            writer.writerow(
                (
                    _instant(self.first), _instant(self.end), _instant(one.day),
                    _instant(one.day + dt.timedelta(days=1)), "Usage", one.service, one.enrichment,
                    f"lookup {one.lookup}", one.billed.units, one.billed.unit, one.billed.cost, one.billed.currency,
                )
            )  # fmt: skip
        return text.getvalue()


def costs_of(month: str, enrichment: str | None = None) -> MonthlyCosts:
    """Every charge of a month.

    Args:
        month: As 2026-11. A run counts in the month, in UTC, in which it started.
        enrichment: Only this one; None for all whose records are here.

    Raises:
        DeclarationError: It is no month.
    """
    try:
        first = dt.date.fromisoformat(f"{month}-01")
    except ValueError as error:
        raise DeclarationError(f"--month is {month!r}; it must be a month, as 2026-11.") from error
    names = [enrichment] if enrichment else sorted(path.name for path in run_records.ROOT.glob("*") if path.is_dir())
    records = [record for name in names for record in run_records.load(name)]
    unwritten = [run for name in names for run in run_records.unwritten(name)]
    return MonthlyCosts(
        first,
        tuple(_charges(record for record in records if record.facts.started_at.startswith(month))),
        sum(run.started_at.startswith(month) for run in unwritten),
    )


def _charges(records: Iterable[DayRecord]) -> list[Charge]:
    found: dict[tuple[str, ...], Charge] = {}
    for record in records:
        declared, day = record.facts.declared, record.facts.started_at[:10]
        services = {lookup.name: lookup.service for lookup in declared.lookups}
        for lookup in record.figures.lookups:
            if (billed := lookup.billed) is None:
                continue
            service = services[lookup.name]
            key = (day, service, declared.enrichment, lookup.name, billed.unit, billed.currency)
            if key in found:
                billed = _sum(found[key].billed, billed)
            found[key] = Charge(dt.date.fromisoformat(day), service, declared.enrichment, lookup.name, billed)
    return [found[key] for key in sorted(found)]


def _sum(one: Billed, other: Billed) -> Billed:
    return Billed(
        one.units + other.units,
        one.lost + other.lost,
        one.unit,
        f"{Decimal(one.cost) + Decimal(other.cost):f}",
        one.currency,
        f"{Decimal(one.saved) + Decimal(other.saved):f}",
    )


def _instant(day: dt.date) -> str:
    return f"{day.isoformat()}T00:00:00Z"
