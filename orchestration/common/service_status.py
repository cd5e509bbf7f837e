"""Reads what the runs at work do at each service, and what runs hold of its limits."""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from jobs.commands.limits import Holder, Pause, holders_and_pauses
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import discover_all
from jobs.errors import TidegateError
from jobs.limits.store_url import limits_url
from jobs.schema.costs import sum_by_currency
from jobs.schema.facts import Facts
from jobs.tables.leases.day_leases import at_work
from jobs.tables.records import run_records
from jobs.tables.records.run_bills import charges_so_far

RECENT = dt.timedelta(minutes=1)  # a run that calls reports twice a second


@dataclass(frozen=True)
class LookupAtWork(Facts):
    """The requests of a lookup of a run at work, by the run's last report."""

    service: str
    enrichment: str
    day: str
    run_id: str
    lookup: str
    rows: int  # rows of the run that are done; of a prefetch, keys
    rows_total: int
    unit: str  # rows or keys
    left_s: float | None  # s until all rows, or keys, are done
    waits: str  # why no call of the run may start; empty: calls may start
    sent: int = 0
    in_flight: int = 0
    failed: int = 0
    throttled: int = 0
    per_s: float = 0.0  # sent in the last seconds
    cost: dict[str, float] = field(default_factory=dict)  # by currency


@dataclass(frozen=True)
class ServiceStatus(Facts):
    """A service: the lookups that ask it now, and what runs hold of its limits."""

    service: str
    lookups: tuple[LookupAtWork, ...] = ()
    holders: tuple[Holder, ...] = ()
    pauses: tuple[Pause, ...] = ()

    def total(self, figure: str) -> float:
        """Return the sum of a figure over the lookups."""
        whole: float = sum(getattr(lookup, figure) for lookup in self.lookups)
        return whole

    @property
    def cost(self) -> dict[str, float]:
        """What the runs at work were billed, by currency."""
        return sum_by_currency(pair for lookup in self.lookups for pair in lookup.cost.items())

    @property
    def left_s(self) -> float | None:
        """Seconds until the last run is done; None if a run does not know it."""
        left = [lookup.left_s for lookup in self.lookups]
        known = [value for value in left if value is not None]
        return max(known) if known and len(known) == len(left) else None


@dataclass(frozen=True)
class Services(Facts):
    """The services that a package's lookups ask, and others in the store of the limits."""

    at: str
    services: tuple[ServiceStatus, ...]
    error: str = ""  # why the store of the limits cannot be read


def declared(package: str) -> list[Enrichment]:
    """Return the enrichments of a package, without modules that cannot be loaded.

    Raises DeclarationError if there is no such package.
    """
    return [discovered.enrichment for discovered in discover_all(package)[0]]


def read_services(enrichments: Sequence[Enrichment], now: dt.datetime) -> Services:
    """Read the services of these enrichments, from the records of runs and the store of limits."""
    error, holders, pauses = "", list[Holder](), list[Pause]()
    try:
        if url := limits_url():
            holders, pauses = holders_and_pauses(url)
    except TidegateError as lost:
        error = str(lost)
    working = [lookup for enrichment in enrichments for lookup in _at_work(enrichment, now)]
    asked = {
        " ".join(lookup.service_key): lookup.service_name
        for enrichment in enrichments
        for lookup in enrichment.lookups
    }

    # by the name of `service_identity`, whose address may not be set here
    names = {
        identity: next(
            (asked[key] for key in asked if f"{identity} at ".startswith(f"{key} at ")), identity
        )
        for identity in {holder.service for holder in holders} | {pause.service for pause in pauses}
    }
    services = (
        ServiceStatus(
            service,
            tuple(lookup for lookup in working if lookup.service == service),
            tuple(holder for holder in holders if names[holder.service] == service),
            tuple(pause for pause in pauses if names[pause.service] == service),
        )
        for service in sorted({*asked.values(), *names.values()})
    )
    return Services(now.isoformat(timespec="seconds"), tuple(services), error)


def _at_work(enrichment: Enrichment, now: dt.datetime) -> Iterator[LookupAtWork]:
    """Yield the lookups of its runs at work that have reported."""
    name = enrichment.name
    recent = run_records.days(name, changed_since=(now - RECENT).timestamp())
    runs = {}
    with suppress(TidegateError):  # an unreadable lease
        runs = {day: run for run, day in at_work(enrichment.output.path).items()} if recent else {}
    for day in recent:
        if day in runs and (progress := _last_progress(name, day)):
            billed = charges_so_far(run_records.bill_of(runs[day], name, day))
            for lookup in enrichment.lookups:
                charge = billed.get(lookup.name)
                yield LookupAtWork(
                    lookup.service_name, name, day, runs[day], lookup.name, progress["rows"],
                    progress["rows_total"], progress["unit"], progress["left_s"],
                    progress["waits"] or "", **progress.get("requests", {}).get(lookup.name, {}),
                    cost={charge.currency: float(charge.cost)} if charge else {},
                )  # fmt: skip


def _last_progress(enrichment: str, day: str) -> dict[str, Any]:
    """Return the last progress of a day's running run; empty without progress."""
    event = run_records.read_progress(enrichment, day)
    return event if event.get("kind") == "progress" else dict(event.get("progress", {}))
