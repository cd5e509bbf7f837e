"""Rates: in no window of time does the service count more than it allows, whatever dies, stops or
is lost.
"""

import asyncio
import math
import random
from collections import deque
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncio_core import Gate
from asyncio_core.testing import run_virtual
from jobs.clients.request_counter import IN_CALL
from jobs.declare.limits.rates import Rate
from jobs.errors import DeclarationError
from jobs.limits.lease_book import Claim, LeaseBook, Limit
from jobs.limits.lease_holder import LeaseHolder
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import CALLS, Reserved, ServiceLimits
from jobs.limits.window_use import CallUse, WindowUse, arrives_within
from jobs.task.lease.lease_messages import parse_claims
from jobs.task.lease.service_lease import ServiceLease
from tests.jobs.limits.fleet import MemoryStore, Way
from tidegate import HttpLookup, Service

TTL = 5.0


def most_in_a_window(uses, window):
    """The plainest model: the most that was used within a window up to any use. uses: (when, how
    much).
    """
    most = total = 0
    recent = deque()
    for when, amount in sorted(uses):
        recent.append((when, amount))
        total += amount
        while recent[0][0] <= when - window:
            total -= recent.popleft()[1]
        most = max(most, total)
    return most


def test_the_model_of_the_tests_counts_the_calls_in_a_window():
    assert most_in_a_window([(0.0, 3), (0.5, 2), (1.0, 4), (1.4, 1)], 1.0) == 7
    assert most_in_a_window([(0.0, 3), (1.0, 2)], 1.0) == 3


STEP = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["call", "call", "call", "leaves", "end", "beat", "lost", "leave", "die"]),
    st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.0]), st.integers(0, 3),
)  # fmt: skip


@given(
    steps=st.lists(STEP, max_size=80),
    unit=st.sampled_from(["request", "token"]),
    window=st.sampled_from([2.0, math.inf]),
)
def test_no_window_exceeds_the_rate_whatever_messages_are_lost(steps, unit, window):
    amount, reserve_per_call = 6, 1 if unit == "request" else 3
    book, now, used = LeaseBook(), 100.0, []
    owners = {}

    def owner_of(name):
        if name not in owners:
            owners[name] = (
                LeaseHolder({"r": Limit(amount, window)}),
                WindowUse(window, {(unit, None): 1}, reserve_per_call),
                [],
            )
        return owners[name]

    for name, what, pause, billed in steps:
        now += pause
        holder, use, calls = owner_of(name)
        for other in owners.values():  # what has left has arrived in time, as the promise presumes
            for call in other[2]:
                if (
                    unit == "request"
                    and call["left"] is None
                    and now >= call["begun"] + arrives_within(window)
                ):
                    call["left"] = now
        if what == "call" and use.in_use(now) + reserve_per_call <= holder.may_use("r", now):
            moment = now
            calls.append(
                {"use": CallUse([use], lambda moment=moment: moment), "begun": now, "left": None}
            )
            if unit == "request":
                calls[-1]["use"].request_left(1)
                calls[-1]["left"] = now + min(arrives_within(window), pause)
                calls[-1]["used"] = len(used)
                used.append((calls[-1]["left"], 1))
        elif what == "end" and calls:
            call = calls.pop(0)
            call["use"]._clock = lambda moment=now: moment
            if unit == "request":  # it has arrived before its answer
                used[call["used"]] = (min(call["left"], now), 1)
            if unit == "token":
                call["use"].bill({("token", None): billed})
                # the service counts it no later than at the end of the call
                used.append((now, billed))
            call["use"].end(known=True)
        elif what in ("beat", "lost"):
            claims = holder.ask({"r": use.in_use(now)}, {"r": use.wants(now, 2)})
            answer = book.heartbeat(name, claims, now=now, ttl=TTL)
            if what == "beat":
                holder.take(answer, asked_at=now)
        elif what == "leave" and not calls:
            book.leave(name, now=now)
            owners.pop(name)
        elif what == "die" and not calls:
            owners.pop(name)
        assert book.held("r") <= amount
    assert most_in_a_window(used, window) <= amount


def test_the_rate_that_a_task_holds_at_its_end_stays_reserved_until_its_window_has_passed():
    book, rate = LeaseBook(amounts={"r": 6}), Limit(6, 60.0)
    assert book.heartbeat("a", {"r": Claim(rate, 0, 4)}, now=0.0, ttl=100.0).shares["r"].has == 4
    book.leave("a", now=10.0)
    assert book.heartbeat("b", {"r": Claim(rate, 0, 6)}, now=12.0, ttl=100.0).shares["r"].has == 2
    assert book.heartbeat("b", {"r": Claim(rate, 2, 6)}, now=69.9, ttl=100.0).shares["r"].has == 2
    assert book.heartbeat("b", {"r": Claim(rate, 2, 6)}, now=70.0, ttl=100.0).shares["r"].has == 6


