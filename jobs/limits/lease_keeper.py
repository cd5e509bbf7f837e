"""The leases of a run at a service: renews them, and divides them among the run's tasks.

In the store's book, the run is a single owner, whatever its number of tasks. The run has another
book, whose owners are its tasks and which divides the run's part; without a store, it divides the
whole limit.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from jobs.limits.adaptive_limit import AdaptiveLimit, Seen
from jobs.limits.lease_book import CLOSED, NOTHING_KNOWN, OPEN, Answer, Claim, LeaseBook
from jobs.limits.lease_holder import NOTHING, LeaseHolder
from jobs.limits.limits_plan import CALLS, ServiceLimits
from jobs.limits.store import LimitStore, StoreLost
from jobs.wording import one_line

EVERY = 1.0  # s between heartbeats
EVERY_WAITING = 0.25  # s, while other runs still hold a part of this run's target
# s, the shortest time between heartbeats, if something is to be returned or requested
SOONEST = 0.1
TOGETHER = 0.01  # s before a first heartbeat: it asks for all tasks that begin together
SLACK = 10.0  # s after the last answered heartbeat in which calls may still start
LOG_WAIT_AFTER, LOG_WAIT_AGAIN = 10.0, 60.0  # s in which other runs hold all of a limit
TTL_OF_TASKS = 30.0  # s, time to live of a task's part without a store


@dataclass
class LeaseKeeper:
    """The keeper of a service. `run` uses the store's loop; other threads call the rest."""

    declared: ServiceLimits
    owner: str  # unique among all runs
    name: str
    store: LimitStore | None
    clock: Callable[[], float]
    # called in any thread when tasks should send a heartbeat, because they would get other parts
    listeners: set[Callable[[], None]] = field(default_factory=set)
    lost_since: float | None = None
    lost_by: str = ""  # the error of the store
    waits: str = ""  # what it waits for that other runs hold, in words, or empty
    holder: LeaseHolder = field(init=False)
    tasks: LeaseBook = field(init=False)

    def __post_init__(self) -> None:
        self.holder, self.tasks = LeaseHolder(self.declared.limits), LeaseBook()
        self._adaptive: AdaptiveLimit | None = None
        self._jobs = 0  # the number of jobs at work, whose limits apply
        self._apply(self.declared)
        self._lock = threading.Lock()
        # end and reason of a pause that the store does not know yet
        self._closed: tuple[float, str] | None = None
        self._opened = False  # a task's probe succeeded, which the store does not know yet
        self._asked: dict[str, int] = {}
        self._pause = EVERY  # s, the longest time to the next heartbeat
        self._waits_since: float | None = None  # for a first part, which other runs hold
        self._wait_logged_at = -math.inf
        self._soon: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def ttl(self) -> float:
        """The run's time to live in s: it outlasts calls that start within SLACK of a heartbeat."""
        return self.declared.longest_call + SLACK

    def declare(self, declared: ServiceLimits) -> None:
        """Add a job's limits until `release`: of jobs at once, the strictest limits apply.

        Of jobs that have ended, only what they still hold counts.
        """
        with self._lock:
            held = {
                name
                for name in self.declared.limits.keys() - declared.limits.keys()
                if self.tasks.held(name) or self.holder.shares.get(name, NOTHING).has
            }
            earlier = self.declared if self._jobs else self.declared.only(held)
            self._jobs += 1
            self._apply(earlier.strictest(declared))

    def release(self) -> None:
        """Note the end of a job: the next job replaces its limits if no other is at work."""
        with self._lock:
            self._jobs -= 1

    @property
    def has_jobs(self) -> bool:
        return self._jobs > 0

    def _apply(self, declared: ServiceLimits) -> None:
        at_least, is_same = declared.at_least, declared.at_least == self.declared.at_least
        self.declared, self.holder.limits = declared, declared.limits
        if at_least is None:
            self._adaptive = None
        elif self._adaptive is None or not is_same:
            self._adaptive = AdaptiveLimit(at_least, declared.limits[CALLS].amount)
        else:
            self._adaptive.at_most = declared.limits[CALLS].amount
        self._divide(self.clock())

    # -- the tasks' side ---------------------------------------------------------------------------

    def heartbeat(self, task: str, claims: Mapping[str, Claim], seen: Seen | None = None) -> Answer:
        """Record a task's claims and its calls' results. Returns its parts."""
        with self._lock:
            now = self.clock()
            if self._adaptive is not None and seen is not None:
                self._adaptive.take(seen, now)
            self._divide(now)
            # without a lease the run has nothing, but tells the store what the tasks want
            has_lease = self.store is not None and now < self.holder.until
            ttl = self.holder.until - now if has_lease else max(TTL_OF_TASKS, self.ttl)
            answer = self.tasks.heartbeat(task, claims, now=now, ttl=ttl)
            if self.store is not None:
                known = self.holder.shares if has_lease else {}
                free = {name: known.get(name, NOTHING).free for name in claims}
                shares = {
                    name: replace(given, free=given.free + free[name])
                    for name, given in answer.shares.items()
                }
                answer = replace(answer, shares=shares)
            if self._adaptive is not None:
                found, declared = self._adaptive.limit, self.declared.limits[CALLS].amount
                answer = replace(
                    answer, adapted=found < declared and found <= self._may_use(CALLS, now)
                )
            urgent = self._is_urgent()
        if urgent:
            self.hurry()
        return answer

    def leave(self, task: str) -> None:
        """Remove a task that has ended; the other tasks may use its parts."""
        with self._lock:
            self.tasks.leave(task, now=self.clock())
            urgent = self._is_urgent()
        self._inform()
        if urgent:
            self.hurry()

    def close_gate(self, seconds: float, reason: str) -> None:
        """Pause all calls, because a task was throttled or reported the service down."""
        with self._lock:
            now = self.clock()
            # the coordinator pauses the tasks of one run at once; one of them probes
            if self.store is None:
                self.tasks.close_gate(seconds, reason, now=now)
                return
            # the store decides when it ends and who probes
            self.tasks.close_gate(math.inf, reason, now=now)
            if self._closed is None or now + seconds > self._closed[0]:
                self._closed = now + seconds, reason
            self._opened = False
        self._inform()
        self.hurry()

    def why_no_call(self) -> str:
        """Return why no call may start, in words; empty if calls may start."""
        with self._lock:
            pause = self.tasks.pause(self.clock())
        return self.waits or (f"{self.declared.service} is paused: {pause[1]}" if pause else "")

    def probed(self, task: str) -> None:
        """Open the gate if this task was the prober: the service answered its probe."""
        with self._lock:
            opened = self.tasks.open_gate(task)
            self._opened |= opened
        if opened:
            self._inform()
            self.hurry()

    def _inform(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    def _is_urgent(self) -> bool:
        """Return whether there is something to return, or more to request."""
        for name, limit in self.declared.limits.items():
            share = self.holder.shares.get(name, NOTHING)
            wanted = self._wanted(name)
            # a window's want changes all the time
            enough = share.target if limit.window else min(share.target, wanted)
            gives = share.has > max(enough, self.tasks.held(name))
            lacks = share.has < wanted and min(limit.amount, wanted) > min(
                limit.amount, self._asked.get(name, 0)
            )
            if gives or lacks:
                return True
        return False

    # -- the store's side --------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the lease until cancelled; pause while there is nothing to do."""
        assert self.store is not None
        self._loop, self._soon = asyncio.get_running_loop(), asyncio.Event()
        try:
            # the first task that wants a part gets it without the pause after a heartbeat
            if self._is_idle():
                await self._soon.wait()
                await asyncio.sleep(TOGETHER)
            while True:
                self._soon.clear()
                await self.beat()
                await asyncio.sleep(SOONEST)
                at_most = None if self._is_idle() else max(0.0, min(EVERY, self._pause) - SOONEST)
                with suppress(TimeoutError):
                    # wait_for of Python 3.11 can lose a cancellation
                    async with asyncio.timeout(at_most):
                        await self._soon.wait()
        finally:
            self._soon = None

    def _is_idle(self) -> bool:
        with self._lock:
            nothing = not any(
                self.tasks.held(name) or self.tasks.wanted(name) for name in self.declared.limits
            )
            known = self._closed is None and not self._opened and self.lost_since is None
            return nothing and known and not any(share.has for share in self.holder.shares.values())

    async def beat(self) -> None:
        """Send a heartbeat. If the store is unreachable, the lease stays until it expires."""
        assert self.store is not None
        with self._lock:
            asked_at = self.clock()
            self.tasks.expire(asked_at)
            in_use = {name: self.tasks.held(name) for name in self.declared.limits}
            self._asked = {name: self._wanted(name) for name in self.declared.limits}
            asked = self.holder.ask(in_use, self._asked)
            claims = {
                name: replace(claim, least=self.declared.least(name))
                for name, claim in asked.items()
            }
            self._divide(asked_at)
            closed, opened = self._closed, self._opened

        def decide(book: LeaseBook, now: float) -> Answer:
            if closed is not None and closed[0] > asked_at:
                book.close_gate(closed[0] - asked_at, closed[1], now=now)
            elif opened:
                book.open_gate(self.owner)
            return book.heartbeat(self.owner, claims, now=now, ttl=self.ttl, name=self.name)

        try:
            answer = await self.store.step(self.declared.service, decide)
            if closed is not None or opened:
                await self.store.tell(self.declared.service)
        except Exception as error:  # noqa: BLE001  # also of a driver: if a keeper ends, its run waits for ever
            self._lose(error, asked_at)
            return
        self.lost_since = None
        before = self._usable
        self._take(answer, asked_at, closed, opened)
        if self._usable != before:
            self._inform()

    @property
    def _usable(self) -> tuple[int, bool | None]:
        """The calls that the tasks may have in flight, and the pause: None without one, True while
        it lasts, False while it waits for a probe.

        Windows are left out, because tasks that wait for one ask again by themselves.
        """
        with self._lock:
            now = self.clock()
            pause = self.tasks.pause(now)
            calls = self._may_use(CALLS, now) if CALLS in self.declared.limits else 0
            return calls, None if pause is None else pause[0] > 0

    def _lose(self, error: Exception, at: float) -> None:
        """Note that the store failed."""
        if not isinstance(error, StoreLost):
            logging.getLogger("tidegate").error("the store of the limits fails", exc_info=error)
        self.lost_since = at if self.lost_since is None else self.lost_since
        self.lost_by = one_line(str(error)) or type(error).__name__

    async def end(self, spent: Mapping[str, int] = NOTHING_KNOWN) -> bool:
        """Return the run's parts, except what calls may still use until the lease ends.

        Args:
            spent: By budget, what the run spent, if known; otherwise all that it may have spent
                counts.

        Returns:
            Whether everything is returned.
        """
        assert self.store is not None
        await self.beat()  # reserved but unused amounts are not spent
        with self._lock:
            is_over = self.lost_since is None and not self.tasks.held(CALLS)
        if is_over:
            try:
                await self.store.step(
                    self.declared.service,
                    lambda book, now: book.leave(self.owner, now=now, spent=spent),
                )
            except Exception as error:  # noqa: BLE001  # as in `beat`; then its lease expires
                self._lose(error, self.clock())
        return is_over and self.lost_since is None

    def _note_wait(self, answer: Answer, now: float) -> None:
        """Note why no call may start if other runs hold all calls; log it after a while.

        Without a message, a wait for a killed run looks like a hang.
        """
        share = answer.shares.get(CALLS)
        if share is None or share.has or not self._asked.get(CALLS) or answer.gate == CLOSED:
            self._waits_since, self.waits = None, ""
            return
        self._waits_since = now if self._waits_since is None else self._waits_since
        waited, amount = now - self._waits_since, self.declared.limits[CALLS].amount
        self.waits = (
            f"waits for other runs, which hold all {amount:,} calls in flight of "
            f"{self.declared.service}"
        )
        if answer.silent_for:
            self.waits = f"waits for calls of a killed run to end, {math.ceil(answer.silent_for)} s"
        if waited >= LOG_WAIT_AFTER and now - self._wait_logged_at >= LOG_WAIT_AGAIN:
            self._wait_logged_at = now
            logging.getLogger("tidegate").warning(
                "service %s: for %.0f s no call could start, because other runs hold all of its %d "
                "calls in flight. What a killed run held is free %.0f s after its end; `tidegate "
                "limits` lists the runs.",
                self.declared.service, waited, amount, self.ttl,
            )  # fmt: skip

    def _take(
        self,
        answer: Answer,
        asked_at: float,
        closed: tuple[float, str] | None,
        opened: bool,  # noqa: FBT001
    ) -> None:
        with self._lock:
            self.holder.take(answer, asked_at=asked_at)
            now = self.clock()
            self._divide(now)
            if self._closed == closed:
                self._closed = None
            if self._opened == opened:
                self._opened = False
            self._note_wait(answer, now)
            waits = any(share.has < share.target for share in answer.shares.values())
            self._pause = EVERY_WAITING if waits else EVERY
            if self._closed is not None or self._opened:  # newer than the answer
                return
            if answer.gate == OPEN:
                self.tasks.clear_pause()
            elif answer.gate == CLOSED:
                self.tasks.close_gate(math.inf, answer.reason, now=now)
                self._pause = min(self._pause, answer.closed_for)
            else:
                self.tasks.require_probe(now, answer.reason)

    def _divide(self, now: float) -> None:
        for name in self.declared.limits:
            self.tasks.amounts[name] = self._at_most(name, self._may_use(name, now))

    def _may_use(self, name: str, now: float) -> int:
        amount = self.declared.limits[name].amount
        return amount if self.store is None else min(amount, self.holder.may_use(name, now))

    def _wanted(self, name: str) -> int:
        return self._at_most(name, self.tasks.wanted(name))

    def _at_most(self, name: str, amount: int) -> int:
        """Return this amount, bounded by what the service bears."""
        return (
            amount if self._adaptive is None or name != CALLS else min(amount, self._adaptive.limit)
        )

    def hurry(self) -> None:
        """Send the next heartbeat at once. Any thread may call it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._set_soon)

    def _set_soon(self) -> None:
        if self._soon is not None:
            self._soon.set()
