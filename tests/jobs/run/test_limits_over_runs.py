"""Two runs at once, each with its driver and its tasks: over real links and a real store, one limit
holds for both.
"""

import asyncio
import dataclasses
import threading
import time

import pytest
from aiohttp import web

from jobs.clients.client import Throttled
from jobs.declare.lookup import service_identity
from jobs.errors import DeclarationError, RunStopped
from jobs.limits.lease_book import Claim, Limit
from jobs.limits.store import StoreLost
from jobs.limits.store_url import LIMITS_URL, open_store
from jobs.run.coordinator import driver_coordinator as coordinating
from jobs.run.coordinator import run_leases
from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.coordinator.run_leases import RunLeases, build_keepers, leased_limits
from jobs.run.metrics.limiting_factor import TaskLoad
from jobs.task.lease.service_lease import ServiceLease
from tests.jobs.limits.test_rates import most_in_a_window
from tests.jobs.task.test_runner import Function, batches, in_time, lookup, plan
from tests.support.task_threads import TaskThreads
from tidegate import Adaptive, Cache, Enrichment, HttpLookup, Input, Output, Rate, Service
from tidegate import lookup as coroutine_lookup
from tidegate.__main__ import main

pytestmark = pytest.mark.slow
LIMIT = 6


@pytest.fixture
def url(tmp_path, monkeypatch):
    url = f"file://{tmp_path}/limits.sqlite"
    monkeypatch.setenv(LIMITS_URL, url)
    return url


@pytest.fixture(autouse=True)
def no_thread_is_left(monkeypatch):
    """Whatever leases a test opened end with it."""
    opened, begin = [], RunLeases.__init__

    def begun(self, *arguments, **options):
        begin(self, *arguments, **options)
        opened.append(self)

    monkeypatch.setattr(RunLeases, "__init__", begun)
    yield
    for leases in opened:
        leases.close()


def hold(url, declared, calls):
    """Another run says that it uses so many, for ten minutes."""
    claim = {"calls": Claim(Limit(LIMIT), calls, calls)}
    step = open_store(url).step

    def beat(book, now):
        return book.heartbeat("another", claim, now=now, ttl=600, name="another run")

    return asyncio.run(step(service_identity(declared), beat)).shares["calls"].has


class Run(TaskThreads):
    """One run in threads of its own: a driver, two tasks."""

    def __init__(self, url, declared, *, tasks=2, name="a run", share=LIMIT):
        limits = leased_limits([declared])
        keepers = {} if url else build_keepers(limits, name)
        if url:
            leases = RunLeases(open_store(url), name)
            leases.check()
            keepers = leases.keepers(limits)
            (self.keeper,) = keepers.values()
        self.driver = DriverCoordinator("127.0.0.1", "127.0.0.1", lambda _: True)
        self.progress = {}  # the last one of each task
        listener = self.driver.listen(
            lambda message: self.progress.update({message["partition"]: message})
        )
        address = self.driver.register(keepers=keepers, progress=listener)
        planned = plan(declared, share=share)
        super().__init__(
            dataclasses.replace(planned, driver=address, limits=limits, progress=listener), tasks
        )

    def join(self):
        super().join()
        return sum(batch.num_rows for batch in self.found)


@pytest.mark.parametrize("cache", [None, Cache()])
def test_two_runs_together_stay_within_the_calls_in_flight_of_a_single_run(url, cache):
    function = Function(seconds=lambda key: 0.02)
    declared = lookup(function, max_concurrency=LIMIT, cache=cache)
    runs = [Run(url, declared, name=f"run {number}") for number in range(2)]

    def both():
        for run in runs:
            run.start(lambda: batches(150))
        return [run.join() for run in runs]

    assert in_time(both) == [300, 300]
    assert function.highest == LIMIT
    assert not runs[0].errors


def test_a_single_run_has_the_whole_limit_and_returns_it_at_its_end(url, wait_for):
    function = Function(seconds=lambda key: 0.01)
    run = Run(url, lookup(function, max_concurrency=LIMIT), tasks=1)
    run.start(lambda: batches(300))
    assert in_time(run.join) == 300
    assert function.highest == LIMIT

    def held():
        books, _ = asyncio.run(open_store(url).books())
        return sum(book.held("calls") for book in books.values())

    wait_for(lambda: held() == 0)


