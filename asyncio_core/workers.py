"""The tasks that run the calls: few, long-lived, and woken one at a time."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial
from typing import Any


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """What asyncio.sleep(0) does, at half its price."""
    yield


class Worker:
    """One task that runs calls one after another, and the attempt it is making, if any."""

    __slots__ = ("arrived", "attempts", "cancelled", "decided", "started", "task")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.arrived = False  # its task has taken its first step
        self.attempts = 0
        self.started = 0.0  # when the record's first call started, on the record's clock
        self.decided = False  # the record's outcome is known, the operator waits for this attempt no more
        self.cancelled = False  # the operator has cancelled this attempt


class WorkerPool:
    """At most `size` workers at work, made when first needed. One without work waits, parked, until wake().

    One worker at a time is on its way to the work. It wakes the next one when it finds more than it takes: a batch of
    records that needs no waiting is then served by one worker in one go, and one that does spreads over all of them.
    """

    def __init__(
        self,
        size: int,
        work: Callable[[Worker], Coroutine[Any, Any, None]],
        on_left: Callable[[BaseException | None], None],
    ) -> None:
        self.spare = size  # workers that wake() could call, parked or not made yet; below 0: so many are to park
        self.looking = 0  # workers called that have not yet looked for work
        self._size = size
        self._work = work
        self._on_left = on_left
        self._loop: asyncio.AbstractEventLoop  # that of the workers; asking for it costs a system call in Python 3.11
        self._workers: dict[asyncio.Task[None], Worker] = {}
        self._parked: dict[asyncio.Future[None], None] = {}

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __contains__(self, task: asyncio.Task[Any] | None) -> bool:
        return task in self._workers

    def busy(self) -> int:
        """How many workers are neither parked nor on their way."""
        return self._size - self.spare - self.looking

    def resize(self, size: int) -> None:
        """So many workers at work from now on. Those that are too many park as they come out of their calls."""
        self.spare += size - self._size
        self._size = size

    def wake(self) -> None:
        """Call one spare worker to the work, unless one is on its way already."""
        if self.looking:
            return
        while self.spare > 0 and self._parked:
            called, _ = self._parked.popitem()
            self.spare -= 1
            if not called.done():  # done: cancelled by somebody else, its task is about to end
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
        """A new worker's first step: it looks for work now."""
        task = asyncio.current_task()
        assert task is not None
        worker.task = task  # an eager task factory runs this before create_task() has returned
        worker.arrived = True
        self.looking -= 1

    def _left(self, worker: Worker, task: asyncio.Task[None]) -> None:
        del self._workers[task]
        self.spare += 1
        if not worker.arrived:
            self.looking -= 1
        self._on_left(None if task.cancelled() else task.exception())

    async def park(self) -> None:
        """Wait, in a worker's task, until called. Cancelled: the pool is as if the worker had never parked."""
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
        """Cancel all workers and wait until they have ended, however long a call clings to life.

        A cancellation of the waiting task itself is not lost: it is held back, and returned at the end.
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
