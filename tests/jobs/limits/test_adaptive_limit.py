"""The calls in flight that a service bears are found: scenarios like those of Vector's adaptive
concurrency.

Three tasks of one run call a played service in virtual time, over the real leases and the real
limit.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from asyncio_core import Gate
from asyncio_core.testing import run_virtual
from jobs.clients.client import CallFailed, Throttled
from jobs.declare.values.fingerprint import fingerprint
from jobs.errors import DeclarationError
from jobs.limits.adaptive_limit import AdaptiveLimit, Seen
from jobs.limits.lease_book import Answer, Claim, Limit, Share
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import CALLS, ServiceLimits
from jobs.run.coordinator.run_leases import leased_limits
from jobs.task.lease.lease_messages import parse_claims, parse_seen
from jobs.task.lease.service_lease import ServiceLease
from tests.jobs.limits.fleet import MemoryStore
from tidegate import Adaptive, HttpLookup, Service

AT_MOST = 200
TASKS = 3
RETRY_AFTER = 1.0  # s


@dataclass
class Played:
    """A service: its latency by what is in flight and by the time, and when it refuses or drops a
    call.
    """

    seconds: float = 0.1  # with room
    room: object = 10_000  # calls at once; more share it. A number, or a function of the time
    slows: float = 0.0  # each other call in flight makes it slower by this share
    doubles: float = 0.0  # so many other calls in flight double it
    jitter: float = 0.0  # exponential, a share of it
    refuses_over: object = 10_000  # in flight, with 429
    drops_over: int = 10_000  # in flight: no answer
    refuses_rate: float = 0.0  # over so many a second
    fails: float = 0.0  # share, by chance
    draw: random.Random = field(default_factory=lambda: random.Random(7))

    def __post_init__(self):
        self.in_flight = self.answered = self.refused = self.asked = self.failed = 0
        self._tokens, self._at = self.refuses_rate, 0.0
        self._queue = 0.0

    async def call(self):
        now = asyncio.get_running_loop().time()
        self.asked += 1
        if self.in_flight >= at(self.refuses_over, now) or not self._within_rate(now):
            self.refused += 1
            await asyncio.sleep(0.01)
            raise Throttled("429", RETRY_AFTER)
        if self.in_flight >= self.drops_over:
            self.failed += 1
            await asyncio.sleep(2.0)
            raise CallFailed("dropped", passing=True)
        self.in_flight += 1
        try:
            others = self.in_flight - 1
            seconds = at(self.seconds, now) * (1 + self.slows * others)
            seconds *= 2 ** (others / self.doubles) if self.doubles else 1
            seconds *= 1 - self.jitter + self.jitter * self.draw.expovariate(1)
            # its turn in the queue
            ready = max(self._queue, now) + at(self.seconds, now) / at(self.room, now)
            self._queue = ready
            await asyncio.sleep(max(seconds, ready - now))
        finally:
            self.in_flight -= 1
        if self.draw.random() < self.fails:
            self.failed += 1
            raise CallFailed("500", passing=True)
        self.answered += 1

    def _within_rate(self, now):
        if not self.refuses_rate:
            return True
        burst = self.refuses_rate / 10
        self._tokens, self._at = (
            min(burst, self._tokens + (now - self._at) * self.refuses_rate),
            now,
        )
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def at(what, now):
    return what(now) if callable(what) else what


class CallingTask:
    """What a task does of it: calls as its lease allows, heartbeats, and pauses by all tasks of the
    run.
    """

    def __init__(self, number, run):
        self.number, self.run = str(number), run
        self.loop = asyncio.get_running_loop()
        self.soon, self.starting = asyncio.Event(), 0
        self.lease = ServiceLease(run.limits, Gate(), self.soon.set)
        self.works = [self.loop.create_task(self.heartbeats())]

    async def heartbeats(self):
        while True:
            asked_at = self.loop.time()
            message = self.lease.claims(AT_MOST)
            answer = self.run.keeper.heartbeat(
                self.number, parse_claims(message, self.run.limits), parse_seen(message)
            )
            if message["probed"]:
                self.run.keeper.probed(self.number)
            self.lease.take(answer, asked_at=asked_at)
            self.fill()
            self.soon.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.soon.wait(), 0.25)
                await asyncio.sleep(0.02)

    def fill(self):
        """As an operator whose concurrency is the lease's."""
        if self.loop.time() >= self.run.paused_until:
            for _ in range(self.lease.calls - self.lease.running - self.starting):
                if not self.lease.may_start():
                    return
                self.starting += 1
                self.works.append(self.loop.create_task(self.call()))
                self.works = self.works[:1] + [work for work in self.works[1:] if not work.done()]

    async def call(self):
        self.starting -= 1
        try:
            await self.lease.within(lambda _keys: self.run.service.call(), None)
        except Throttled as throttled:
            self.run.keeper.close_gate(throttled.seconds, "429")
            self.run.pause(throttled.seconds)
        except CallFailed:
            pass
        self.fill()


class CallingRun:
    def __init__(self, service, at_most, at_least):
        self.service = service
        self.limits = ServiceLimits("geo", {CALLS: Limit(at_most)}, 10.0, at_least=at_least)
        self.loop = asyncio.get_running_loop()
        self.keeper = LeaseKeeper(self.limits, "", "", None, self.loop.time)
        self.paused_until = 0.0
        self.tasks = [CallingTask(number, self) for number in range(TASKS)]

    def pause(self, seconds):
        self.paused_until = max(self.paused_until, self.loop.time() + seconds)
        self.loop.call_at(self.paused_until, lambda: [task.fill() for task in self.tasks])