def test_a_task_with_bursts_of_rows_keeps_its_share_between_them(url, monkeypatch):
    function = Function(seconds=lambda key: 0.001)

    def bursts():
        for burst in batches(400):
            time.sleep(0.15)
            yield burst

    run = Run(url, lookup(function, max_concurrency=LIMIT), tasks=1)
    wanted, claims = [], ServiceLease.claims
    monkeypatch.setattr(
        ServiceLease, "claims", lambda self, wants: wanted.append(wants) or claims(self, wants)
    )
    run.start(bursts)
    assert in_time(run.join) == 400
    first, *_, last = [number for number, wants in enumerate(wanted) if wants]
    assert last - first >= 3
    assert 0 not in wanted[first:last]


def test_a_run_uses_only_the_calls_that_another_run_does_not_hold(url):
    function = Function(seconds=lambda key: 0.01)
    declared = lookup(function, max_concurrency=LIMIT)
    other = Run(url, declared)

    assert [hold(url, declared, 4) for _ in range(2)] == [4, 4]
    other.start(lambda: batches(100))
    assert in_time(other.join) == 200
    assert function.highest == LIMIT - 4


def test_a_refusal_stops_all_tasks_of_both_runs_until_the_pause_ends(url):
    began, lock = [], threading.Lock()
    refused = threading.Event()

    class Refusing(Function):
        async def async_invoke(self, value):
            loop = asyncio.get_running_loop()
            with lock:
                began.append(loop.time())
                refuses = len(began) > 40 and not refused.is_set()
                if refuses:
                    refused.set()
                    began.append("refused")
            if refuses:
                raise Throttled("429", 2.0)
            return await super().async_invoke(value)

    function = Refusing(seconds=lambda key: 0.05)
    declared = lookup(function, max_concurrency=LIMIT)
    runs = [Run(url, declared, name=f"run {number}") for number in range(2)]

    def both():
        for run in runs:
            run.start(lambda: batches(60))
        return [run.join() for run in runs]

    assert in_time(both) == [120, 120]
    at = began.index("refused")
    paused = began[at - 1]
    after = sorted(time for time in began[at + 1 :] if time > paused + 1.0)
    assert after[0] >= paused + 2.0
    assert after[1] >= after[0] + 0.05, "one call probes"


def test_a_call_whose_process_was_stopped_sends_nothing_after_its_end(url, service):
    stopped = threading.Event()

    @coroutine_lookup(
        name="first", service=Service(name="geo", url=service.url, max_concurrency=LIMIT),
        keys={"k": "k"}, returns="first_x BIGINT", timeout=0.5,
    )  # fmt: skip
    async def geo(row, http):
        if row.k == 7:
            stopped.set()
            time.sleep(1.0)  # noqa: ASYNC251  # the whole task, as with SIGSTOP: the call's timer is late
        await http.get("/geo", params={"k": row.k})
        return {"first_x": row.k}

    run = Run(url, geo, tasks=1)
    run.start(lambda: batches(40))
    assert in_time(run.join) == 40
    assert stopped.is_set()
    assert "/geo?k=6" in service.log
    assert "/geo?k=7" not in service.log


@pytest.mark.parametrize("error", [StoreLost("gone"), EOFError("of a driver")])
def test_a_run_that_loses_its_store_stops_with_one_sentence(url, monkeypatch, error):
    monkeypatch.setattr(coordinating, "WITHOUT_STORE", 0.5)
    function = Function(seconds=lambda key: 0.05)
    run = Run(url, lookup(function, max_concurrency=LIMIT), tasks=1)

    class Gone:
        async def step(self, service, decide):
            raise error

    run.keeper.store = Gone()
    run.start(lambda: batches(1000))
    in_time(run.join)
    assert [type(error) for error in run.errors] == [RunStopped]
    assert "The store of the limits has not answered for" in str(run.errors[0])


def test_gates_are_read_again_after_any_error_of_the_store(monkeypatch, wait_for):
    monkeypatch.setattr(run_leases, "FOLLOW_AGAIN", 0.01)
    looks = []

    class Failing:
        async def books(self):
            return {}, 0.0

        async def changes(self):
            looks.append("look")
            if len(looks) < 3:
                raise EOFError("of a driver")
            await asyncio.sleep(60)
            yield "geo"

        async def check(self):
            pass

        async def close(self):
            pass

    run_leases.RunLeases(Failing(), "a run").check()
    wait_for(lambda: len(looks) == 3)


def test_a_lookup_without_any_time_limit_is_refused(url):
    with pytest.raises(DeclarationError, match="it has no timeout and no attempt_timeout"):
        leased_limits([lookup(Function(), timeout=None)])