def test_a_request_counts_for_a_window_after_its_answer_or_its_latest_arrival():
    now = 0.0
    use = WindowUse(1.0, {("request", None): 1}, 1)
    calls = [CallUse([use], lambda: now) for _ in range(3)]
    for call in calls:
        call.request_left(1)
    now = 0.02
    calls[0].end(known=True)
    calls[1].end(known=False)
    assert [use.in_use(at) for at in (1.01, 1.02, 1.24, 1.25)] == [3, 2, 2, 0]
    now = 5.0
    calls[2].end(known=True)
    assert use.in_use(now) == 0


def test_an_abandoned_call_counts_for_a_window_after_its_latest_arrival():
    now = 0.0
    use = WindowUse(1.0, {("token", None): 1}, 10)
    calls = [CallUse([use], lambda: now) for _ in range(4)]
    for call in calls[:3]:
        call.request_left(1)
    now = 0.02
    calls[0].end(known=False)
    calls[1].bill({("token", None): 3})
    calls[1].end(known=True)
    calls[2].note_unknown_use()
    calls[2].end(known=True)
    calls[3].end(known=False)  # it has sent nothing
    assert [use.in_use(at) for at in (1.01, 1.02, 1.24, 1.25)] == [23, 20, 20, 0]


# -- a fleet in virtual time
# ------------------------------------------------------------------------------------------

RATES = [Rate(40, per="second"), Rate(90_000, per="minute", of="tokens", at_most=100)]


class Counting:
    """The service: what arrived when, with how many tokens, and how many calls are with it."""

    def __init__(self, draw):
        self.draw, self.arrivals, self.tokens, self.by_run = draw, [], [], {}
        self.in_flight = self.peak = 0

    async def call(self, run):
        loop = asyncio.get_running_loop()
        IN_CALL.get().request_left(1)
        await asyncio.sleep(self.draw.uniform(0.001, 0.05))
        self.arrivals.append((loop.time(), 1))
        self.by_run[run] = self.by_run.get(run, 0) + 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self.draw.uniform(0.05, 0.3))
        finally:
            self.in_flight -= 1
        tokens = self.draw.randint(20, 100)
        self.tokens.append((loop.time(), tokens))
        await asyncio.sleep(0.001)
        IN_CALL.get().bill({("token", None): tokens})


class Fleet:
    """Runs of tasks, with the lease that a task has on Spark; only links and calls are played."""

    def __init__(self, service, store, *, runs, tasks, rates, calls, width=8, longest=2.0):
        self.service, self.loop, self.width = service, asyncio.get_running_loop(), width
        limits = {CALLS: Limit(calls)} if store is not None else {}
        limits |= {rate.name: Limit(rate.amount, rate.seconds) for rate in rates}
        reserved = {
            rate.name: Reserved({(rate.unit, None): 1}, rate.reserve_per_call) for rate in rates
        }
        self.limits = ServiceLimits("geo", limits, longest, reserved)
        self.runs = [FleetRun(self, f"run-{number}", store, tasks) for number in range(runs)]


class FleetRun:
    def __init__(self, fleet, name, store, tasks):
        self.fleet, self.name, self.alive, self.frozen_until = fleet, name, True, 0.0
        way = None if store is None else Way(self, store)
        self.keeper = LeaseKeeper(fleet.limits, name, name, way, fleet.loop.time)
        self.work = [] if store is None else [fleet.loop.create_task(self.keeper.run())]
        self.work += [
            fleet.loop.create_task(self.task(f"{name}-{number}")) for number in range(tasks)
        ]

    async def task(self, name):
        soon = asyncio.Event()
        lease = ServiceLease(self.fleet.limits, Gate(), soon.set)

        async def caller():
            while self.alive:
                await lease.within(self.fleet.service.call, self.name)

        callers = [asyncio.create_task(caller()) for _ in range(self.fleet.width)]
        self.work += callers
        while self.alive:
            asked_at = self.fleet.loop.time()
            message = lease.claims(self.fleet.width)["claims"]
            answer = self.keeper.heartbeat(
                name, parse_claims({"claims": message}, self.fleet.limits)
            )
            lease.take(answer, asked_at=asked_at)
            soon.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(soon.wait(), 0.25)
                await asyncio.sleep(0.02)

    def kill(self):
        self.alive = False
        for task in self.work:
            task.cancel()


