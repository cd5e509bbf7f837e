"""A fleet of runs in virtual time, on the real code of the leases; calls, links and store are
played.
"""

import asyncio
import json
import random
from dataclasses import dataclass, field

from jobs.limits.lease_book import CLOSED, PROBE, LeaseBook, Limit
from jobs.limits.lease_holder import LeaseHolder
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import ServiceLimits
from jobs.limits.store import StoreLost

CALL_LIMIT = 2.0  # s, the longest call
BEAT = 1.0  # s, of a task


class MemoryStore:
    """One book, behind a network that takes its time, and a server that may be down."""

    def __init__(self, draw, *, as_json=False):
        self.draw, self.as_json = draw, as_json
        self.book = LeaseBook()
        self.steps = 0
        self.down = False
        self.loses = 0.0  # share of answers that do not arrive
        self._followers = []

    async def step(self, service, decide):
        await asyncio.sleep(self.draw.uniform(0.0002, 0.004))
        if self.down:
            raise StoreLost("down")
        if self.as_json:
            self.book = LeaseBook(json.loads(json.dumps(self.book.state())))
        self.steps += 1
        found = decide(self.book, 1e6 + asyncio.get_running_loop().time())
        await asyncio.sleep(self.draw.uniform(0.0002, 0.004))
        if self.down or self.draw.random() < self.loses:
            raise StoreLost("the answer is lost")
        return found

    async def tell(self, service):
        for follower in self._followers:
            asyncio.get_running_loop().call_later(0.001, follower)

    def follow(self, callback):
        self._followers.append(callback)


@dataclass
class Service:
    """Counts what is in flight, for itself."""

    draw: random.Random
    seconds: tuple = (0.05, 0.4)
    in_flight: int = 0
    peak: int = 0
    answered: dict = field(default_factory=dict)  # by run
    starts: list = field(default_factory=list)  # when each call did
    busy: float = 0.0  # call seconds

    async def call(self, run):
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        self.starts.append(asyncio.get_running_loop().time())
        seconds = self.draw.uniform(*self.seconds)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.in_flight -= 1
        self.busy += seconds
        self.answered[run] = self.answered.get(run, 0) + 1


class Task:
    """Calls as often as it may, and reports to its run once a second and whenever it is told to."""

    def __init__(self, number, run, service, wants):
        self.number, self.run, self.service, self.wants = str(number), run, service, wants
        self.holder = LeaseHolder({"calls": Limit(wants)})
        self.running = 0
        self.probing = False
        self._calls = set()  # the loop itself forgets a task that nobody else knows
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(service.draw.uniform(0, BEAT), self.tick)

    def tick(self):
        if self.run.alive:
            self.beat()
            self._loop.call_later(BEAT, self.tick)

    def beat(self):
        if not self.run.alive or self._loop.time() < self.run.frozen_until:
            return
        asked_at = self._loop.time()
        claims = self.holder.ask({"calls": self.running}, {"calls": self.wants})
        self.holder.take(self.run.keeper.heartbeat(self.number, claims), asked_at=asked_at)
        self.fill()

    def fill(self):
        now = self._loop.time()
        if (
            not self.run.alive
            or now < self.run.frozen_until
            or now > self.holder.until - CALL_LIMIT
        ):
            return
        may = self.holder.may_use("calls", now)
        if self.holder.gate == CLOSED:
            return
        if self.holder.gate == PROBE:
            may = 0 if self.probing else min(may, self.running + 1)
            self.probing = self.probing or may > self.running
        while self.running < may:
            self.running += 1
            call = self._loop.create_task(self.call())
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def call(self):
        probe = self.probing
        await self.service.call(self.run.name)
        self.running -= 1
        if not self.run.alive:
            return
        if probe and self.probing:
            self.probing = False
            self.run.keeper.probed(self.number)
        target = self.holder.shares["calls"].target
        if self.running >= target or self.running < min(target, self.holder.shares["calls"].has):
            self.fill()
        if self.running < self.holder.shares["calls"].has > target:
            self.beat()  # gives back

    def leave(self):
        self.run.keeper.leave(self.number)


class Way:
    """A run's own way to the store: nothing passes while the run is stopped."""

    def __init__(self, run, store):
        self.run, self.store = run, store

    async def step(self, service, decide):
        await self.unfrozen()
        try:
            return await self.store.step(service, decide)
        finally:
            await self.unfrozen()

    async def tell(self, service):
        await self.store.tell(service)

    async def unfrozen(self):
        now = asyncio.get_running_loop().time()
        if now < self.run.frozen_until:
            await asyncio.sleep(self.run.frozen_until - now)


class Run:
    def __init__(self, name, store, service, *, tasks, limit, wants):
        self.name, self.alive, self.frozen_until = name, True, 0.0
        declared = ServiceLimits("geo", {"calls": Limit(limit)}, CALL_LIMIT)
        self._loop = asyncio.get_running_loop()
        self.keeper = LeaseKeeper(declared, name, name, Way(self, store), self._loop.time)
        self.keeper.listeners.add(self.changed)
        self.tasks = [Task(number, self, service, wants) for number in range(tasks)]
        self._told = False
        self._keeping = self._loop.create_task(self.keeper.run())
        store.follow(self.keeper.hurry)

    def changed(self):
        if not self._told and self.alive:
            self._told = True
            self._loop.call_later(0.001, self.tell)

    def tell(self):
        self._told = False
        for task in self.tasks:
            task.beat()

    def kill(self):
        self.alive = False
        self._keeping.cancel()


async def fleet(
    *, runs, tasks, limit, seconds, draw, wants=8, store=None, meanwhile=None, settle=5.0
):
    """Let so many runs call for so many seconds. Returns the service, the store and the use since
    `settle`.
    """
    store = store or MemoryStore(draw)
    service = Service(draw)
    found = [
        Run(f"run-{number}", store, service, tasks=tasks, limit=limit, wants=wants)
        for number in range(runs)
    ]
    if meanwhile is not None:
        asyncio.get_running_loop().create_task(meanwhile(found, store, service))
    await asyncio.sleep(settle)
    busy, answered, store.steps = service.busy, dict(service.answered), 0
    await asyncio.sleep(seconds)
    use = (service.busy - busy) / seconds / limit
    each = [service.answered.get(run.name, 0) - answered.get(run.name, 0) for run in found]
    for run in found:
        run.kill()
    await asyncio.sleep(CALL_LIMIT)
    return (
        service,
        store,
        use,
        sum(each) ** 2 / max(1, len(each) * sum(count * count for count in each)),
    )