def test_an_unreachable_store_is_reported_before_a_run_starts(monkeypatch):
    monkeypatch.setattr(run_leases, "_leases", None)
    monkeypatch.setenv(LIMITS_URL, "postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(RunStopped, match="the store of the limits cannot be reached"):
        run_leases.run_leases("a run")


def test_without_a_store_no_limit_is_leased(monkeypatch):
    monkeypatch.setenv(LIMITS_URL, "off")
    assert leased_limits([lookup(Function())]) == ()


def test_a_pause_of_a_task_pauses_all_tasks_of_its_run(monkeypatch):
    monkeypatch.setenv(LIMITS_URL, "off")
    began, refused = [], threading.Event()

    class Refusing(Function):
        async def async_invoke(self, value):
            now = asyncio.get_running_loop().time()
            if len(began) > 40 and not refused.is_set():
                refused.set()
                began.append(("refused", now))
                raise Throttled("429", 1.0)
            began.append(("began", now))
            return await super().async_invoke(value)

    run = Run(None, lookup(Refusing(seconds=lambda key: 0.05), max_concurrency=LIMIT))
    run.start(lambda: batches(100))
    assert in_time(run.join) == 200
    (paused,) = [when for what, when in began if what == "refused"]
    assert next(when for what, when in began if when > paused + 0.2) >= paused + 0.99


def test_the_found_adaptive_limit_is_reported_as_the_limit_of_the_run(service, monkeypatch):
    monkeypatch.setenv(LIMITS_URL, "off")
    monkeypatch.setattr(run_leases, "_alone", {})
    turns = []

    async def answer(_request):
        if not turns:
            turns.append(asyncio.Semaphore(8))
        async with turns[0]:
            await asyncio.sleep(0.05)
        return web.json_response({"x": 1})

    service.answer = answer
    declared = HttpLookup(
        name="first", request="GET /{k}", keys={"k": "k"}, returns="first_x BIGINT", timeout=5.0,
        paths={"first_x": "$.x"}, cache=None,
        service=Service(name="geo", url=service.url, max_concurrency=64, adaptive=Adaptive()),
    )  # fmt: skip
    run = Run(None, declared, share=32)
    run.start(lambda: batches(250))
    assert in_time(run.join) == 500
    assert not run.errors
    assert 8 < service.highest_in_flight < 40
    load = TaskLoad.of(run.progress.values())
    assert load.waited["adapted_s"]["first"] > 0.5 * 500 * 0.05 / 8
    assert load.waited["throttled_s"]["first"] < 0.5


@pytest.mark.proof
@pytest.mark.spark
def test_a_run_on_spark_stays_within_its_lease(url, spark, service, monkeypatch, enrich):
    monkeypatch.setattr(run_leases, "_leases", None)
    arrivals = []

    async def answer(_request):
        arrivals.append((time.monotonic(), 1))
        await asyncio.sleep(0.05)
        return web.json_response({"x": 1.5})

    service.answer = answer
    geo = HttpLookup(
        name="geo", request="GET /{k}", keys={"k": "id"}, returns="x DOUBLE", timeout=5.0,
        service=Service(name="geo", url=service.url, max_concurrency=LIMIT, rate=Rate(15, per="second")),
    )  # fmt: skip
    assert [hold(url, geo, 4) for _ in range(2)] == [4, 4]
    declared = Enrichment(
        name="things",
        input=Input(path="in", row_id=["id"]),
        lookups=[geo],
        output=Output(path="out"),
    )
    rows = enrich(spark.range(40).repartition(2), declared).collect()
    assert [row.geo_status for row in rows] == ["ok"] * 40
    assert service.highest_in_flight == LIMIT - 4
    assert most_in_a_window(arrivals, 1.0) == 15


def test_limits_shows_the_holders_and_waiting_runs_of_each_limit(url, capsys, monkeypatch):
    declared = lookup(Function(), max_concurrency=LIMIT)
    assert main(["limits"]) == 0
    assert capsys.readouterr().out == "No run has or wants a part of a limit.\n"
    hold(url, declared, 4)
    step = open_store(url).step
    asyncio.run(
        step(
            service_identity(declared),
            lambda book, now: book.close_gate(30.0, "429 Too Many Requests", now=now),
        )
    )
    assert main(["limits"]) == 0
    pause, headings, line = capsys.readouterr().out.splitlines()
    assert pause == "function first: paused for another 30 s (429 Too Many Requests)"
    assert headings.split() == ["service", "limit", "run", "holds", "due", "wants", "ends", "in"]
    assert line.split() == [
        "function",
        "first",
        "6",
        "calls",
        "another",
        "run",
        "4",
        "4",
        "4",
        "600",
        "s",
    ]
    monkeypatch.setenv(LIMITS_URL, "off")
    assert main(["limits"]) == 2
    assert "TIDEGATE_LIMITS_URL is off" in capsys.readouterr().err
