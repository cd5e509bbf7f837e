"""Runs of one process, as in a notebook: each has the limits that it declares."""

import asyncio
import dataclasses

import pytest

from jobs.errors import RunStopped
from jobs.limits.lease_book import Claim
from jobs.limits.store_url import LIMITS_URL, in_store
from jobs.run.coordinator import run_leases
from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.coordinator.run_leases import build_keepers, leased_limits
from tidegate import Adaptive, HttpLookup, Rate, Service

pytestmark = pytest.mark.process
PER_SECOND, PER_DAY, CALLS = "requests per second", "requests per day", "calls"


def lookup(timeout=5.0, **service):
    return HttpLookup(
        name="geo", request="GET /{k}", keys={"k": "k"}, returns="x BIGINT", timeout=timeout,
        service=Service(name="geo", url="http://127.0.0.1:1", **{"max_concurrency": 8} | service),
    )  # fmt: skip


class Run:
    """A run with a task that wants more than any limit."""

    def __init__(self, process, *declared):
        self._process = process
        limits = leased_limits(declared)
        self.limits = limits[0]
        keepers = build_keepers(limits, "a run")
        (self.keeper,) = keepers.values()
        self._address = process.driver.register(keepers=keepers)

    def claims(self, keeps, wants):
        names = self.limits.limits.items()
        return {name: Claim(limit, keeps, wants) for name, limit in names}

    def gets(self, expected, uses=0):
        """Waits until its task has these amounts, and never more; it uses so many of each."""

        def has():
            shares = self.keeper.heartbeat("task", self.claims(uses, 1000)).shares
            found = {name: shares[name].has for name in expected if name in shares}
            assert all(found[name] <= expected[name] for name in found)
            return found == expected

        self._process.wait_for(has)
        self.keeper.heartbeat("task", self.claims(uses, uses))
        self.keeper.leave("task")

    def end(self):
        self._process.driver.end(self._address)


class Process:
    def __init__(self, wait_for):
        self.wait_for = wait_for
        self.driver = DriverCoordinator("127.0.0.1", "127.0.0.1", lambda _: True)

    def run(self, declared, expected):
        """A run, from its beginning to its end."""
        run = Run(self, declared)
        run.gets(expected)
        run.end()


@pytest.fixture
def meets_at(tmp_path, monkeypatch):
    """Sets where runs meet: a file, or off."""

    def sets(name):
        monkeypatch.setenv(LIMITS_URL, name if name == "off" else f"file://{tmp_path / name}")

    return sets


@pytest.fixture
def process(meets_at, monkeypatch, wait_for):
    meets_at("limits.sqlite")
    monkeypatch.setattr(run_leases, "_leases", None)
    monkeypatch.setattr(run_leases, "_alone", {})
    yield Process(wait_for)
    if run_leases._leases is not None:
        run_leases._leases.close()


with_and_without_a_store = pytest.mark.parametrize("store", ["limits.sqlite", "off"])


@with_and_without_a_store
def test_a_run_has_its_rate_whatever_an_ended_run_of_the_process_declared(process, meets_at, store):
    meets_at(store)
    for amount in (5, 50, 7):
        process.run(lookup(rate=Rate(amount, per="second")), {PER_SECOND: amount})


@with_and_without_a_store
def test_an_ended_run_with_two_lookups_at_a_service_leaves_none_of_its_limits(
    process, meets_at, store
):
    meets_at(store)
    slow = lookup(rate=Rate(5, per="second"))
    Run(process, slow, dataclasses.replace(slow, name="other")).end()
    process.run(lookup(rate=Rate(50, per="second")), {PER_SECOND: 50})


@with_and_without_a_store
def test_a_run_has_its_calls_in_flight_whatever_an_ended_run_of_its_process_declared(
    process, meets_at, store
):
    meets_at(store)
    rate = Rate(50, per="second")
    for many in (2, 6, 3):
        declared = lookup(rate=rate, adaptive=Adaptive(at_least=many))
        process.run(declared, {PER_SECOND: 50, CALLS: many})
    whole = {} if store == "off" else {CALLS: 5}  # then no lease divides them
    process.run(lookup(rate=rate, max_concurrency=5), {PER_SECOND: 50} | whole)
    process.run(declared, {CALLS: 3})


@with_and_without_a_store
def test_a_lease_lasts_as_long_as_the_longest_call_of_the_runs_at_work(process, meets_at, store):
    meets_at(store)

    def ttl(timeout):
        run = Run(process, lookup(timeout=timeout, rate=Rate(5, per="second")))
        run.end()
        return run.keeper.ttl

    assert [ttl(timeout) for timeout in (600.0, 5.0)] == [610.0, 15.0]


@with_and_without_a_store
def test_of_two_runs_at_once_in_a_process_the_stricter_limits_apply(process, meets_at, store):
    meets_at(store)
    first, second = (
        Run(process, lookup(rate=Rate(many, per="second"), adaptive=Adaptive(at_least=least)))
        for many, least in ((5, 6), (50, 2))
    )
    second.gets({PER_SECOND: 5, CALLS: 2})
    first.end()
    second.end()
    process.run(lookup(rate=Rate(50, per="second")), {PER_SECOND: 50})


@with_and_without_a_store
def test_what_an_ended_run_used_of_a_rate_counts_for_the_next_run(process, meets_at, store):
    meets_at(store)
    run = Run(process, lookup(rate=Rate(5, per="day")))
    run.gets({PER_DAY: 5}, uses=3)
    run.end()
    process.run(lookup(adaptive=Adaptive()), {CALLS: 4})
    process.run(lookup(rate=Rate(10, per="day")), {PER_DAY: 7})


def owners(path):
    """Who has leases in this store."""
    books, _ = asyncio.run(in_store(f"file://{path}", lambda store: store.books()))
    return [row["owner"] for book in books.values() for row in book.rows(0.0) if row["wants"]]


def test_a_corrected_store_address_is_used_after_a_wrong_one(process, meets_at):
    meets_at("/dev/null/limits.sqlite")
    with pytest.raises(RunStopped, match="cannot be used"):
        Run(process, lookup())
    meets_at("mended")
    run = Run(process, lookup())
    run.gets({CALLS: 8})
    run.end()


def test_runs_use_the_last_named_store_once_no_run_holds_the_other_store(
    process, meets_at, tmp_path
):
    def wants_in(name, run):
        def is_there():
            run.keeper.heartbeat("task", run.claims(0, 9))
            return owners(tmp_path / name)

        process.wait_for(is_there)
        run.keeper.leave("task")
        process.wait_for(lambda: not owners(tmp_path / name))

    meets_at("first")
    run = Run(process, lookup())
    wants_in("first", run)
    meets_at("second")
    beside = Run(process, lookup())
    wants_in("first", beside)
    run.end()
    beside.end()
    wants_in("second", Run(process, lookup()))