async def calling(draw, *, seconds, meanwhile=None, store=None, **options):
    service = Counting(draw)
    fleet = Fleet(service, store, **options)
    if meanwhile is not None:
        fleet.trouble = asyncio.create_task(meanwhile(fleet, store))
    await asyncio.sleep(seconds)
    for run in fleet.runs:
        run.kill()
    await asyncio.sleep(1)
    return service


def jain(service):
    each = list(service.by_run.values())
    return sum(each) ** 2 / (len(each) * sum(count * count for count in each))


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_three_runs_of_four_tasks_use_each_rate_fully_and_never_exceed_it(seed):
    draw = random.Random(seed)
    seconds = 120.0
    service = run_virtual(
        lambda: calling(
            draw, store=MemoryStore(draw), runs=3, tasks=4, rates=RATES, calls=16, seconds=seconds
        )
    )
    assert service.peak <= 16
    assert most_in_a_window(service.arrivals, 1.0) <= 40
    assert most_in_a_window(service.tokens, 60.0) <= 90_000
    assert sum(tokens for _, tokens in service.tokens) >= 0.95 * 90_000 * seconds / 60, (
        "the scarcest of the three"
    )
    assert jain(service) >= 0.95


def test_the_tasks_of_a_run_keep_a_rate_without_a_store():
    draw = random.Random(1)
    service = run_virtual(
        lambda: calling(
            draw, runs=1, tasks=4, rates=[Rate(300, per="minute")], calls=0, seconds=300
        )
    )
    assert most_in_a_window(service.arrivals, 60.0) == 300
    assert len(service.arrivals) >= 0.95 * 1500


async def trouble(fleet, store):
    draw = store.draw
    store.loses = 0.05
    for number in range(8):
        await asyncio.sleep(8)
        if number % 4 == 0:
            victim = draw.choice([run for run in fleet.runs if run.alive])
            victim.kill()
            fleet.runs.append(FleetRun(fleet, f"next-{number}", store, 4))
        elif number % 4 == 2:
            store.down = True
            await asyncio.sleep(draw.choice([2.0, 20.0]))
            store.down = False


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kills_and_store_outages_never_exceed_a_rate(seed):
    draw = random.Random(seed)
    service = run_virtual(
        lambda: calling(
            draw,
            store=MemoryStore(draw),
            runs=3,
            tasks=4,
            rates=RATES,
            calls=16,
            seconds=120,
            meanwhile=trouble,
        ),
        seed=seed,
    )
    assert service.peak <= 16
    assert most_in_a_window(service.arrivals, 1.0) <= 40
    assert most_in_a_window(service.tokens, 60.0) <= 90_000
    assert len(service.arrivals) > 800


# -- declarations
# --------------------------------------------------------------------------------------------------


def test_a_call_reserves_one_request_or_a_hundredth_of_another_unit_or_the_declared_amount():
    assert Rate(600, per="minute").reserve_per_call == 1
    assert Rate(90_000, per="minute", of="tokens").reserve_per_call == 900
    assert Rate(90_000, per="10 seconds", of="tokens", at_most=4_000).reserve_per_call == 4_000
    assert Rate(5, per="10 seconds").name == "requests per 10 seconds"
    # runs that share the limit find it by its name
    same = {Rate(5, per=per).name for per in ("minute", "1 minute", "1 minutes", "60 seconds")}
    assert same == {"requests per minute"}
    assert Rate(5, per="90 minutes").name == "requests per 90 minutes"
    assert Rate(5, per="10 seconds").seconds == 10


@pytest.mark.parametrize(
    ("declare", "sentence"),
    [
        (lambda: Rate(0, per="minute"), "amount is 0; it must be a whole number, at least 1"),
        (lambda: Rate(1, per="week"), "per is 'week'; it must be second, minute, hour or day"),
        (
            lambda: Rate(1, per="minute", of="items"),
            "of is 'items'; it must be requests, or a unit",
        ),
        (
            lambda: Rate(5, per="minute", at_most=6),
            "at_most is 6; it must be a whole number from 1 to 5",
        ),
        (
            lambda: Service(
                name="s",
                url="http://a",
                max_concurrency=1,
                rate=[Rate(1, per="minute"), Rate(2, per="minutes")],
            ),
            "service s: rate: two rates limit requests per minute",
        ),
        (
            lambda: HttpLookup(
                name="s",
                request="GET /{k}",
                service=Service(
                    name="s",
                    url="http://a",
                    max_concurrency=1,
                    rate=Rate(9, per="day", of="tokens"),
                ),
                keys={"k": "k"},
                returns="x INT",
                timeout=1.0,
            ),
            "bill: its service has a rate of token, and bill does not say where an answer reports",
        ),
    ],
)
def test_a_rate_that_cannot_be_kept_is_refused(declare, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        declare()