async def calling(service, seconds, settle, *, at_most=AT_MOST, at_least=4):
    run = CallingRun(service, at_most, at_least)
    await asyncio.sleep(settle)
    before = service.answered
    await asyncio.sleep(seconds)
    for task in run.tasks:
        for work in task.works:
            work.cancel()
    return service.answered - before, service


PROOF, SLOW = pytest.mark.proof, pytest.mark.slow


@pytest.mark.parametrize(
    ("facts", "best", "seconds"),
    [
        pytest.param({"room": 50}, 50, 20, marks=SLOW, id="a fixed capacity"),
        pytest.param({}, AT_MOST, 60, marks=PROOF, id="room for all"),
        pytest.param({"room": 50, "jitter": 0.1}, 50, 60, marks=PROOF, id="a little jitter"),
        pytest.param({"room": 50, "jitter": 0.5}, 60, 20, marks=PROOF, id="much jitter"),
        pytest.param({"slows": 1.0}, 4, 60, marks=PROOF, id="each call slows the others"),
        pytest.param(
            {"doubles": 20.0}, 29, 60, marks=PROOF, id="latency doubles with every twenty calls"
        ),
        pytest.param(
            {"refuses_over": 70}, 70, 60, marks=PROOF, id="refuses over a number in flight"
        ),
        pytest.param({"drops_over": 70}, 70, 60, marks=PROOF, id="drops over a number in flight"),
        pytest.param({"refuses_rate": 500.0}, 50, 60, marks=PROOF, id="refuses over a rate"),
        pytest.param(
            {"room": lambda now: 80 if now < 30 else 30}, 80, 60, marks=PROOF, id="capacity falls"
        ),
        pytest.param(
            {"room": lambda now: 30 + min(50, now)}, 80, 60, marks=PROOF, id="capacity grows"
        ),
        pytest.param(
            {"room": lambda now: 20 if now % 30 > 20 else 50},
            50,
            60,
            marks=PROOF,
            id="less for a third of the time",
        ),
        pytest.param(
            {"seconds": lambda now: 0.1 if now < 30 else 0.2},
            AT_MOST,
            60,
            marks=PROOF,
            id="all answers become slower",
        ),
        pytest.param(
            {"room": 50, "fails": 0.02}, 50, 20, marks=PROOF, id="a share fails by chance"
        ),
        pytest.param({"room": 50, "seconds": 1.0}, 50, 300, marks=PROOF, id="slow answers"),
        pytest.param({"room": 20, "seconds": 0.02}, 20, 30, marks=PROOF, id="fast answers"),
    ],
)
def test_after_ten_round_trips_the_adaptive_limit_answers_as_many_calls_as_the_best_fixed_limit(
    facts, best, seconds
):
    settle = 10 * at(facts.get("seconds", 0.1), 0)
    fixed, _ = run_virtual(
        lambda: calling(Played(**facts), seconds, settle, at_most=best, at_least=None)
    )
    found, service = run_virtual(lambda: calling(Played(**facts), seconds, settle))
    assert found >= 0.93 * fixed
    assert service.refused <= 0.01 * service.asked
    assert service.failed <= (0.01 + 1.2 * service.fails) * service.asked


def test_a_limit_that_is_not_used_does_not_grow():
    limit = AdaptiveLimit(4, 100)
    for step in range(100):
        limit.take(Seen(answered=1, seconds=0.1), step * 0.1)
    assert limit.limit == 4


@pytest.mark.parametrize(("held", "adapted"), [(4, True), (3, False)])
def test_a_run_whose_share_is_below_the_adaptive_limit_is_not_reported_as_limited_by_it(
    held, adapted
):
    limits = ServiceLimits("geo", {CALLS: Limit(8)}, 10.0, at_least=4)
    keeper = LeaseKeeper(limits, "a", "a run", MemoryStore(random.Random(1)), lambda: 0.0)
    keeper.holder.take(Answer({CALLS: Share(held, held)}, 100.0), asked_at=0.0)
    assert keeper.heartbeat("0", {CALLS: Claim(Limit(8), 0, 8)}, Seen()).adapted == adapted


def test_an_outage_does_not_change_the_adaptive_limit():
    limit = AdaptiveLimit(4, 100)
    for step in range(20):
        limit.take(Seen(answered=100, seconds=10.0), step * 0.1)
    found = limit.limit
    for step in range(20, 100):
        limit.take(Seen(failed=100, lost=100.0), step * 0.1)
    assert limit.limit >= found / 2


@pytest.mark.parametrize(
    ("declare", "sentence"),
    [
        (
            lambda: Adaptive(at_least=0),
            "adaptive: at_least is 0; it must be a whole number, at least 1",
        ),
        (
            lambda: Service(
                name="s", url="http://a", max_concurrency=3, adaptive=Adaptive(at_least=4)
            ),
            "service s: adaptive: at_least is 4; it must be at most max_concurrency, 3.",
        ),
    ],
)
def test_an_adaptive_limit_without_room_is_refused(declare, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        declare()


def test_an_adaptive_limit_needs_calls_that_end_and_changes_no_fingerprint():
    def geo(**options):
        service = Service(name="geo", url="http://127.0.0.1:1", max_concurrency=8, **options)
        return HttpLookup(
            name="x",
            service=service,
            request="GET /{k}",
            keys={"k": "k"},
            returns="x INT",
            timeout=1.0,
        )

    assert fingerprint(geo(adaptive=Adaptive())) == fingerprint(geo())
    assert leased_limits([geo()]) == ()
    (limits,) = leased_limits([geo(adaptive=Adaptive())])
    assert (limits.limits, limits.at_least) == ({CALLS: Limit(8)}, 4)
    endless = replace(geo(adaptive=Adaptive()), timeout=None)
    with pytest.raises(
        DeclarationError, match="and with adaptive no call may outlive its run's lease"
    ):
        leased_limits([endless])
