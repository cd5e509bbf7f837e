"""A task's part of its run's lease of a service: calls in flight and rates (jobs/limits).

Every call passes here. None starts beyond the task's part, none that could outlive the lease, and
none during throttling. Meanwhile the service's gate is closed, so that no record's clock runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

from asyncio_core import Gate
from jobs.clients.client import CallFailed, NotSent, Throttled
from jobs.clients.request_counter import IN_CALL
from jobs.limits.lease_book import CLOSED, PROBE, Answer
from jobs.limits.lease_holder import LeaseHolder
from jobs.limits.limits_plan import CALLS, ServiceLimits
from jobs.task.lease.call_budget import UsedUp
from jobs.task.lease.held_gate import HeldGate
from jobs.task.lease.leased_call import LeasedCall
from jobs.task.lease.observed_load import ObservedLoad
from jobs.task.lease.probe import Probe, ProbeState
from jobs.task.lease.waiting_line import WaitingLine
from jobs.task.lease.window_limits import SpentBudgets, WindowLimits

T = TypeVar("T")
R = TypeVar("R")

WAKE_EVERY = 0.02  # s, at least, between looks at whether a window has room again
# s until a task asks again after an answer with too little, while the driver asks the store for
# what is free; the last pause repeats
ASK_AGAIN = (0.01, 0.03, 0.1)
UNLIMITED = 1 << 30  # calls in flight
# s for which a call may exceed its longest time, so that the time limit of its row or request,
# which is as long, ends it first
AFTER_ROW = 0.25


class ServiceLease:
    """A lease, bound to the event loop of a task.

    Args:
        limits: The declared limits of the service.
        gate: The gate of the service in this task.
        ask_soon: Requests a share from the driver before the next regular heartbeat.

    Attributes:
        service: The service's identity.
        loop: The task's loop.
        clock: The loop's time.
        observed: The ends of calls since the last report; None if no limit adapts to them.
    """

    def __init__(self, limits: ServiceLimits, gate: Gate, ask_soon: Callable[[], None]) -> None:
        self.service = limits.service
        self.loop = asyncio.get_running_loop()
        # the base class's time() is this function in another frame, and every call reads it
        self.clock = (
            monotonic if type(self.loop).time is asyncio.BaseEventLoop.time else self.loop.time
        )
        self._longest_call = limits.longest_call
        self._counts_calls = CALLS in limits.limits  # otherwise only rates are leased
        self._holder = LeaseHolder(limits.limits)
        self._windows = WindowLimits(limits, self._holder)
        self._budgets = SpentBudgets(limits)
        self.observed = None if limits.at_least is None else ObservedLoad()
        self._gate = HeldGate(gate, self.clock)
        self._ask_soon = ask_soon
        self._calls: dict[LeasedCall, None] = {}  # running, in the order of their beginnings
        self._ends: asyncio.TimerHandle | None = None  # calls that take too long
        self._line = WaitingLine(self.loop)
        self._wakes: asyncio.TimerHandle | None = None  # the line, when a window has room again
        self._unserved = 0  # answers without enough for the line, in a row
        self._probe = Probe()

    @property
    def running(self) -> int:
        """The calls in flight."""
        return len(self._calls)

    @property
    def shared_s(self) -> float:
        """The seconds for which the gate was closed only because other runs held the limits."""
        return self._gate.shared_s

    @property
    def calls(self) -> int:
        """The allowed calls in flight now."""
        return self._holder.may_use(CALLS, self.clock()) if self._counts_calls else UNLIMITED

    # -- calls -------------------------------------------------------------------------------------

    async def within(self, send: Callable[[T], Awaitable[R]], keys: T) -> R:
        """Send a request, or call a key, once the lease grants it. A cancel ends the call.

        Raises:
            CallFailed: The call had no answer when the lease ended it.
        """
        if not self.may_start():
            await self.turn()
        call = self._begin()
        try:
            answer = await send(keys)
        except BaseException as error:
            answered = isinstance(error, CallFailed) and not error.passing
            call.is_counted = call.is_counted and not isinstance(error, NotSent)
            self._end(call, answered=answered, known=type(error) is Throttled)
            if call.is_late and call.uncancel():
                raise
            if isinstance(error, TimeoutError) or (
                call.is_late and isinstance(error, asyncio.CancelledError)
            ):
                raise CallFailed(
                    f"no answer within {call.until - call.began:g} s", passing=True
                ) from error
            raise
        self._end(call, answered=True, known=True)
        if call.is_late:
            call.uncancel()
        return answer

    async def turn(self) -> None:
        """Wait until another call may start. A caller that is cancelled loses its turn.

        Raises:
            UsedUp: A budget is used up.
        """
        while not self.may_start():
            if self._budgets.used_up:
                raise UsedUp(self._budgets.used_up)
            turn = self._line.join()
            self._hold_back()
            self._ask_soon()
            try:
                await turn
            except asyncio.CancelledError:
                self._line.leave(turn)
                self._wake()  # this call may have blocked the next
                raise

    def _begin(self) -> LeasedCall:
        """Register a call of the current task, which begins."""
        now = self.clock()
        until = min(now + self._longest_call + AFTER_ROW, self._holder.until)
        call = LeasedCall(
            self.loop, self._windows.uses.values(), self.clock, began=now, until=until
        )
        if self._holder.gate == PROBE:
            call.probes = True
            self._probe.begin()
        self._calls[call] = None
        if self._ends is None:
            self._ends = self.loop.call_at(until, self._end_late_calls)
        IN_CALL.set(call)
        return call

    def _end_late_calls(self) -> None:
        """End calls that take too long, with a timer for all: calls are in order of their ends."""
        self._ends, now = None, self.clock()
        for call in [*self._calls]:
            if call.until > now:
                self._ends = self.loop.call_at(call.until, self._end_late_calls)
                return
            call.expire()

    def _end(self, call: LeasedCall, *, answered: bool, known: bool) -> None:
        """Unregister a call that has ended, which may have been answered, and have reported all
        that it used.
        """
        del self._calls[call]
        IN_CALL.set(None)  # the next calls of this worker may belong to no lease
        call.end(known=known)
        if self.observed is not None and call.is_counted:
            now = self.clock()
            self.observed.note(now - call.began, answered=answered, known=known)
            if self.observed.tells_enough(now, self.calls):
                self._ask_soon()
        if call.probes:
            self._probe.end(self.clock(), answered=answered)
            if self._holder.gate == PROBE:
                self._holder.gate = CLOSED  # until the driver knows of the end and answers
            self._ask_soon()
        if self._line.turns:
            self._wake()
        if self._wakes is not None:
            self._wake_later()  # its use may end sooner than was known

    def overtaken(self, task: asyncio.Task[Any]) -> None:
        """Do not count how this task's call ends, as another call for its key was quicker."""
        for call in self._calls:
            call.is_counted = call.is_counted and call.task is not task

    def may_start(self) -> bool:
        """Return whether a call may start now."""
        now, holder = self.clock(), self._holder
        if (
            now + self._longest_call > holder.until
            or holder.gate == CLOSED
            or now < self._gate.others_close_until
        ):
            return False
        if holder.gate == PROBE and self._probe.state is ProbeState.RUNNING:
            return False
        if self._counts_calls and len(self._calls) >= holder.may_use(CALLS, now):
            return False
        return not self._windows.uses or self._windows.have_room(now)

    def _hold_back(self) -> None:
        """Stop the records' clocks, unless the wait is only for calls of this task."""
        now = self.clock()
        rates_wait = not self._windows.have_room(now)
        ends = now + self._longest_call > self._holder.until
        probes = self._probe.state is ProbeState.RUNNING
        paused = (
            ends or probes or self._holder.gate == CLOSED or now < self._gate.others_close_until
        )
        if paused or not self.running or rates_wait:
            self._gate.close(for_shared=not paused and not self._windows.lack_rate(now))
        if rates_wait:
            self._wake_later()

    def _wake_later(self) -> None:
        """Look again when a part of a window becomes free."""
        free_at = self._windows.next_free()
        if free_at is None:
            return
        at = max(free_at, self.clock() + WAKE_EVERY)
        if self._wakes is not None:
            if self._wakes.when() <= at:
                return
            self._wakes.cancel()
        self._wakes = self.loop.call_at(at, self._look_again)

    def _look_again(self) -> None:
        self._wakes = None
        if not self._line.turns:
            return
        if self.may_start():
            self._open()
        else:
            self._hold_back()

    def _open(self) -> None:
        """Let calls start and the records' clocks run."""
        self._gate.open()
        self._wake()

    def others_close(self, seconds: float) -> None:
        """Let no waiting call start for this long, as others closed the gate."""
        self._gate.others_close(seconds)
        self.loop.call_at(self._gate.others_close_until, self._look_again)

    def _wake(self) -> None:
        """Wake as many waiting calls as may start now."""
        if self._line.turns and self.may_start():
            room = min(self.calls - self.running, self._windows.room(self.clock()))
            self._line.wake(max(1, int(room)))

    # -- heartbeats --------------------------------------------------------------------------------

    def claims(self, wants: int) -> dict[str, Any]:
        """Return the claims for the driver; `wants` is the number of possible calls in flight."""
        now = self.clock()
        found = self._holder.ask(
            {CALLS: self.running} | self._windows.in_use(now),
            {CALLS: wants} | self._windows.wants(now, wants),
        )
        message = {
            "claims": {name: [claim.keeps, claim.wants] for name, claim in found.items()},
            "probed": self._probe.report(),
        }
        if self.observed is not None:
            message["seen"] = self.observed.report(now, waits=wants > self.calls)
        return message

    def take(self, answer: Answer, *, asked_at: float) -> None:
        """Use the driver's answer; `asked_at` is this task's clock before it asked."""
        self._holder.take(answer, asked_at=asked_at)
        if answer.gate == PROBE and self._probe.ended_since(asked_at):
            self._holder.gate = CLOSED
        if self.observed is not None:
            self.observed.is_adapted = answer.adapted
        self._note_used_up()
        if self.may_start():
            self._unserved = 0
            self._open()
        elif self._line.turns:
            self._hold_back()
            if any(share.free and share.has == share.target for share in answer.shares.values()):
                self.loop.call_later(
                    ASK_AGAIN[min(self._unserved, len(ASK_AGAIN) - 1)], self._ask_if_waiting
                )
                self._unserved += 1

    def _ask_if_waiting(self) -> None:
        if self._line.turns:
            self._ask_soon()

    def _note_used_up(self) -> None:
        """Note whether a budget is used up; then each waiting call learns of it."""
        now = self.clock()
        # while a pause lasts, others keep what they reserved
        is_paused = self._holder.gate == CLOSED or now < self._gate.others_close_until
        may_be = self._line.turns and not self.running and not is_paused
        self._budgets.note(self._windows.full(now) if may_be else (), now)
        if self._budgets.used_up:
            self._line.wake(len(self._line.turns))
