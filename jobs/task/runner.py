"""The bridge from a Spark partition to the operators: an event loop beside Spark's generator.

It has three threads, and a watch. The reader pulls Spark's input, bounded in rows and bytes. The
loop runs an operator per lookup, chained. The generator runs in Spark's thread and only yields. The
window slides over the whole partition, across batches. Where a lookup is a function, the watch, a
fourth thread, notices that the function blocks the loop.
"""

import asyncio
import errno
import gc
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any

import pyarrow as pa

from asyncio_core import AsyncWaitOperator
from jobs.clients import request_counter
from jobs.clients.client import Client
from jobs.clients.registry import client_for
from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.lookup import Lookup
from jobs.errors import (
    REFUSED_BY_DISK,
    BudgetExhausted,
    LedgerError,
    RowFailed,
    RunCancelled,
    RunStopped,
    TaskFailed,
)
from jobs.task.chain import CAPACITY_PER_CALL, Chain, raise_failure, rows_at_once
from jobs.task.durable_output import ROWS_HELD, durable_batches
from jobs.task.lease.call_budget import CallBudget
from jobs.task.link.driver_link import DriverLink, TaskFacts, with_driver
from jobs.task.link.progress import EVERY, AttemptCounts, TaskProgress
from jobs.task.lookup.error_text import user_facing_error, with_encodable_errors
from jobs.task.lookup.task_ledger import TaskLedger
from jobs.task.operators import Surroundings, chain
from jobs.task.plan import PartitionPlan
from jobs.task.progress_reporter import ProgressReporter
from jobs.task.row_flow import RowInput, RowOutput
from jobs.task.rows.row_elements import RowElements
from jobs.task.task_limits import TaskLimits
from jobs.task.threads.call_threads import ENDS_WITHIN, CallThreads, run_to_its_end
from jobs.task.threads.loop_watch import LoopWatch
from jobs.task.threads.read_ahead import InputWindow
from jobs.wording import one_line

PREFETCH_ROWS = 4000  # beyond what the operators hold
PREFETCH_BYTES = 64 << 20
# a batch costs 5 ms beside calls, whether its rows are those of 0.25 s or of 1 s
TICKS_OF_A_BATCH = 4
LOOK_EVERY = 0.05  # s, whether calls in flight have ended
LAST_ANSWERS = 1.5  # s to wait for them in a task that fails; Spark kills a worker after 2
FOR_GOOD = 3600.0  # s; a task that drains ends sooner
# the next attempt at a task would pay for its calls again, and could store no answer either
NOT_STORABLE = REFUSED_BY_DISK | {errno.EPERM}


