"""Decides which record is called, when, how often and for how long: attempts, retries, time limits.

The operator adds a record's queue entry. It gets the entry back once, with its results, or gets the
error that fails it. This object owns all state, on one loop; the state is consistent at every
`await`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from asyncio_core.errors import AsyncInvokeError
from asyncio_core.function import AsyncFunction, ResultTypeError, as_results, hook_or
from asyncio_core.gate import Gate
from asyncio_core.queues import Entry
from asyncio_core.retry import RetryStrategy
from asyncio_core.workers import Worker, WorkerPool, next_turn

_TIMER_EARLINESS = 1e-6  # seconds: a loop may fire a timer early by the resolution of its clock


class _Backoff:
    """A record between two attempts: its delay runs, or it waits for a worker."""

    __slots__ = ("attempts", "entry", "started", "timer")

    def __init__(self, worker: Worker, entry: Entry) -> None:
        self.entry = entry
        self.attempts = worker.attempts
        self.started = worker.started
        self.timer: asyncio.TimerHandle | None = None


class Calls:
    """Runs the user's function for entries, at most `concurrency` at once, if the gate is open.

    A record is undecided from the start of its first call until its outcome is known. The first
    outcome decides; later outcomes are dropped. Undecided records are kept in the order in which
    their clocks started. As all have the same time limit, this is the order of their deadlines, so
    a single timer serves them all.

    Attributes:
        backlog: Records without a call so far. While it is not empty, appending to it does what
            `add` does: a worker is on its way, none is spare, or the gate is closed, and whatever
            changes that wakes a worker.
    """

    def __init__(
        self,
        function: Any,
        *,
        concurrency: int,
        timeout: float | None,
        retry_strategy: RetryStrategy,
        gate: Gate,
        on_completed: Callable[[], None],
        on_all_taken: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._pool = WorkerPool(concurrency, self._work, self._worker_left)
        self.backlog: deque[Entry] = deque()
        self._abandoned = 0
        self._records_due = False  # see expect_records
        self.retries = self.timeouts = self.failures = self.cancelled = self.waiting_for_retry = 0
        self._invoke = function.async_invoke
        self._handle_timeout = hook_or(AsyncFunction[Any, Any]().timeout, function, "timeout")
        self._survives = hook_or(lambda _: False, function, "survives_timeout")
        self._limit = timeout
        self._strategy = retry_strategy
        self._gate = gate
        self._on_completed = on_completed
        self._on_all_taken = on_all_taken  # the backlog is empty
        self._on_failure = on_failure
        self._loop: asyncio.AbstractEventLoop
        self._time: Callable[[], float]
        self._undecided: dict[Entry, Worker | _Backoff] = {}
        self._due: deque[_Backoff] = deque()  # their delay is over
        self._timer: asyncio.TimerHandle | None = None
        self._stood_still = 0.0  # seconds that the gate has taken from all clocks
        self._may_start = False  # open, gate open, and not stopped
        self._stopped = False
        self._closing = False

    # -- for the operator

    def open(self) -> None:
        """Start attempts from now on. Needs the running loop."""
        self._loop = asyncio.get_running_loop()
        # the base class's time() is the same function with another frame, called for every record
        plain = type(self._loop).time is asyncio.BaseEventLoop.time
        self._time = monotonic if plain else self._loop.time
        self._gate.subscribe(self)
        self._stood_still = self._gate.closed_seconds
        self._may_start = self._gate.is_open

    def add(self, entry: Entry) -> None:
        """Call the function for a record once a slot is free and the gate is open."""
        self.backlog.append(entry)
        pool = self._pool
        if pool.spare and not pool.looking:
            self._wake()

    def expect_records(self, expected: bool) -> None:  # noqa: FBT001 - a setter
        """Set whether records are about to be added: idle workers then look again first."""
        self._records_due = expected

    def resize(self, concurrency: int) -> None:
        """Set the number of concurrent calls. Running calls continue, even surplus calls."""
        self._pool.resize(concurrency)
        self._wake()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Release the running call's slot during the context; see AsyncWaitOperator.yield_slot."""
        self.give_slot()
        try:
            yield
        finally:
            self.take_slot()

    def take_slot(self) -> None:
        self._pool.spare -= 1

    def give_slot(self) -> None:
        self._pool.spare += 1
        self._wake()

    def stop(self) -> None:
        """Stop starting attempts and expiring time limits. Running calls continue until close()."""
        self._stopped = True
        self._may_start = False

    def never_called(self) -> int:
        """Return the number of records without a first call, now or at the cancellation."""
        return len(self.backlog) + self._abandoned

    def running(self) -> int:
        return self._pool.busy()

    def runs_in(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether this task is a worker."""
        return task in self._pool

    def outstanding(self) -> int:
        """Return the number of undecided records, plus calls that outlive their record."""
        return (
            len(self.backlog) + len(self._undecided) + sum(worker.decided for worker in self._pool)
        )

    async def close(self) -> asyncio.CancelledError | None:
        """Cancel everything and wait for the calls to end; returns as WorkerPool.close."""
        self.stop()
        self._closing = True
        self._gate.unsubscribe(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for holder in self._undecided.values():
            if isinstance(holder, Worker):
                holder.decided = True
            elif holder.timer is not None:
                holder.timer.cancel()
        for worker in self._pool:  # also for calls that survived their time limit
            if worker.decided and not worker.cancelled:
                worker.cancelled = True
                self.cancelled += 1
        interruption = await self._pool.close()
        self._abandoned = len(self.backlog)
        self.backlog.clear()
        self._due.clear()
        self._undecided.clear()
        self.waiting_for_retry = 0
        return interruption

    def _wake(self) -> None:
        if self._may_start and (self.backlog or self._due):
            self._pool.wake()

    # -- the gate's listener

    def gate_closed(self) -> None:
        self._may_start = False

    def gate_opened(self, closed_seconds: float) -> None:
        self._stood_still = closed_seconds
        if not self._stopped:
            self._may_start = True
            self._arm()
            self._wake()

    # -- attempts, in the workers' tasks

    async def _work(self, worker: Worker) -> None:  # noqa: C901, PLR0912 - each call from here costs 5 %
        backlog, due, undecided = self.backlog, self._due, self._undecided
        pool, invoke, time, on_completed = self._pool, self._invoke, self._time, self._on_completed
        limited, judges_results = self._limit is not None, self._strategy.on_result is not None
        if not hasattr(worker, "task"):  # an eager task factory runs this within wake()
            await next_turn()
        pool.arrived(worker)
        cancelling = worker.task.cancelling
        while True:
            if not self._may_start or not (backlog or due) or pool.spare < 0:
                if self._closing:
                    return
                await self._rest()
                continue
            if due:
                entry = self._next_retry(worker)
                if entry is None:
                    continue
            else:
                entry = backlog.popleft()
                if not backlog:
                    self._on_all_taken()
                worker.attempts = 1
                worker.started = time() - self._stood_still
                undecided[entry] = worker
                if limited and self._timer is None:
                    self._arm()
            if pool.spare and not pool.looking and (backlog or due):
                pool.wake()
            try:
                results = await invoke(entry.element._value)  # noqa: SLF001 - the property's frame would cost 2 %
                if type(results) is not list:
                    results = as_results("async_invoke", results)
            # a user's error: judged, then raised as the operator's failure
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
                self._attempt_raised(worker, entry, error)
            # KeyboardInterrupt, SystemExit: for the runner of the loop
            except BaseException as error:
                self._fail(worker, entry, error)
                raise
            else:
                if worker.decided:
                    self._drop_outcome(worker)
                elif judges_results:
                    self._judge(worker, entry, self._strategy.on_result, results)
                else:
                    del undecided[entry]
                    entry.complete(results)
                    on_completed()
            entry = results = None  # a waiting worker holds no record
            if cancelling():  # not by the operator: the next call must not be cancelled
                raise asyncio.CancelledError

    async def _rest(self) -> None:
        if self._records_due and self._may_start and self._pool.spare >= 0:
            self._pool.looking += 1
            try:
                await next_turn()
            finally:
                self._pool.looking -= 1
            if self.backlog or self._due:
                return
        await self._pool.park()

    def _next_retry(self, worker: Worker) -> Entry | None:
        backoff = self._due.popleft()
        entry = backoff.entry
        if self._undecided.get(entry) is not backoff:
            return None  # its time limit expired while it waited
        worker.attempts = backoff.attempts + 1
        worker.started = backoff.started
        self._undecided[entry] = worker
        self.waiting_for_retry -= 1
        self.retries += 1
        return entry

    def _attempt_raised(self, worker: Worker, entry: Entry, error: BaseException) -> None:
        if worker.decided:
            self._drop_outcome(worker)
            return
        if isinstance(error, asyncio.CancelledError):
            self._fail(worker, entry, error)
            return
        self.failures += 1
        wants_retry = None if isinstance(error, ResultTypeError) else self._strategy.on_exception
        self._judge(worker, entry, wants_retry, error)

    def _judge(
        self,
        worker: Worker,
        entry: Entry,
        wants_retry: Callable[[Any], bool] | None,
        outcome: list[Any] | BaseException,
    ) -> None:
        """Back off if the strategy retries this outcome; otherwise it is the record's."""
        try:
            if (
                wants_retry is not None
                and wants_retry(outcome)
                and self._strategy.can_retry(worker.attempts)
            ):
                self._back_off(worker, entry)
                return
        # a bug of the strategy; its context shows the judged error
        except (Exception, asyncio.CancelledError) as broken:  # noqa: BLE001
            outcome = broken
        if isinstance(outcome, BaseException):
            self._fail(worker, entry, outcome)
        else:
            del self._undecided[entry]
            entry.complete(outcome)
            self._on_completed()

    def _drop_outcome(self, worker: Worker) -> None:
        """Handle the end of an abandoned call: its cancellation must not reach the next call."""
        worker.decided = False
        # by the operator; other cancellations must stay, or the loop never ends
        if worker.cancelled:
            worker.cancelled = False
            worker.task.uncancel()

    # -- retries

    def _back_off(self, worker: Worker, entry: Entry) -> None:
        delay = self._strategy.delay(worker.attempts)
        if not delay >= 0:
            raise ValueError(f"a retry strategy's delay is 0 or more seconds, got {delay!r}")
        backoff = _Backoff(worker, entry)
        backoff.timer = self._loop.call_later(delay, self._retry_is_due, backoff)
        self._undecided[entry] = backoff
        self.waiting_for_retry += 1

    def _retry_is_due(self, backoff: _Backoff) -> None:
        backoff.timer = None
        self._due.append(backoff)
        self._wake()

    # -- time limits

    def _arm(self) -> None:
        """Set the timer to the first deadline. A set timer looks again when it fires."""
        if self._limit is None or self._timer is not None or not self._undecided:
            return
        first = next(iter(self._undecided.values()))
        self._timer = self._loop.call_at(self._deadline(first), self._look_at_the_clock)

    def _deadline(self, holder: Worker | _Backoff) -> float:
        assert self._limit is not None
        return holder.started + self._limit + self._stood_still

    def _look_at_the_clock(self) -> None:
        self._timer = None
        if not self._may_start:
            return  # the clocks stand still; opening the gate arms the timer again
        now = self._loop.time() + _TIMER_EARLINESS
        expired = []
        for entry, holder in self._undecided.items():
            if self._deadline(holder) > now:
                break
            expired.append((entry, holder))
        for entry, holder in expired:
            # the user's timeout() for an earlier record may have closed the gate or failed the
            # operator
            if self._may_start:
                self._expire(entry, holder)
        if self._may_start:
            self._arm()

    def _expire(self, entry: Entry, holder: Worker | _Backoff) -> None:
        self.timeouts += 1
        del self._undecided[entry]
        if isinstance(holder, _Backoff):
            self.waiting_for_retry -= 1
            if holder.timer is not None:
                holder.timer.cancel()
        try:
            if isinstance(holder, Worker):
                self._leave(holder, entry)
            results = as_results("timeout", self._handle_timeout(entry.element.value))
        except BaseException as error:  # a user's error, and final
            self._fail(holder, entry, error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            entry.complete(results)
            self._on_completed()

    def _leave(self, worker: Worker, entry: Entry) -> None:
        """Drop the outcome of a call, and cancel it unless it survives its time limit."""
        worker.decided = True
        if not self._survives(entry.element.value):
            self.cancelled += 1
            worker.cancelled = True
            worker.task.cancel("the record's time limit has expired")

    # -- failure

    def _fail(self, holder: Worker | _Backoff, entry: Entry, cause: BaseException) -> None:
        """Fail the operator because a record has no result.

        The record's entry stays open, so a snapshot still contains the record.
        """
        self._undecided.pop(entry, None)
        elapsed = self._loop.time() - self._gate.closed_seconds - holder.started
        error = AsyncInvokeError(entry.element, holder.attempts, max(elapsed, 0.0))
        error.__cause__ = cause
        self._on_failure(error)

    def _worker_left(self, error: BaseException | None) -> None:
        if error is not None:
            self._on_failure(error)
        self._wake()
