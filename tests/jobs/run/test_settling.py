"""The budget of a run that was killed counts what its bill says, once its calls must have ended."""

import asyncio
import datetime as dt
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.commands.costs import list_costs
from jobs.limits.file_store import FileStore
from jobs.limits.lease_book import Claim, Limit
from jobs.limits.store_url import LIMITS_URL
from jobs.run.coordinator.run_leases import RunLeases, leased_limits
from jobs.run.settling import settle
from jobs.schema.records import DayFacts
from jobs.tables.records import run_bills, run_records
from tidegate import Budget, Enrichment, HttpLookup, Input, Output, Price, Service

NOW = dt.datetime(2026, 11, 25, 23, 59, tzinfo=dt.UTC)
BUDGET = "billionths of USD on 2026-11-25"
GEO = HttpLookup(
    name="geo", request="GET /{k}", keys={"k": "k"}, returns="x BIGINT", timeout=5.0,
    service=Service(
        name="geo", url="http://a", max_concurrency=6, prices=Price("0.0023 USD", per="request"),
        budget=Budget("50 USD", per="day"),
    ),
)  # fmt: skip
PRICED = Enrichment(
    name="e", input=Input(path="i", row_id=["k"]), lookups=[GEO], output=Output(path="o")
)
REQUEST = 2_300_000  # billionths


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A folder to work in, and the clock of the machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LIMITS_URL, f"file://{tmp_path}/limits.sqlite")
    machine = SimpleNamespace(now=0.0)
    machine.store = lambda _url="": FileStore(
        str(tmp_path / "l.sqlite"), patience=5.0, clock=lambda: machine.now
    )
    machine.leases = lambda name: RunLeases(machine.store(), name)
    return machine


def began(run_id, leases, wait_for, reserved=50_000_000_000):
    """A run that has reserved so much of its budget; its meter, its bill, and the keeper of its
    lease.
    """
    facts = DayFacts(PRICED.facts(), "2026-11-24", run_id, (), (), "", (), (), NOW.isoformat(), "")
    meters = run_bills.begin(facts, PRICED.lookups)
    (limits,) = leased_limits(PRICED.lookups, now=meters.run_began)
    (keeper,) = leases.keepers([limits], meters.run_id).values()

    def reserves():
        keeper.heartbeat(
            "task", {BUDGET: Claim(Limit(50_000_000_000, math.inf), 0, 50_000_000_000)}
        )
        return BUDGET in keeper.holder.shares and keeper.holder.shares[BUDGET].has == reserved

    wait_for(reserves)
    reserves()  # the lease may have come after the task's heartbeat, which then got no part of it
    return meters.open(), run_records.bill_of(run_id), keeper


def killed(leases):
    """The end of the process that has these leases: it gives nothing back."""
    for beats in leases._beats.values():
        leases._loop.call_soon_threadsafe(beats.cancel)
    leases._keepers.clear()
    leases.close()


def spent(machine):
    async def main():
        store = machine.store()
        books, _ = await store.books()
        await store.close()
        return books["http geo at a"]

    return asyncio.run(main()).held(BUDGET)


def test_a_killed_run_is_settled_once_its_calls_have_ended_and_not_before(machine, wait_for):
    leases = machine.leases("killed")
    meter, _, _ = began("killed", leases, wait_for)
    for _ in range(7):
        meter.add("geo", "request", 20_000, 1)
    meter.close()
    killed(leases)
    for now, held in ((14.9, 50_000_000_000), (15.1, 7 * REQUEST), (15.2, 7 * REQUEST)):
        machine.now = now
        following = machine.leases("following")
        following.check()
        following.close()
        assert spent(machine) == held
    assert run_records.bill_of("killed") is not None, "it is the bill of a run without a record"


def killed_after_three_requests(machine, wait_for):
    """The bill of a run whose lease has expired."""
    leases = machine.leases("killed")
    meter, bill, _ = began("killed", leases, wait_for)
    meter.add("geo", "request", 20_000, 3)
    meter.close()
    killed(leases)
    machine.now = 1000.0
    return bill


def test_costs_settles_killed_runs_and_a_run_without_a_bill_counts_at_what_it_held(
    machine, wait_for, monkeypatch
):
    bill = killed_after_three_requests(machine, wait_for)
    monkeypatch.setattr("jobs.limits.store_url.open_store", machine.store)
    path = run_records.bill_file(bill.enrichment, bill.day, bill.run_id)
    path.rename(path.with_suffix(".elsewhere"))
    assert list_costs("2026-11").totals() == {}
    assert spent(machine) == 50_000_000_000
    path.with_suffix(".elsewhere").rename(path)
    (total,) = list_costs("2026-11").totals().values()
    assert spent(machine) == total * 1_000_000_000 == 3 * REQUEST


def test_a_killed_run_whose_counts_are_gone_counts_at_the_held_amount(machine, wait_for):
    bill = killed_after_three_requests(machine, wait_for)
    shutil.rmtree(bill.folder)
    asyncio.run(settle(machine.store()))
    assert spent(machine) == 50_000_000_000


def test_an_ended_run_counts_its_bill_also_for_a_dead_task(machine, wait_for):
    leases = machine.leases("run")
    meter, bill, keeper = began("ends", leases, wait_for)
    meter.add("geo", "request", 20_000, 5)
    meter.close()
    wait_for(lambda: keeper.heartbeat("task", {}) and keeper.tasks.held(BUDGET))
    assert leases.end_run(bill)
    assert spent(machine) == 5 * REQUEST
    meter, _, _ = began("next", leases, wait_for, reserved=50_000_000_000 - 5 * REQUEST)
    meter.close()
    leases.close()


@pytest.mark.parametrize("spoils", [Path.mkdir, lambda path: path.write_bytes(b"\xff\n")])
def test_an_unreadable_bill_counts_at_the_held_amount_and_stops_no_run(machine, wait_for, spoils):
    bill = killed_after_three_requests(machine, wait_for)
    spoils(Path(bill.folder, "bad.meter"))
    following = machine.leases("following")
    following.check()
    following.close()
    assert spent(machine) == 50_000_000_000
