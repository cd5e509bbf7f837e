"""A second call for a key whose first call takes long; the first answer counts.

A second call starts only where no row needs its slot: at the end of a task's rows, when a few slow
calls would be all that runs. While every slot has a row to serve, a second call would only delay
another row's first call.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from jobs.clients.client import CallFailed, Throttled
from jobs.declare.lookup import Key

REMEMBERED, FEWEST = 200, 20  # answer times of a task, from which p95 is taken


class Hedging:
    """A lookup's calls in a task.

    Args:
        ask: Makes a call.
        after: Seconds without an answer until the second call, or "p95" of this task's latest
            answers.
        has_slot: Returns whether another call may run, besides this many second calls.
        on_second: Called when a second call begins.
        on_throttled: Called when the service throttles a second call.
        on_overtaken: Called with a call's task before it is cancelled because the other was
            quicker.
    """

    def __init__(
        self,
        ask: Callable[[Key], Awaitable[Any]],
        after: float | Literal["p95"],
        *,
        has_slot: Callable[[int], bool],
        on_second: Callable[[], None],
        on_throttled: Callable[[Throttled], object],
        on_overtaken: Callable[[asyncio.Task[Any]], object] = lambda _task: None,
    ) -> None:
        self._ask, self._has_slot = ask, has_slot
        self._on_second, self._on_throttled, self._on_overtaken = (
            on_second,
            on_throttled,
            on_overtaken,
        )
        self._measures = after == "p95"
        self._after = None if after == "p95" else after
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._measured = 0
        self._running: set[asyncio.Task[Any]] = set()  # second calls

    async def call(self, key: Key) -> Any:
        """Return the answer of the first call, or of a second call that is quicker."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await (
            self._ask(key) if self._after is None else self._hedged(key, self._after, loop)
        )
        if self._measures:
            self._measure(loop.time() - began)
        return answer

    def _measure(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._measured += 1
        if self._measured % FEWEST == 0:
            self._after = sorted(self._seconds)[len(self._seconds) * 95 // 100]

    async def _hedged(self, key: Key, after: float, loop: asyncio.AbstractEventLoop) -> Any:
        own = asyncio.current_task(loop)
        assert own is not None
        second: asyncio.Task[Any] | None = None
        timer: asyncio.TimerHandle

        def begin() -> None:
            nonlocal second, timer
            if self._has_slot(len(self._running)):
                second = loop.create_task(self._second(key))
                self._running.add(second)
                second.add_done_callback(ended)
            else:
                timer = loop.call_later(after, begin)

        def ended(task: asyncio.Task[Any]) -> None:
            self._running.discard(task)
            if has_result(task) and waits:
                self._on_overtaken(own)
                first.reschedule(loop.time())  # ends it, as with a time limit

        waits = True
        timer = loop.call_later(after, begin)
        try:
            async with asyncio.timeout(None) as first:
                return await self._ask(key)
        except TimeoutError:
            if second is None or not first.expired():
                raise
            return second.result()
        except CallFailed:
            waits = False
            if second is None or not await _succeeds(second):
                raise
            return second.result()
        finally:
            waits = False
            timer.cancel()
            if second is not None:
                self._on_overtaken(second)
                second.cancel()

    async def _second(self, key: Key) -> Any:
        self._on_second()
        try:
            return await self._ask(key)
        except Throttled as refused:
            self._on_throttled(refused)
            raise

    async def close(self) -> None:
        if self._running:
            await asyncio.wait(self._running)


def has_result(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is None


async def _succeeds(second: asyncio.Task[Any]) -> bool:
    await asyncio.wait([second])
    return has_result(second)
