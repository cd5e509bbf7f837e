"""A second call for a key whose first call takes long; the first answer counts.

A second call starts only where no row needs its slot: at the end of a task's rows, when a few slow
calls would be all that runs. While every slot has a row to serve, a second call would only delay
another row's first call.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal

from asyncio_core import AsyncWaitOperator, Gate
from jobs.clients.client import Ask, CallFailed, Throttled
from jobs.declare.lookup import Key
from jobs.task.lease.service_lease import ServiceLease

REMEMBERED, FEWEST = 200, 20  # answer times of a task, from which p95 is taken
EARLY = 1e-6  # s, by which a timer may fire early


class _FirstCall:
    """The first call of a key.

    Attributes:
        left_at: When it left, after its wait for the limits of its service.
    """

    left_at: float | None = None


_FIRST_CALL: ContextVar[_FirstCall] = ContextVar("first_call")


async def noted(ask: Ask, key: Key) -> Any:
    """Make a call, within the limits of its service; note when the first call of the key leaves."""
    if (first := _FIRST_CALL.get()).left_at is None:
        first.left_at = asyncio.get_running_loop().time()
    return await ask(key)


class Hedging:
    """A lookup's calls in a task.

    Args:
        ask: Makes a call; within the service's limits, by `noted`.
        after: Seconds without an answer until the second call, or "p95" of this task's latest
            answers.
        gate: While it is closed, no second call starts.
        lease: Grants second calls, and does not count how the slower call ends.
        on_second: Called when a second call begins.
        on_throttled: Called when the service throttles one of two calls, and the other goes on.
    """

    _operator: AsyncWaitOperator

    def __init__(
        self,
        ask: Ask,
        after: float | Literal["p95"],
        *,
        gate: Gate,
        lease: "ServiceLease | None",
        on_second: Callable[[], None],
        on_throttled: Callable[[Throttled], None],
    ) -> None:
        self._ask, self._gate, self._lease = ask, gate, lease
        self._on_second, self._on_throttled = on_second, on_throttled
        self._measures = after == "p95"
        self._after = None if after == "p95" else after
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._measured = 0
        self._running: set[asyncio.Task[Any]] = set()  # second calls

    def open(self, operator: AsyncWaitOperator) -> None:
        """Start second calls in the free slots of this operator."""
        self._operator = operator

    async def call(self, key: Key) -> Any:
        """Return the answer of the first call, or of a second call that is quicker."""
        loop, first = asyncio.get_running_loop(), _FirstCall()
        _FIRST_CALL.set(first)
        answer = await (
            self._ask(key) if self._after is None else self._hedged(key, self._after, loop, first)
        )
        if self._measures:
            assert first.left_at is not None
            self._measure(loop.time() - first.left_at)
        return answer

    def _has_slot(self) -> bool:
        """Return whether another call may run, besides calls of rows and second calls."""
        operator = self._operator.statistics()
        is_free = self._gate.is_open and (self._lease is None or self._lease.may_start())
        return is_free and operator.running < operator.concurrency

    def _overtaken(self, task: asyncio.Task[Any]) -> None:
        if self._lease is not None:
            self._lease.overtaken(task)

    def _measure(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._measured += 1
        if self._measured % FEWEST == 0:
            rank = -(-len(self._seconds) * 95 // 100)  # rounded up
            self._after = sorted(self._seconds)[rank - 1]

    async def _hedged(
        self, key: Key, after: float, loop: asyncio.AbstractEventLoop, call: _FirstCall
    ) -> Any:
        caller = asyncio.current_task(loop)  # makes the first call
        assert caller is not None
        second: asyncio.Task[Any] | None = None
        timer: asyncio.TimerHandle

        def begin() -> None:
            nonlocal second, timer
            now = loop.time()
            due = after + (now if call.left_at is None else call.left_at)
            if due > now + EARLY:
                timer = loop.call_at(due, begin)
            elif self._has_slot():
                second = loop.create_task(self._second(key))
                give_back = self._operator.take_slot()
                second.add_done_callback(lambda _: give_back())
                self._running.add(second)
                second.add_done_callback(ended)
            else:
                timer = loop.call_later(after, begin)

        def ended(task: asyncio.Task[Any]) -> None:
            self._running.discard(task)
            if has_result(task) and first_runs:
                self._overtaken(caller)
                first.reschedule(loop.time())  # ends the first call

        first_runs = True
        timer = loop.call_later(after, begin)
        try:
            async with asyncio.timeout(None) as first:
                return await self._ask(key)
        except TimeoutError:
            if second is None or not first.expired():
                raise
            return second.result()
        except (CallFailed, Throttled) as error:
            first_runs = False
            return await self._answer_after(error, second)
        finally:
            first_runs = False
            timer.cancel()
            if second is not None:
                self._overtaken(second)
                second.cancel()

    async def _answer_after(
        self, error: CallFailed | Throttled, second: asyncio.Task[Any] | None
    ) -> Any:
        """Return the answer of the second call. Raises the error of the first if there is none."""
        if second is None or not await _succeeds(second):
            raise error
        if isinstance(error, Throttled):
            self._on_throttled(error)
        return second.result()

    async def _second(self, key: Key) -> Any:
        self._on_second()
        try:
            return await self._ask(key)
        except Throttled as refused:
            self._on_throttled(refused)
            raise

    async def close(self) -> None:
        """Wait for second calls that are being cancelled."""
        if self._running:
            await asyncio.wait(self._running)


def has_result(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is None


async def _succeeds(second: asyncio.Task[Any]) -> bool:
    await asyncio.wait([second])
    return has_result(second)
