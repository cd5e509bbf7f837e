"""The bridge from one Spark partition to the operators: an event loop beside Spark's generator.

Three threads. The reader pulls Spark's input, bounded in rows and bytes. The loop runs one operator per lookup,
chained. The generator, Spark's own thread, only yields. The window slides over the whole partition, across batches.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pyarrow as pa

from asyncio_core import AsyncInvokeError, AsyncWaitOperator, StreamElement, StreamRecord
from jobs.clients.client import Client
from jobs.clients.registry import client_for
from jobs.declare.lookup import Lookup
from jobs.errors import BudgetExhausted, LedgerError, RowFailed, RunCancelled, TidegateError
from jobs.input.arrow_keys import keys_of
from jobs.task.arrow_batches import Assembler, EventTimes, InputBatch
from jobs.task.asked_once import AskedOnce
from jobs.task.call_budget import CallBudget
from jobs.task.chain import Link, raise_failure
from jobs.task.circuit_breaker import CircuitBreaker
from jobs.task.driver_link import ToDriver, with_driver
from jobs.task.durable_output import ROWS_HELD, Finished, durable_batches
from jobs.task.error_text import with_encodable_errors
from jobs.task.known_outcomes import KnownOutcomes, OutcomeSource
from jobs.task.ledger_hits import LedgerHits
from jobs.task.lookup_state import KnownRows, Row
from jobs.task.operators import CAPACITY_PER_CALL, Chain, Surroundings, chain, rows_at_once
from jobs.task.plan import PartitionPlan
from jobs.task.progress import EVERY, AttemptCounts, TaskProgress
from jobs.task.read_ahead import InputQueue, InputWindow
from jobs.task.row_elements import RowElements
from jobs.task.service_lease import answer_of
from jobs.task.task_ledger import TaskLedger

ROWS_PER_BATCH = 2000  # of output
PREFETCH_ROWS = 4000  # beyond what the operators hold
PREFETCH_BYTES = 64 << 20
TURNS_OF_A_CALL = 6  # of the loop, from an answer's bytes to those of the next request
ASK_EVERY = 0.02  # s; between two heartbeats of a task that waits for a lease, at least
LEND_EVERY = 0.02  # s; the last rows of a task are looked at so often


def run_partition(plan: PartitionPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for mapInArrow: every input row leaves once, in the order of the mode."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return PartitionRun(plan, 0, 0).run(batches)
    run = PartitionRun(plan, task.partitionId(), task.attemptNumber())
    return with_encodable_errors(
        run.run(batches) if plan.driver is None else with_driver(run, batches, plan.driver, task)
    )


class PartitionRun:
    """One attempt of one task. A failure of any thread ends all three and is raised to Spark."""

    def __init__(
        self,
        plan: PartitionPlan,
        partition: int,
        attempt: int,
        *,
        client_for: Callable[[Lookup, int], Client] = client_for,
    ) -> None:
        self._plan = plan
        self._client_for = client_for
        self._partition = partition
        # where tasks divide what there is, the driver says more with the first row; of what others have it may keep one
        self._shares = [1 if plan.divides else shares[partition % len(shares)] for shares in plan.shares]
        self._chain: Chain | None = None
        self._progress = TaskProgress(partition, attempt, unit=plan.unit)
        self._window = InputWindow(self._rows_ahead(), PREFETCH_BYTES)
        self._out: queue.SimpleQueue[Finished | BaseException | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watches: list[CircuitBreaker] = []
        self._attempts = AttemptCounts()
        self._begun = (0, 0.0)  # µs by the task's clock, and CPU time of the loop's thread, s
        self._input = InputQueue()
        self._ready: list[Row | KnownRows] = []
        self._rows_ready = 0
        self._assembler = Assembler(plan.layout, partition)
        ledgers = plan.ledgers or (None,) * len(plan.lookups)
        self.now_us = one_clock()
        self._ledgers = [None if one is None else TaskLedger(one, partition, attempt, self.now_us) for one in ledgers]
        self._elements = RowElements(plan.lookups, plan.mode)
        self._known: list[KnownOutcomes] = []
        self._main: asyncio.Task[None] | None = None
        self._driver: ToDriver
        self._all_rows_came = asyncio.Event()
        self._spent = asyncio.Event()  # set when another task is at the cap on calls
        self._asking_soon = False
        self._asked_for_leases = 0  # so often
        self._asked_at: dict[int, float] = {}  # by the loop's time: the latest ones
        self._left = False
        self._stopped: Exception | None = None  # the error to raise, if Spark's thread did not leave
        self._input_failed = False

    def run(self, batches: Iterator[pa.RecordBatch], driver: ToDriver | None = None) -> Iterator[pa.RecordBatch]:
        """The generator that Spark pulls. Leaving early cancels the calls and waits for the loop to end.

        driver: receives the progress, and, if tasks divide the calls in flight, reduced needs.
        """
        self._driver = driver or ToDriver()
        self._loop = loop = asyncio.new_event_loop()
        loop_thread = threading.Thread(target=self._run_loop, args=(loop,), name="tidegate-loop", daemon=True)
        reader = threading.Thread(target=self._read, args=(batches,), name="tidegate-reader", daemon=True)
        loop_thread.start()
        reader.start()
        try:
            for batch in durable_batches(self._out, self._window):
                yield batch
                self._window.give_back(batch.num_rows)
        finally:
            self._window.end()
            self._call_soon(self._leave)
            loop_thread.join()

    def _rows_ahead(self) -> int:
        held = ROWS_HELD if any(self._plan.ledgers) else 0
        at_once = sum(map(rows_at_once, self._plan.lookups, self._shares))
        return PREFETCH_ROWS + held + CAPACITY_PER_CALL * at_once

    def grow(self, shares: Sequence[int]) -> int:
        """From any thread: set the calls in flight per lookup. Returns the current time in µs by the task's clock."""
        now = self.now_us()
        self._call_soon(self._widen, shares)
        return now

    def pause(self, service: str, seconds: float, *, down: bool) -> None:
        """From any thread: another task was throttled for this many seconds, or found the service down."""
        self._call_soon(self._pause, service, seconds, down)

    def take_leases(self, number: int, answers: Mapping[str, Any]) -> None:
        """From any thread: the driver's answer to the heartbeat with this number."""
        self._call_soon(self._take_leases, number, answers)

    def go_alone(self) -> None:
        """From any thread: without a driver, use the initial share."""
        self._call_soon(self._widen, [*map(min, self._plan.shares)])

    def stop(self, reason: str) -> None:
        """From any thread: at once cancel the calls, store arrived answers, and fail the task, because rows are
        missing.
        """
        self.fail(RunCancelled(f"{reason}; rows under way are not written."))

    def fail(self, error: Exception) -> None:
        """From any thread: stop, and raise this error."""
        self._stopped = error
        self._left = True
        self._window.end()
        self._call_soon(self._leave)

    def end_calls(self) -> None:
        """From any thread: another task is at the cap on calls. Start none; fail by the cap once none is in flight."""
        self._call_soon(self._spent.set)

    # -- the reader's thread -------------------------------------------------------------------------------------------

    def _read(self, batches: Iterator[pa.RecordBatch]) -> None:
        end: BaseException | None = None
        try:
            for batch in batches:
                if not self._window.take(batch.num_rows, batch.nbytes):
                    return
                self._call_soon(self._input.put, batch)
        except BaseException as error:  # noqa: BLE001  # whatever ends the input must reach Spark's thread
            end = error
        self._call_soon(self._input.put, end)

    def _call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:  # not begun
            return
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed because the run has ended
            return

    # -- the loop's thread ---------------------------------------------------------------------------------------------

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        end: BaseException | None = None
        try:
            pa.array(["warm"])  # the first imports pandas: seconds with the loop stopped, so before any clock starts
            with rare_collections(), asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._enrich())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001  # whatever it is, Spark's thread raises it
            end = user_facing_error(error)
        if self._stopped is not None:
            end = self._stopped
        elif end is not None and not self._input_failed and not isinstance(end, LedgerError | MemoryError):
            self._driver.say_failed(end)  # Spark's next attempt would repeat the calls and fail again
            if isinstance(end, BudgetExhausted):
                self._driver.wait_for_others()  # Spark cancels them, with their calls in flight, when this one fails
        self._out.put(end)

    def _widen(self, shares: Sequence[int]) -> None:
        self._shares = [*map(max, self._shares, shares)]
        self._window.grow(self._rows_ahead())
        self._fit()

    def _fit(self) -> None:
        """Set the operators' concurrency to this task's share and lease.

        One of them waits for its lease where there is none, so that it is asked for.
        """
        if self._chain is None:
            return
        at_most = [share if lease is None else min(share, max(1, lease.calls))
                   for share, lease in zip(self._shares, self._chain.leases, strict=True)]  # fmt: skip
        self._chain.resize(self._plan.lookups, at_most)

    def _pause(self, service: str, seconds: float, down: bool) -> None:  # noqa: FBT001  # of call_soon
        if self._chain is not None and service in self._chain.by_service:
            self._chain.by_service[service].pause(seconds, down=down)
            self._note_pause(service, seconds)

    def _say_pause(self, service: str, seconds: float, reason: str, down: bool) -> None:  # noqa: FBT001  # as CircuitBreaker passes it
        self._note_pause(service, seconds)
        self._driver.say_pause(service, seconds, reason, down=down)

    def _note_pause(self, service: str, seconds: float) -> None:
        for lease in self._chain.leases if self._chain is not None else ():
            if lease is not None and lease.service == service:
                lease.others_close(seconds)

    # -- leases over runs ----------------------------------------------------------------------------------------------

    def _ask_soon(self) -> None:
        if not self._asking_soon:
            self._asking_soon = True
            asyncio.get_running_loop().call_later(ASK_EVERY, self._ask_for_leases)

    def _ask_for_leases(self) -> None:
        """Send a heartbeat: the current and possible use of limits over runs."""
        self._asking_soon = False
        if self._chain is None or not any(self._chain.leases):
            return
        wants = self._chain.wants(self._shares)
        self._asked_for_leases += 1
        self._asked_at = {number: at for number, at in self._asked_at.items() if number > self._asked_for_leases - 20}
        self._asked_at[self._asked_for_leases] = asyncio.get_running_loop().time()
        leases = {lease.service: lease for lease in self._chain.leases if lease is not None}
        claims = {service: lease.claims(wants[service]) for service, lease in leases.items()}
        self._driver.say_leases(self._asked_for_leases, claims)

    def _take_leases(self, number: int, answers: Mapping[str, Any]) -> None:
        asked_at = self._asked_at.get(number)
        if self._chain is None or asked_at is None or number < self._asked_for_leases:
            return  # a later heartbeat has reported the use
        for lease in {lease.service: lease for lease in self._chain.leases if lease is not None}.values():
            lease.take(answer_of(answers[lease.service]), asked_at=asked_at)
        self._fit()

    def _leave(self) -> None:
        self._left = True
        if self._main is not None:
            self._main.cancel()

    async def _enrich(self) -> None:
        self._main = asyncio.current_task()
        async with AsyncExitStack() as stack:
            if self._left:
                return
            output = self._collect_by_key if self._plan.mode == "key_ordered" else self._collect
            surroundings = self._surroundings(stack)
            self._chain = chained = chain(surroundings, output)
            self._known = [*map(self._known_outcomes, range(len(chained.callers)), chained.callers)]
            operators, links, self._watches = chained.operators, chained.links, chained.watches
            self._begun = self.now_us(), time.thread_time()
            for operator in operators:
                stack.push_async_callback(operator.close)
                await operator.open()
            async with asyncio.TaskGroup() as group:
                ticker = group.create_task(self._tick(operators))
                lender = group.create_task(self._lend(chained))
                capped = group.create_task(self._end_when_spent(surroundings.allowance))
                watches = [group.create_task(raise_failure(operator)) for operator in operators]
                carriers = [group.create_task(link.carry()) for link in links]
                await self._feed(operators[0], links[0] if links else None)
                for link, carrier in zip(links, carriers, strict=True):
                    link.end()
                    await carrier
                await chained.finish()
                for task in (ticker, lender, capped, *watches):
                    task.cancel()
            self._flush()
            self._tell(operators)  # the last report, with all rows

    def _surroundings(self, stack: AsyncExitStack) -> Surroundings:
        """The opened ledgers, which close after the operators, and the task's budget."""
        plan = self._plan
        allowance = None if plan.cap is None else CallBudget(plan.cap, self._partition)
        for place, ledger in enumerate(self._ledgers):
            if ledger is not None:
                stack.callback(ledger.close)
                ledger.open()
                if allowance is not None:
                    allowance.spent_before(place, ledger.earlier_answers)
        return Surroundings(
            plan, self._shares, self._ledgers, allowance, self.now_us, self._attempts, self._client_for,
            on_pause=self._say_pause, ask_soon=self._ask_soon,
        )  # fmt: skip

    def _known_outcomes(self, place: int, caller: Client) -> KnownOutcomes:
        """The outcomes known before any call at one lookup: prefetched, else from the ledger."""
        plan, ledger, answers = self._plan, self._ledgers[place], self._plan.layout.answers[place]
        sources: list[OutcomeSource] = []
        if plan.asked_first and (file := plan.asked_first[place]) is not None:
            sources.append(AskedOnce.open(file))
        if ledger is not None:
            sources += [
                LedgerHits(index, caller, answers, hidden=ledger.hidden, idempotent=plan.lookups[place].idempotent)
                for index in ledger.indexes
            ]
        return KnownOutcomes(answers, sources, may_call=plan.may_call)

    async def _feed(self, operator: AsyncWaitOperator, link: Link | None) -> None:
        """Feed all input into the first operator, with watermarks by event time."""
        layout = self._plan.layout
        event_times = EventTimes(layout.max_out_of_orderness_ms)
        sequence = 0
        while (item := await self._input.take()) is not None:
            if isinstance(item, BaseException):
                self._input_failed = True
                raise item
            keys, known = [], []
            for names, outcomes in zip(layout.keys, self._known, strict=True):
                keys.append(keys_of(item, names))
                await self._let_calls_run()
                known.append(outcomes.find(item, keys[-1]))
                await self._let_calls_run()
            batch = InputBatch(item, layout, sequence, event_times, known)
            sequence += item.num_rows
            for element in self._elements.of(batch, keys):
                if link is not None:
                    await link.room()
                await operator.process_element(element)
            await asyncio.sleep(0)
            await self._let_calls_run()
        self._all_rows_came.set()
        await operator.end_input()

    async def _let_calls_run(self) -> None:
        """Known rows never fill a queue, and a batch of them takes as long as many answers: so let those that came
        meanwhile be taken and the next requests be sent, which is some turns of the loop.
        """
        assert self._chain is not None
        if any(operator.statistics().running for operator in self._chain.operators):
            for _ in range(TURNS_OF_A_CALL):
                await asyncio.sleep(0)

    async def _end_when_spent(self, allowance: CallBudget | None) -> None:
        if allowance is not None:
            await self._spent.wait()
            await allowance.end()

    async def _lend(self, chained: Chain) -> None:
        """Say what the last rows may still need, each time that it has become half: a row that hangs needs one call.

        All that they need is said, above the share too: more may be on its way here, and what is said is kept for ever.
        """
        if not self._plan.divides:
            return
        await self._all_rows_came.wait()
        kept: dict[int, int] = {}  # by lookup, where the share was more
        while len(kept) < len(self._shares) or max(kept.values()) > 1:
            left = chained.outstanding()
            has = [kept.get(place, share) for place, share in enumerate(self._shares)]
            if any(2 * max(1, now) <= then for now, then in zip(left, has, strict=True)):
                self._driver.say_needs(left)
                kept |= {place: now for place, now in enumerate(left) if now <= self._shares[place]}
            await asyncio.sleep(LEND_EVERY)

    def _collect(self, element: StreamElement) -> None:
        if isinstance(element, StreamRecord):
            self._ready.append(element.value)
            self._rows_ready += 1 if type(element.value) is Row else len(element.value.numbers)
            if self._rows_ready >= ROWS_PER_BATCH:
                self._flush()

    def _collect_by_key(self, element: StreamElement) -> None:
        if isinstance(element, StreamRecord) and type(element.value) is Row:
            self._elements.left(element.value)
        self._collect(element)

    def _flush(self) -> None:
        """Pass on finished rows, with the ledger positions that must be stored before they leave."""
        if self._ready:
            self._progress.rows += self._rows_ready
            stored = [ledger.durability_mark() for ledger in self._ledgers if ledger is not None]
            self._out.put((self._assembler.batch(self._ready), stored))
            self._ready, self._rows_ready = [], 0

    # -- progress ------------------------------------------------------------------------------------------------------

    async def _tick(self, operators: list[AsyncWaitOperator]) -> None:
        """Four times a second: report to the driver, and flush finished rows, so that a few large ones do not fill the
        window.
        """
        while True:
            await asyncio.sleep(EVERY)
            self._flush()
            self._tell(operators)
            self._ask_for_leases()

    def _tell(self, operators: list[AsyncWaitOperator]) -> None:
        progress = self._progress
        progress.in_flight = sum(operator.statistics().running for operator in operators)
        progress.take(self._attempts)
        progress.seconds = (self.now_us() - self._begun[0]) / 1e6
        progress.loop_s = time.thread_time() - self._begun[1]
        for lookup, watch in zip(self._plan.lookups, self._watches, strict=True):
            progress.throttled_s[lookup.name], progress.down_s[lookup.name] = watch.closed_seconds()
        if self._plan.progress is not None:
            self._driver.say_progress(progress)


