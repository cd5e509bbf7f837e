"""A task's part of its run's lease of a service: calls in flight and rates (jobs/limits).

Every call passes here. None starts beyond the task's part, none that could outlive the lease, and
none during throttling. Meanwhile the service's gate is closed, so that no record's clock runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from jobs.clients.request_counter import IN_CALL
from jobs.limits.adaptive_limit import SOONEST, Seen
from jobs.limits.lease_book import CLOSED, OPEN, PROBE, Answer
from jobs.limits.lease_holder import LeaseHolder
from jobs.limits.limits_plan import CALLS
from jobs.limits.window_use import CallUse, WindowUse
from jobs.task.lease.call_budget import UsedUp
from jobs.task.lease.counted_calls import HIGH, CountedCalls
from jobs.task.lease.leased_call import LeasedCall

if TYPE_CHECKING:
    from asyncio_core import Gate
    from jobs.limits.limits_plan import ServiceLimits

CLOSED_FOR = 0.6  # s; renewed with each heartbeat, four times a second, while no call may start
# a task asks at once for 1/FIRST of a limit in a window, as growing to a high limit takes time
FIRST = 1000
WAKE_EVERY = 0.02  # s, at least, between looks at whether a window has room again
# s after an answer without enough, if more is free: the driver asks the store. The last stays
ASK_AGAIN = (0.01, 0.03, 0.1)
GIVEN_BACK_WITHIN = 2.5  # s for others to give back money that they reserved and do not use
UNLIMITED = 1 << 30  # calls in flight


class ServiceLease:
    """A lease, bound to the event loop of a task.

    Args:
        limits: The declared limits of the service.
        gate: The gate of the service in this task.
        ask_soon: Requests a share from the driver before the next regular heartbeat.

    Attributes:
        loop: The task's loop.
        clock: The loop's time.
        adapted_s: Seconds for which calls waited because the service bears no more.
    """

    def __init__(self, limits: ServiceLimits, gate: Gate, ask_soon: Callable[[], None]) -> None:
        self.service = limits.service
        self._calls: dict[LeasedCall, None] = {}  # running, in the order of their beginnings
        self._ends: asyncio.TimerHandle | None = None  # calls that take too long
        self._longest_call = limits.longest_call
        self._holder = LeaseHolder(limits.limits)
        self._windows = {
            name: WindowUse(limits.limits[name].window, one.unit, one.reserve_per_call, one.each)
            for name, one in limits.reserved.items()
        }
        self._budgets = {name: one.budget for name, one in limits.reserved.items() if one.budget}
        self._used_up_since: float | None = None  # a budget is, and no call of this task runs
        self._used_up = ""  # the budget that is
        self._seen = None if limits.at_least is None else Seen()  # since the last heartbeat
        self._reported_at = -math.inf
        self._adapted = False  # the limit on calls is what the service bears
        self.adapted_s = 0.0
        self._counts_calls = CALLS in limits.limits  # otherwise only rates are leased
        self._wakes: asyncio.TimerHandle | None = None  # when a window has room again
        self._gate = gate
        self._ask_soon = ask_soon
        self.loop = asyncio.get_running_loop()
        # the base class's time() is this function in another frame, and every call reads it
        self.clock = (
            monotonic if type(self.loop).time is asyncio.BaseEventLoop.time else self.loop.time
        )
        self._waiting: dict[asyncio.Future[None], asyncio.Task[Any] | None] = {}  # and who waits
        self._counted: CountedCalls | None = None
        self._unserved = 0  # answers without enough in a row
        self._closed = False  # the gate, by this lease
        self._others_close_until = 0.0  # the gate, by the loop's time
        self._probing = False  # a probe call is running
        self._probe_ended = -math.inf  # by the loop's time; older answers are out of date
        self.probed = False  # the probe was answered, and the driver does not know yet

    @property
    def running(self) -> int:
        """The calls in flight."""
        return (
            len(self._calls)
            if self._counted is None
            else self._counted.running() - len(self._waiting)
        )

    @property
    def calls(self) -> int:
        """The allowed calls in flight now."""
        return self._holder.may_use(CALLS, self.clock()) if self._counts_calls else UNLIMITED

    # -- calls that the operator counts ------------------------------------------------------------

    @property
    def counts_calls(self) -> bool:
        """Whether only calls, of a request each and with high limits, are limited and observed."""
        limits = [(use, self._holder.limits[name].amount) for name, use in self._windows.items()]
        return self._seen is None and all(
            use.is_one_request and amount >= HIGH for use, amount in limits
        )

    def count_calls(self) -> CountedCalls:
        """Have an operator count the calls; only calls that may not start freely ask the lease."""
        self._counted = CountedCalls(
            self._windows, self._holder, self._ask_soon, lambda task: task in self._waiting.values()
        )
        return self._counted

    def _let_start(self) -> None:
        """Set how long the operator's calls may start freely."""
        if self._counted is not None:
            may_start = self._holder.gate == OPEN and self.calls > 0
            self._counted.last_start = (
                self._holder.until - self._longest_call if may_start else -math.inf
            )

    # -- calls -------------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Wait until another call may start.

        Raises:
            UsedUp: A budget is used up.
        """
        while not self.may_start(asking=1):
            if self._used_up:
                raise UsedUp(self._used_up)
            turn = self.loop.create_future()
            self._waiting[turn] = asyncio.current_task(self.loop)
            self._hold_back()
            self._ask_soon()
            try:
                await turn
            except asyncio.CancelledError:
                self._waiting.pop(turn, None)
                self._wake()  # this call may have blocked the next
                raise

    def begin(self, call: LeasedCall) -> None:
        """Register a call that begins."""
        now = self.clock()
        call.began, call.until = now, now + self._longest_call
        if self._holder.gate == PROBE:
            call.probes = self._probing = True
        self._calls[call] = None
        if self._ends is None:
            self._ends = self.loop.call_at(call.until, self._end_late_calls)
        if self._windows:
            call.use = CallUse(self._windows.values(), self.clock, call.until)
        IN_CALL.set(call.use or call)

    def _end_late_calls(self) -> None:
        """End calls that take too long, with a timer for all: calls are in order of their ends."""
        self._ends, now = None, self.clock()
        for call in [*self._calls]:
            if call.until > now:
                self._ends = self.loop.call_at(call.until, self._end_late_calls)
                return
            call.expire()

    def has_ended(self, call: LeasedCall) -> bool:
        """Whether the call has taken too long."""
        return self.clock() >= call.until

    def end(self, call: LeasedCall, *, answered: bool, known: bool) -> None:
        """Unregister a call that has ended.

        Args:
            call: The call.
            answered: Whether the service answered.
            known: Whether the call has reported all that it used.
        """
        del self._calls[call]
        IN_CALL.set(None)  # its worker goes on, with calls that may not ask
        if call.use is not None:
            call.use.end(known=known)
        if self._seen is not None and call.tells:
            self._note(call.began, answered=answered, known=known)
        if call.probes:
            self._probing, self._probe_ended = False, self.clock()
            self.probed = self.probed or answered
            if self._holder.gate == PROBE:
                self._holder.gate = CLOSED  # until the driver knows of the end and answers
            self._ask_soon()
        if self._waiting:
            self._wake()
        if self._wakes is not None:
            self._wake_later()  # its use may end sooner than was known

    def overtaken(self, task: asyncio.Task[Any]) -> None:
        """Do not count how this task's call ends, as another call for its key was quicker."""
        for call in self._calls:
            call.tells = call.tells and call.task is not task

    def _note(self, began: float, *, answered: bool, known: bool) -> None:
        """Note what the end of a call tells of the service; report it after each round of calls."""
        now, seen = self.clock(), self._seen
        assert seen is not None
        if answered:
            seen.answered += 1
            seen.seconds += now - began
        elif known:
            seen.refused += 1
        else:
            seen.failed += 1
        if not answered:
            seen.lost += now - began
        if now >= self._reported_at + SOONEST and (
            seen.refused or seen.answered + seen.failed >= self.calls
        ):
            self._ask_soon()

    def may_start(self, *, asking: int = 0) -> bool:
        """Return whether a call may start now.

        Args:
            asking: The number of the operator's running calls that only ask to start.
        """
        now, holder = self.clock(), self._holder
        if (
            now + self._longest_call > holder.until
            or holder.gate == CLOSED
            or now < self._others_close_until
        ):
            return False
        if holder.gate == PROBE and self._probing:
            return False
        running = len(self._calls) if self._counted is None else self.running - asking
        if self._counts_calls and running >= holder.may_use(CALLS, now):
            return False
        return not self._windows or self._may_reserve(now)

    def _may_reserve(self, now: float) -> bool:
        """Return whether another call fits into every limit with a window."""
        for name, use in self._windows.items():  # written out, because it runs for each call
            if use.in_use(now) + use.reserve_per_call > self._holder.may_use(name, now):
                return False
        return True

    def _hold_back(self) -> None:
        """Stop the records' clocks, unless the wait is only for calls of this task."""
        now = self.clock()
        rates_wait = self._windows and not self._may_reserve(now)
        ends = now + self._longest_call > self._holder.until
        if ends or self._holder.gate == CLOSED or self._probing or not self.running or rates_wait:
            self._closed = True
            self._gate.close(CLOSED_FOR)
        if rates_wait:
            self._wake_later()

    def _wake_later(self) -> None:
        """Look again when a part of a window becomes free."""
        free_at = [at for use in self._windows.values() if (at := use.next_free()) is not None]
        if not free_at:
            return
        at = max(min(free_at), self.clock() + WAKE_EVERY)
        if self._wakes is not None:
            if self._wakes.when() <= at:
                return
            self._wakes.cancel()
        self._wakes = self.loop.call_at(at, self._look_again)

    def _look_again(self) -> None:
        self._wakes = None
        if not self._waiting:
            return
        if self.may_start():
            self._open()
        else:
            self._hold_back()

    def _open(self) -> None:
        """Let calls start and the records' clocks run."""
        if self._closed and self.clock() >= self._others_close_until:
            self._gate.open()
        self._closed = False
        self._wake()

    def others_close(self, seconds: float) -> None:
        """Let no waiting call start for this long, as others closed the gate."""
        self._others_close_until = max(self._others_close_until, self.clock() + seconds)
        self.loop.call_at(self._others_close_until, self._look_again)

    def _wake(self) -> None:
        """Wake waiting calls; each checks again whether it may start."""
        free = self._startable() if self._waiting else 0
        while free and self._waiting:
            if self._let_first_go():
                free -= 1

    def _let_first_go(self) -> bool:
        turn = next(iter(self._waiting))
        del self._waiting[turn]
        if turn.done():  # cancelled
            return False
        turn.set_result(None)
        return True

    def _startable(self) -> int:
        """Return how many calls may start now."""
        if not self.may_start():
            return 0
        now = self.clock()
        windows = [
            (self._holder.may_use(name, now) - use.in_use(now)) // max(1, use.reserve_per_call)
            for name, use in self._windows.items()
        ]
        return (
            max(1, min(self.calls - self.running, *windows))
            if windows
            else max(1, self.calls - self.running)
        )

    # -- heartbeats --------------------------------------------------------------------------------

    def claims(self, wants: int) -> dict[str, Any]:
        """Return the claims for the driver; `wants` is the number of possible calls in flight."""
        now = self.clock()
        if self._counted is not None:
            self._counted.settle(now)
        in_use = {CALLS: self.running} | {
            name: use.in_use(now) for name, use in self._windows.items()
        }
        first = {
            name: self._holder.limits[name].amount // FIRST
            for name in self._windows
            if name not in self._budgets
        }
        could_use = {CALLS: wants} | {
            name: use.wants(now, wants, at_least=first.get(name, 0))
            for name, use in self._windows.items()
        }
        found = self._holder.ask(in_use, could_use)
        self._let_start()
        probed, self.probed = self.probed, False
        message = {
            "claims": {name: [one.keeps, one.wants] for name, one in found.items()},
            "probed": probed,
        }
        if self._seen is not None:
            if self._adapted and wants > self.calls:
                self.adapted_s += now - self._reported_at
            message["seen"] = vars(self._seen)
            self._seen, self._reported_at = Seen(), now
        return message

    def take(self, answer: Answer, *, asked_at: float) -> None:
        """Use the driver's answer; `asked_at` is this task's clock before it asked."""
        self._holder.take(answer, asked_at=asked_at)
        if answer.gate == PROBE and asked_at <= self._probe_ended:
            self._holder.gate = CLOSED
        if self._counted is not None:
            self._let_start()
            self._counted.lasts_until(self._holder.until)
        self._adapted = answer.adapted
        self._note_used_up()
        if self.may_start():
            self._unserved = 0
            self._open()
        elif self._waiting:
            self._hold_back()
            if any(share.free and share.has == share.target for share in answer.shares.values()):
                self.loop.call_later(
                    ASK_AGAIN[min(self._unserved, len(ASK_AGAIN) - 1)], self._ask_if_waiting
                )
                self._unserved += 1

    def _ask_if_waiting(self) -> None:
        if self._waiting:
            self._ask_soon()

    def _note_used_up(self) -> None:
        """Note whether a budget is used up.

        It is if for a while it had no room for another call, and no run could give any back.
        """
        now, shares = self.clock(), self._holder.shares
        used_up = [
            budget
            for name, budget in self._budgets.items()
            if self._windows[name].in_use(now) + self._windows[name].reserve_per_call
            > shares[name].has + shares[name].free
        ]
        if not used_up or self.running or not self._waiting:
            self._used_up_since = None
        elif self._used_up_since is None:
            self._used_up_since = now
        elif now - self._used_up_since >= GIVEN_BACK_WITHIN:
            self._used_up = used_up[0]
            while self._waiting:
                self._let_first_go()