def run_partition(
    plan: PartitionPlan, batches: Iterator[pa.RecordBatch], task: TaskFacts | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield every input row once, in the order of the mode: the function for mapInArrow.

    Args:
        plan: The plan of the job's tasks.
        batches: The partition's input.
        task: Identifies the task; by default Spark's TaskContext.
    """
    from pyspark import TaskContext

    task = task or TaskContext.get()
    if task is None:
        return PartitionRun(plan, 0, 0).run(batches)
    run = PartitionRun(plan, task.partitionId(), task.attemptNumber())
    return with_encodable_errors(
        run.run(batches) if plan.driver is None else with_driver(run, batches, plan.driver, task)
    )


class PartitionRun:
    """An attempt of a task. A failure of any thread ends all threads and is raised to Spark.

    Attributes:
        driver: Receives the task's messages.
    """

    def __init__(
        self,
        plan: PartitionPlan,
        partition: int,
        attempt: int,
        *,
        driver: DriverLink | None = None,
        client_for: Callable[[Lookup, int], Client] = client_for,
    ) -> None:
        self._plan = plan
        self._client_for = client_for
        self._partition = partition
        self.driver = driver or DriverLink()
        self.now_us = one_clock()
        self._limits = TaskLimits(plan, partition, self.driver, self.now_us, self._read_ahead)
        self._window = InputWindow(self._rows_ahead(self._limits.share), PREFETCH_BYTES)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempts = AttemptCounts()
        self._progress = TaskProgress(partition, attempt, unit=plan.unit)
        ledgers = plan.ledgers or (None,) * len(plan.lookups)
        self._ledgers = [
            None if ledger is None else TaskLedger(ledger, partition, attempt, self.now_us)
            for ledger in ledgers
        ]
        elements = RowElements(plan.lookups, plan.mode)
        self._input = RowInput(plan, self._ledgers, elements, self._limits)
        self._output = RowOutput(plan, partition, self._ledgers, elements)
        self._main: asyncio.Task[None] | None = None
        self._cap_reached = asyncio.Event()  # set when another task is at the cap on calls
        self._drain_requested = asyncio.Event()  # set when no call is to start
        self._drain_reason = ""  # the sentence with which the task fails
        self._is_cancelled = False
        self._loop_ended = threading.Event()  # or was abandoned in a function that blocks it
        self._is_abandoned = self._all_written = False
        self._unfinished: list[str] = []  # functions that did not end after the last row
        limits = {
            lookup.name: lookup.timeout
            for lookup in plan.lookups
            if isinstance(lookup, AsyncFunctionLookup | CoroutineLookup)
        }
        self._watch = LoopWatch(limits, self._abandon_loop) if limits else None
        self._stopped: Exception | None = None  # the driver's error; replaces the task's

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, as Spark pulls them.

        If Spark leaves early, cancel the calls and wait for the loop to end.
        """
        self._loop = loop = asyncio.new_event_loop()
        # the loop's thread shares the counts of this one
        self._counts = [request_counter.counts_of(lookup.name) for lookup in self._plan.lookups]
        loop_thread = threading.Thread(
            target=copy_context().run, args=(self._run_loop, loop), name="tidegate-loop",
            daemon=True,
        )  # fmt: skip
        reader = threading.Thread(
            target=self._read, args=(batches,), name="tidegate-reader", daemon=True
        )
        loop_thread.start()
        reader.start()
        try:
            for batch in durable_batches(self._output.batches, self._window):
                yield batch
                self._window.give_back(batch.num_rows)
        except LedgerError as error:
            if not _may_pass(error):
                self.driver.send_failure(error)
            raise
        finally:
            self._window.end()
            self._call_soon(self._cancel)
            self._loop_ended.wait()
            if not self._is_abandoned:
                loop_thread.join()

    def _rows_ahead(self, share: Sequence[int]) -> int:
        held = ROWS_HELD if any(self._plan.ledgers) else 0
        return (
            PREFETCH_ROWS
            + held
            + CAPACITY_PER_CALL * sum(map(rows_at_once, self._plan.lookups, share))
        )

    def _read_ahead(self, share: Sequence[int]) -> None:
        self._window.set_max_rows(self._rows_ahead(share))

    # -- from any thread ---------------------------------------------------------------------------

    def take_limits(self, number: int, share: Sequence[int], services: Mapping[str, Any]) -> None:
        """Use the limits that the driver sends in answer to the heartbeat of this number: calls in
        flight per lookup, and leases by service.
        """
        self._call_soon(self._limits.take, number, share, services)

    def begin_alone(self) -> None:
        """Without a driver, use the smallest share of any task."""
        if self._plan.divides:
            self.take_limits(0, [*map(min, self._plan.shares)], {})

    def send_heartbeat(self) -> None:
        """Report the use of limits at once."""
        self._call_soon(self._limits.send_heartbeat)

    def pause(self, service: str, seconds: float, *, down: bool) -> None:
        """Pause the service for this many seconds, as another task found it throttling or down."""
        self._call_soon(self._limits.pause, service, seconds, down)

    def stop(self, reason: str) -> None:
        """Cancel the calls at once, store arrived answers, and fail the task: rows are missing."""
        self.fail(RunCancelled(f"{reason}; rows under way are not written."))

    def fail(self, error: Exception) -> None:
        """Stop, and raise this error."""
        self._stopped = error
        self._is_cancelled = True
        self._window.end()
        self._call_soon(self._cancel)

    def drain(self, reason: str) -> None:
        """Start no call, store the answers of calls in flight, and then fail."""
        self._drain_reason = reason
        self._call_soon(self._drain_requested.set)

    def end_calls(self) -> None:
        """Start no call, and fail by the cap once no call is in flight: another task reached it."""
        self._call_soon(self._cap_reached.set)

    def _call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:  # not begun
            return
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed because the run has ended
            return

    # -- the reader's thread -----------------------------------------------------------------------

    def _read(self, batches: Iterator[pa.RecordBatch]) -> None:
        end: BaseException | None = None
        try:
            for batch in batches:
                if not self._window.take(batch.num_rows, batch.nbytes):
                    return
                self._call_soon(self._input.arrived.put, batch)
        except BaseException as error:  # noqa: BLE001  # whatever ends the input must reach Spark's thread
            end = error
        self._call_soon(self._input.arrived.put, end)

    # -- the loop's thread -------------------------------------------------------------------------

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        end: BaseException | None = None
        try:
            # the first array imports pandas, stopping the loop for seconds: before a clock starts
            pa.array(["warm"])
            # otherwise each task of a worker leaves 20 MB of holes in glibc's heap
            pa.default_memory_pool().release_unused()
            with rare_collections():
                self._unfinished += run_to_its_end(loop, self._enrich(), CallThreads())
        except asyncio.CancelledError:
            if not self._is_cancelled:
                end = TaskFailed(
                    "the task was cancelled from within, so rows are missing: a lookup's function "
                    "may cancel only tasks that it began itself."
                )
        except BaseException as error:  # noqa: BLE001  # whatever it is, Spark's thread raises it
            end = user_facing_error(error)
        if self._stopped is not None:
            end = self._stopped
        elif end is not None and not self._input.failed and not _may_pass(end):
            self.driver.send_failure(end)  # the next attempt would fail again
            if isinstance(end, BudgetExhausted):
                # when this task fails, Spark cancels the others, with their calls in flight
                self.driver.wait_until_stopped()
                # the driver's error names what is used up
                end = self._stopped if isinstance(self._stopped, BudgetExhausted) else end
        self._say_unfinished()
        self._end(end)

    def _end(self, error: BaseException | None) -> None:
        """End the output: the loop ended or is abandoned, so no more rows come."""
        if not self._loop_ended.is_set():
            if self._watch is not None:
                self._watch.end()
            self._loop_ended.set()
            self._output.batches.put(error)

    def _abandon_loop(self, error: Exception | None) -> None:
        """End the task without the loop, which a function blocks for good.

        Args:
            error: Fails the task. None if only a `close` blocks, which fails it unless all rows are
                written.
        """
        self._is_abandoned = True
        if error is None and not self._all_written:
            error = TaskFailed("the close() of a lookup's function blocks the event loop.")
        if error is None:
            self._unfinished.append("the close() of a lookup's function")
            self._say_unfinished()
        else:
            self.driver.send_failure(error)
        self._end(error)

    def _say_unfinished(self) -> None:
        for name in sorted(set(self._unfinished)):
            logging.getLogger("tidegate").warning(
                "%s did not end within %.0f s after the last row; the task ends without it. A "
                "blocking client needs a "
                "time limit of its own.", name, ENDS_WITHIN,
            )  # fmt: skip

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._main is not None:
            self._main.cancel()

    async def _enrich(self) -> None:
        self._main = asyncio.current_task()
        if self._watch is not None:
            self._watch.begin(asyncio.get_running_loop())
        async with AsyncExitStack() as stack:
            if self._is_cancelled:
                return
            output = self._output
            task = self._surroundings(stack)
            chained = chain(
                task, output.collect_by_key if self._plan.mode == "key_ordered" else output.collect
            )
            self._limits.set_operators(chained)
            # what failed calls used is free once the operators have closed
            stack.callback(self._limits.send_heartbeat)
            reporter = ProgressReporter(
                self._progress, self._plan.lookups, chained, self._attempts, self.now_us
            )
            for lookup, operator in zip(self._plan.lookups, chained.operators, strict=True):
                stack.push_async_exit(partial(self._close, lookup, operator))
                await operator.open()
            try:
                async with asyncio.TaskGroup() as group:
                    beside = [
                        self._tick(reporter),
                        self._end_at_cap(task.allowance),
                        self._drain(chained),
                    ]
                    until_the_end = [
                        *map(group.create_task, (*beside, *map(raise_failure, chained.operators)))
                    ]
                    carriers = [group.create_task(link.carry()) for link in chained.links]
                    await self._input.feed(chained, task.allowance)
                    for link, carrier in zip(chained.links, carriers, strict=True):
                        link.end()
                        await carrier
                    output.flush(last=True)  # written while connections prove quiet
                    self._all_written = True
                    self._unfinished += await chained.finish(self._plan.lookups)
                    for task_beside in until_the_end:
                        task_beside.cancel()
            except BaseException:
                await self._take_last_answers(chained)
                raise
            finally:
                self._limits.give_back()
            self._report(reporter)  # the last report, with all rows
            if task.allowance is not None:
                request_counter.task_counts().spent = task.allowance.spent

    async def _close(
        self,
        lookup: Lookup,
        operator: AsyncWaitOperator,
        _kind: type[BaseException] | None,
        failure: BaseException | None,
        _trace: object,
    ) -> None:
        """Close the operator within ENDS_WITHIN s. Its error must not hide the task's failure.

        A call that swallows its cancellation, or the function's `close`, may not end.
        """
        self._main = None  # closing ends by itself; cancelling would leave operators open
        closing = asyncio.create_task(operator.close(), name="tidegate close")
        done, _ = await asyncio.wait([closing], timeout=ENDS_WITHIN)
        if not done:
            self._unfinished.append(f"lookup {lookup.name}: its function")
        elif failure is None:
            closing.result()
        elif not closing.cancelled() and (error := closing.exception()) is not None:
            logging.getLogger("tidegate").warning("%s", one_line(str(user_facing_error(error))))

    def _surroundings(self, stack: AsyncExitStack) -> Surroundings:
        """Open the ledgers, which close after the operators, and make the task's budget."""
        plan, limits = self._plan, self._limits
        allowance = (
            CallBudget(plan.cap, self._partition, self._counts) if plan.bounds_cost else None
        )
        for ledger in self._ledgers:
            if ledger is not None:
                ledger.open()
                stack.callback(ledger.close)
        return Surroundings(
            plan, limits.share, self._ledgers, allowance, self.now_us, self._attempts,
            self._client_for, on_pause=limits.report_pause, ask_soon=limits.ask_soon,
        )  # fmt: skip

    async def _end_at_cap(self, allowance: CallBudget | None) -> None:
        if allowance is not None:
            await self._cap_reached.wait()
            await allowance.end()

    async def _drain(self, chained: Chain) -> None:
        """Once the task is to drain, let calls in flight end, and fail."""
        await self._drain_requested.wait()
        await self._end_calls_in_flight(chained)
        self.stop(self._drain_reason)

    async def _take_last_answers(self, chained: Chain) -> None:
        """Before the task fails, give its calls in flight some time; not if it is cancelled."""
        if not self._is_cancelled or isinstance(self._stopped, RunStopped | RowFailed):
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_ANSWERS):
                    await self._end_calls_in_flight(chained)

    async def _end_calls_in_flight(self, chained: Chain) -> None:
        """Pause all services until the calls in flight have ended and their answers are stored.

        A service may bill a call whose answer nobody takes, and the next run repeats it.
        """
        self._limits.pause_all(FOR_GOOD)
        while chained.running():  # noqa: ASYNC110  # an event would cost each call something
            await asyncio.sleep(LOOK_EVERY)

    async def _tick(self, reporter: ProgressReporter) -> None:
        """Report to the driver four times a second, and flush finished rows once.

        A few large rows are flushed each time, or they would fill the window.
        """
        for tick in itertools.count(1):
            await asyncio.sleep(EVERY)
            fill = self._window.is_full and 8 * self._output.rows_ready >= self._window.rows
            if fill or not tick % TICKS_OF_A_BATCH:
                self._output.flush()
            self._report(reporter)
            self._limits.send_heartbeat()

    def _report(self, reporter: ProgressReporter) -> None:
        progress = reporter.progress(self._output.rows)
        if self._plan.progress is not None:
            self.driver.send_progress(progress)


def one_clock(
    monotonic_ns: Callable[[], int] = time.monotonic_ns, time_ns: Callable[[], int] = time.time_ns
) -> Callable[[], int]:
    """Return a monotonic clock in µs since the epoch; a closure, as each row reads it twice."""
    epoch_us = (time_ns() - monotonic_ns()) // 1000
    return lambda: epoch_us + monotonic_ns() // 1000


_collector = threading.Lock()
_thresholds: list[
    tuple[int, int, int]
] = []  # an entry per run: the thresholds before the first run


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often while rows flow.

    Rows make no cycles, but each collection visits all objects of the window, which took a third of
    the loop's time. A full collection, which stops the loop and visits all that Spark and Arrow
    imported, begins only after a hundred million new objects.
    """
    with _collector:
        _thresholds.append(_thresholds[0] if _thresholds else gc.get_threshold())
        gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        with _collector:
            before = _thresholds.pop()
            if not _thresholds:
                gc.set_threshold(*before)


def _may_pass(error: BaseException) -> bool:
    """Return whether another attempt at the task may succeed."""
    if isinstance(error, LedgerError):
        return getattr(error.__cause__, "errno", None) not in NOT_STORABLE
    return isinstance(error, MemoryError)