def one_clock(
    monotonic_ns: Callable[[], int] = time.monotonic_ns, time_ns: Callable[[], int] = time.time_ns
) -> Callable[[], int]:
    """µs since the epoch on one monotonic clock; a closure, because it is read twice per row."""
    epoch_us = (time_ns() - monotonic_ns()) // 1000
    return lambda: epoch_us + monotonic_ns() // 1000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Fewer garbage collections for as long as rows flow: their objects make no cycles, and each collection looks at
    all that the window holds, which took a third of the loop's time. What was there before is not looked at:
    all that Spark and Arrow import is a hundred thousand objects, and the loop stands still meanwhile.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def user_facing_error(error: BaseException) -> BaseException:
    """The user-facing error among the causes, if there is one; else the first error of a group, and for a call its
    cause, because the operator's text has the row but not the reason. For a row that fails the run, with the row's
    place.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, RowFailed) and isinstance(error, AsyncInvokeError):
            return RowFailed(f"{below}{_which(error.element.value)}")
        if isinstance(below, TidegateError):
            return below.with_traceback(None)
        below = below.__cause__ or below.__context__
    return error.__cause__ or error if isinstance(error, AsyncInvokeError) else error


def _which(row: Row) -> str:
    file, number = row.batch.source_of(row.number)
    return "" if file is None else f" It is row {number} of {file} (the first is 0)."
