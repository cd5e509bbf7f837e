"""The tasks that run the calls: few, long-lived, woken one at a time."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial
from typing import Any


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """Yield to the loop once, like asyncio.sleep(0), at half its cost."""
    yield


class Worker:
    """A task that runs calls in sequence, and its current attempt."""

    __slots__ = ("arrived", "attempts", "cancelled", "decided", "started", "task")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.arrived = False  # its task has started
        self.attempts = 0
        self.started = 0.0  # when the record's first call started, on the record's clock
        # the record's outcome is known; the operator does not wait for this attempt
        self.decided = False
        self.cancelled = False  # the operator has cancelled this attempt


class WorkerPool:
    """At most `size` working workers, created on demand. An idle worker parks until wake().

    One worker at a time wakes up for work. If it leaves work behind, it wakes the next: so a single
    worker serves a batch of calls that return at once, and calls that wait spread over all workers.
    """

    def __init__(
        self,
        size: int,
        work: Callable[[Worker], Coroutine[Any, Any, None]],
        on_left: Callable[[BaseException | None], None],
    ) -> None:
        # parked or not yet created workers; negative: the number of workers that must park
        self.spare = size
        self.looking = 0  # woken workers that have not looked for work yet
        self._size = size
        self._work = work
        self._on_left = on_left
        # cached: get_running_loop() costs a system call in Python 3.11
        self._loop: asyncio.AbstractEventLoop
        self._workers: dict[asyncio.Task[None], Worker] = {}
        self._parked: dict[asyncio.Future[None], None] = {}

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __contains__(self, task: asyncio.Task[Any] | None) -> bool:
        return task in self._workers

    def busy(self) -> int:
        """Return the number of workers that are neither parked nor waking up."""
        return self._size - self.spare - self.looking

    def resize(self, size: int) -> None:
        """Set the number of workers. Surplus workers park when their calls end."""
        self.spare += size - self._size
        self._size = size

    def wake(self) -> None:
        """Wake a spare worker, unless a worker is waking up already."""
        if self.looking:
            return
        while self.spare > 0 and self._parked:
            called, _ = self._parked.popitem()
            self.spare -= 1
            if not called.done():  # done: cancelled from outside, and its task is about to end
                self.looking += 1
                called.set_result(None)
                return
        if self.spare > 0:
            self.spare -= 1
            self.looking += 1
            worker = Worker()
            self._loop = asyncio.get_running_loop()
            task = self._loop.create_task(self._work(worker), name="asyncio_core worker")
            task.add_done_callback(partial(self._left, worker))
            worker.task = task
            self._workers[task] = worker

    def arrived(self, worker: Worker) -> None:
        """Mark that a new worker has started and looks for work."""
        worker.arrived = True
        self.looking -= 1

    def _left(self, worker: Worker, task: asyncio.Task[None]) -> None:
        del self._workers[task]
        self.spare += 1
        if not worker.arrived:
            self.looking -= 1
        self._on_left(None if task.cancelled() else task.exception())

    async def park(self) -> None:
        """Wait in a worker's task until woken. A cancellation undoes the parking."""
        called = self._loop.create_future()
        self._parked[called] = None
        self.spare += 1
        try:
            await called
        finally:
            if called.done() and not called.cancelled():
                self.looking -= 1
            elif called in self._parked:
                del self._parked[called]
                self.spare -= 1

    async def close(self) -> asyncio.CancelledError | None:
        """Cancel all workers and wait for their end, even if a call swallows its cancellation.

        Returns:
            The cancellation of the waiting task itself, if any, kept until the end.
        """
        interruption: asyncio.CancelledError | None = None
        for worker in self:
            worker.task.cancel("the operator is closed")
        while self._workers:
            try:
                await asyncio.wait(list(self._workers))
            except asyncio.CancelledError as error:
                interruption = error
        return interruption
