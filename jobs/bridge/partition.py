"""The bridge from one Spark partition to the operators: an event loop beside Spark's generator.

Three threads. The reader pulls Spark's input, bounded in rows and bytes. The loop runs one operator per lookup,
chained. The generator, Spark's own thread, only yields. The window slides over the whole partition, across batches.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from asyncio_core import (
    AsyncWaitOperator,
    Gate,
    OutputMode,
    StreamElement,
    StreamRecord,
    Watermark,
    exponential_backoff,
)
from jobs.bridge.asking import Asked, Asking, Row
from jobs.bridge.batches import Assembler, BatchLayout, EventTimes, InputBatch, keys_of
from jobs.bridge.chain import Link, Operator, calls_in_flight, raise_failure
from jobs.bridge.desk import DeskAddress
from jobs.bridge.input_window import InputWindow
from jobs.bridge.outage import OutageWatch
from jobs.bridge.progress import EVERY, ProgressSender, TaskProgress
from jobs.bridge.sharing import SharedAsking, SharingOperator
from jobs.bridge.stopping import watched
from jobs.errors import RunCancelled, TidegateError
from jobs.ledger.task_plan import CallCap, LedgerPlan
from jobs.lookups import Lookup

CAPACITY_PER_CALL = 16  # entries per call in flight: keeps a slow head from starving ordered mode (1.01 x the limit)
ROWS_PER_BATCH = 1000  # of output
PREFETCH_ROWS = 4000  # beyond what the operators hold
PREFETCH_BYTES = 64 << 20
MODES = {
    "ordered": OutputMode.ORDERED,
    "unordered": OutputMode.UNORDERED,
    "key_ordered": OutputMode.KEY_ORDERED,
}
FOR_EVER = 1_000_000_000  # retries; the predicate decides, as it knows which attempts count


@dataclass(frozen=True)
class PartitionPlan:
    """What a task needs to know; plain data that travels to the executors."""

    lookups: tuple[Lookup, ...]
    shares: tuple[tuple[int, ...], ...]  # per lookup: calls in flight of each partition, by number
    mode: str
    layout: BatchLayout
    progress: tuple[str, int] | None
    ledgers: tuple[LedgerPlan | None, ...] = ()  # per lookup; none at all: nothing is stored
    may_call: bool = True  # False: a key without an answer leaves as not_asked
    cap: CallCap | None = None
    desk: DeskAddress | None = None  # where a task reports before it works

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What mapInArrow runs: every input row leaves once, in the order of the mode."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            return PartitionRun(self, 0, 0).run(batches)
        return watched(PartitionRun(self, task.partitionId(), task.attemptNumber()), batches, self.desk, task)


class PartitionRun:
    """One attempt of one task. A failure of any thread ends all three and is raised to Spark."""

    def __init__(self, plan: PartitionPlan, partition: int, attempt: int) -> None:
        self._plan = plan
        self._partition = partition
        self._shares = [shares[partition % len(shares)] for shares in plan.shares]
        self._progress = TaskProgress(partition, attempt)
        at_once = sum(share * lookup.batch_size for share, lookup in zip(self._shares, plan.lookups, strict=True))
        self._window = InputWindow(PREFETCH_ROWS + CAPACITY_PER_CALL * at_once, PREFETCH_BYTES)
        self._out: queue.SimpleQueue[pa.RecordBatch | BaseException | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sender: ProgressSender
        self._input: asyncio.Queue[pa.RecordBatch | BaseException | None] = asyncio.Queue()
        self._ready: list[Row] = []
        self._assembler = Assembler(plan.layout, partition)
        self._epoch_us = time.time_ns() // 1000 - int(time.monotonic() * 1e6)
        self._main: asyncio.Task[None] | None = None
        self._left = False
        self._stopped: str | None = None  # why, when it was not Spark's thread that left

    def now_us(self) -> int:
        """µs since the epoch on this partition's one monotonic clock."""
        return self._epoch_us + int(time.monotonic() * 1e6)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The generator that Spark pulls. Left early, it cancels the calls and waits for the loop to end."""
        self._loop = loop = asyncio.new_event_loop()
        self._sender = ProgressSender(self._plan.progress)
        loop_thread = threading.Thread(target=self._run_loop, args=(loop,), name="tidegate-loop", daemon=True)
        reader = threading.Thread(target=self._read, args=(batches,), name="tidegate-reader", daemon=True)
        loop_thread.start()
        reader.start()
        try:
            while (item := self._out.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
                self._window.give_back(item.num_rows)
        finally:
            self._window.end()
            self._call_soon(self._leave)
            loop_thread.join()

    def stop(self, reason: str) -> None:
        """From any thread, at once: cancel the calls, store what came back, and fail the task, as rows are missing."""
        self._stopped = reason
        self._left = True
        self._window.end()
        self._call_soon(self._leave)

    # -- the reader's thread -------------------------------------------------------------------------------------------

    def _read(self, batches: Iterator[pa.RecordBatch]) -> None:
        end: BaseException | None = None
        try:
            for batch in batches:
                if not self._window.take(batch.num_rows, batch.nbytes):
                    return
                self._call_soon(self._input.put_nowait, batch)
        except BaseException as error:  # noqa: BLE001  # whatever ends the input must reach Spark's thread
            end = error
        self._call_soon(self._input.put_nowait, end)

    def _call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:  # not begun
            return
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the run has ended, nobody waits for this
            return

    # -- the loop's thread ---------------------------------------------------------------------------------------------

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        end: BaseException | None = None
        try:
            pa.array(["warm"])  # the first imports pandas: seconds with the loop stopped, so before any clock starts
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._enrich())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001  # whatever it is, Spark's thread raises it
            end = told_to_people(error)
        if self._stopped is not None:
            end = RunCancelled(f"{self._stopped}; rows under way are not written.")
        self._out.put(end)

    def _leave(self) -> None:
        self._left = True
        if self._main is not None:
            self._main.cancel()

    async def _enrich(self) -> None:
        self._main = asyncio.current_task()
        async with AsyncExitStack() as stack:
            stack.callback(self._sender.close)
            if self._left:
                return
            operators, links = self._chain()
            for operator in operators:
                stack.push_async_callback(operator.close)
                await operator.open()
            async with asyncio.TaskGroup() as group:
                ticker = group.create_task(self._tick(operators))
                watches = [group.create_task(raise_failure(operator)) for operator in operators]
                carriers = [group.create_task(link.carry()) for link in links]
                await self._feed(operators[0], links[0] if links else None)
                for link, carrier in zip(links, carriers, strict=True):
                    link.end()
                    await carrier
                for task in (ticker, *watches):
                    task.cancel()
            self._tell(operators)
        self._flush()

    def _chain(self) -> tuple[list[Operator], list[Link]]:
        """One operator per lookup, and the links that carry what each lets out into the next one."""
        plan = self._plan
        watched: dict[tuple[str, str], tuple[Gate, OutageWatch]] = {}
        for lookup in plan.lookups:  # lookups of one service share its gate
            gate = Gate()
            called = f"{lookup.service_name} at {lookup.address}" if lookup.address else lookup.service_name
            batch_size = max(other.batch_size for other in plan.lookups if other.service_key == lookup.service_key)
            watch = OutageWatch(lookup.outage_rule, called, gate, self.now_us, batch_size=batch_size)
            watched.setdefault(lookup.service_key, (gate, watch))
        operators: list[Operator] = []
        links: list[Link] = []
        output: Callable[[StreamElement], None] = self._collect
        for place, lookup in reversed(list(enumerate(plan.lookups))):
            gate, watch = watched[lookup.service_key]
            operators.insert(0, self._operator(lookup, place, gate, watch, output))
            if place > 0:
                links.insert(0, Link(operators[0], links[0] if links else None))
                output = links[0].put
        return operators, links

    def _operator(
        self, lookup: Lookup, place: int, gate: Gate, watch: OutageWatch, output: Callable[[StreamElement], None]
    ) -> Operator:
        share, retry = self._shares[place], lookup.retry
        facts: dict[str, Any] = {
            "place": place,
            "gate": gate,
            "watch": watch,
            "now_us": self.now_us,
            "on_attempt": self._count_attempt,
        }
        caller = lookup.caller(share)
        rows = share * lookup.batch_size  # that may be asked for at once
        shared = (
            None if lookup.cache is None else SharedAsking(lookup, caller, share=rows, cache=lookup.cache, **facts)
        )
        asking = shared or Asking(lookup, caller, **facts)
        options: dict[str, Any] = {
            "mode": MODES[self._plan.mode],
            "timeout": lookup.timeout,
            "capacity": CAPACITY_PER_CALL * rows,
            "gate": gate,
            "key": order_key_of if self._plan.mode == "key_ordered" else None,
            "retry_strategy": exponential_backoff(
                max_retries=FOR_EVER,
                initial_delay=retry.initial_delay,
                max_delay=retry.max_delay,
                multiplier=retry.multiplier,
                jitter=retry.jitter,
                on_result=asking.again,
            ),
        }
        if shared is not None:
            return SharingOperator(shared, output, **options)
        return AsyncWaitOperator(asking, output, concurrency=rows, **options)

    async def _feed(self, operator: Operator, link: Link | None) -> None:
        """All input through the first operator, with a watermark wherever the event time calls for one."""
        layout = self._plan.layout
        event_times = EventTimes(layout.max_out_of_orderness_ms)
        sequence = 0
        while (item := await self._input.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            batch = InputBatch(item, layout, sequence, event_times)
            sequence += item.num_rows
            timestamps, watermarks = batch.timestamps, batch.watermarks
            keys = [keys_of(item, names) for names in layout.keys]
            for index, row_keys in enumerate(zip(*keys, strict=True)):
                if link is not None:
                    await link.room()
                row = Row(batch, index, tuple(map(Asked, row_keys)))
                await operator.process_element(StreamRecord(row, timestamps[index] if timestamps else None))
                if watermarks and (watermark := watermarks[index]) is not None:
                    await operator.process_element(Watermark(watermark))
        await operator.end_input()

    def _collect(self, element: StreamElement) -> None:
        if isinstance(element, StreamRecord):
            self._ready.append(element.value)
            self._progress.rows += 1
            if len(self._ready) >= ROWS_PER_BATCH:
                self._flush()

    def _flush(self) -> None:
        if self._ready:
            self._out.put(self._assembler.batch(self._ready))
            self._ready = []

    # -- progress ------------------------------------------------------------------------------------------------------

    def _count_attempt(self, seconds: float, *, retried: bool, answered: bool, timed_out: bool) -> None:
        progress = self._progress
        progress.calls += 1
        progress.retries += retried
        progress.timeouts += timed_out
        if answered:
            progress.answered(seconds)

    async def _tick(self, operators: list[Operator]) -> None:
        """Four times a second: tell the driver; let finished rows out, lest a few fat ones fill the window."""
        while True:
            await asyncio.sleep(EVERY)
            self._flush()
            self._tell(operators)

    def _tell(self, operators: list[Operator]) -> None:
        self._progress.in_flight = sum(map(calls_in_flight, operators))
        self._sender.send(self._progress)


def order_key_of(row: Row) -> Any:
    return row.batch.order_keys[row.index]


def told_to_people(error: BaseException) -> BaseException:
    """Our own sentence, where one lies somewhere below; else the first error of a group, else the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, TidegateError):
            return below.with_traceback(None)
        below = below.__cause__ or below.__context__
    return error
