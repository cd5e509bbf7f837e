"""The async wait operator: keeps many calls in flight and emits results in order."""

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from asyncio_core.arguments import (
    OutputMode,
    check_concurrency,
    check_plain,
    check_strategy,
    check_timeout,
    queue_for,
)
from asyncio_core.calls import Calls
from asyncio_core.elements import StreamElement, StreamRecord
from asyncio_core.function import call_hook, check_function
from asyncio_core.gate import Gate
from asyncio_core.queues import Entry, OrderedStreamElementQueue, check_capacity
from asyncio_core.retry import NO_RETRY, RetryStrategy
from asyncio_core.statistics import OperatorStatistics

# A producer that waits is woken for this part of the places beyond the calls. A wake-up for each
# place would cost a call over HTTP another 5 %.
PART_AT_ONCE = 8


class _Stage(enum.Enum):
    NEW = "not open yet"
    OPENING = "still opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class AsyncWaitOperator:
    """Calls an async function for each record and passes the results to `output`, in the order of
    `mode`.

    Use it on one event loop, in this order: open, perhaps restore_state, process_element again and
    again, end_input, and close in every case. It has one producer. The semantics are those of
    Flink's AsyncWaitOperator.

    The first error fails the operator: no call starts and no result leaves after it. Every later
    process_element and end_input raises the error, and close does if none of these has. A record
    without a result raises AsyncInvokeError.

    Args:
        function: The function to call for each value; see AsyncFunction.
        output: Called on the loop with each result and each watermark. It must not wait. An
            exception from it fails the operator.
        mode: The order of the output.
        timeout: Seconds for all attempts of a record and the waits between them, from the start of
            its first call; None: no limit.
        capacity: Places in the queue, for records and watermarks, until they are emitted. A full
            queue blocks the input: until several places are free while records wait for calls, else
            until one is.
        concurrency: The highest number of concurrent calls; None: `capacity`.
        retry_strategy: Which outcomes of a call are retried, and when.
        key: Returns the key of a value; only for KEY_ORDERED.
        gate: While it is closed no attempt starts, and no record's time runs.
        runtime_context: Passed to the function's `open` unchanged.

    Raises:
        ValueError: An argument is wrong.
        TypeError: The function or the strategy lacks a method; or `output`, `key` or a method of
            the strategy is not a plain function.
    """

    def __init__(
        self,
        function: Any,
        output: Callable[[StreamElement], None],
        *,
        mode: OutputMode,
        timeout: float | None,
        capacity: int = 100,
        concurrency: int | None = None,
        retry_strategy: RetryStrategy = NO_RETRY,
        key: Callable[[Any], Hashable] | None = None,
        gate: Gate | None = None,
        runtime_context: Any = None,
    ) -> None:
        check_function(function)
        check_plain("output", output)
        self._queue = queue_for(mode, capacity, key)
        self._concurrency = check_concurrency(concurrency, capacity)
        check_timeout(timeout)
        check_strategy(retry_strategy)
        self._function = function
        self._output = output
        self._runtime_context = runtime_context
        self._calls = Calls(
            function,
            concurrency=self._concurrency,
            timeout=timeout,
            retry_strategy=retry_strategy,
            gate=Gate() if gate is None else gate,
            on_completed=self._emit,
            on_all_taken=self._offer_any_place,
            on_failure=self._fail,
        )
        self._backlog = self._calls.backlog
        self._stage = _Stage.NEW
        self._closed = asyncio.Event()
        # process_element may put at once: open, no error, no end, no waiting element
        self._accepting = False
        self._producing = False  # a process_element, restore_state or end_input is running
        self._ended = False
        self._unrestored: deque[StreamElement] = deque()
        self._waiting: StreamElement | None = None  # waits for a place in the full queue
        # wakes the producer when the queue holds at most this number; -1: no producer waits
        self._size_awaited = -1
        self._producer: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._error_raised = False
        self._on_failure: Callable[[], object] | None = None
        self._records = self._watermarks = self._restored = self._dropped = 0

    # -- life cycle

    async def open(self) -> None:
        """Open the function and accept records. If this fails or is cancelled, the operator closes.

        Raises:
            RuntimeError: The operator was opened before.
            Exception: The function's `open` failed.
        """
        if self._stage is not _Stage.NEW:
            raise RuntimeError(f"an operator is opened once; this one is {self._stage.value}")
        self._stage = _Stage.OPENING
        try:
            await call_hook(self._function, "open", self._runtime_context)
            self._calls.open()
        except BaseException as error:
            await self._close_failed_open(error)
            raise
        self._stage = _Stage.OPEN
        self._accepting = True

    async def _close_failed_open(self, error: BaseException) -> None:
        try:
            await call_hook(self._function, "close")
        except Exception as second:  # noqa: BLE001 - noted on the error that is raised
            error.add_note(f"closing the function failed too: {second!r}")
        finally:
            self._stage = _Stage.CLOSED
            self._closed.set()

    async def end_input(self) -> None:
        """Wait until every accepted element has left. Retries and time limits continue.

        It adds no watermark. After a cancellation it can be called again; the input stays ended.

        Raises:
            Exception: The error that fails the operator.
            RuntimeError: The operator is not open, or another call of the producer waits.
        """
        self._check_producer("end_input")
        self._ended = True
        with self._as_the_producer():
            await self._put_unrestored()
            while len(self._queue) > 0:
                await self._queue_holds_at_most(0)

    async def close(self) -> None:
        """Cancel the running calls, wait for their end, and close the function; drop all elements.

        Close also waits for a call that swallows its cancellation. If close itself is cancelled
        while calls end, it finishes first and then raises the cancellation; while the function's
        `close` runs, the cancellation reaches that. Further calls of close wait for the first and
        do nothing.

        Raises:
            RuntimeError: Close was called from within the function, or while open runs.
            Exception: The error that failed the operator, unless it was raised before, or the error
                of the function's `close`.
        """
        if self._calls.runs_in(asyncio.current_task()):
            raise RuntimeError(
                "close() cannot be called from within the function: it waits for the call to end"
            )
        if self._stage is _Stage.OPENING:
            raise RuntimeError(
                "close() while open() is under way: cancel open() instead, it "
                "cleans up after itself"
            )
        if self._stage is _Stage.NEW:
            self._stage = _Stage.CLOSED
            self._closed.set()
        if self._stage is not _Stage.OPEN:
            await self._closed.wait()
            return
        self._stage = _Stage.CLOSING
        self._accepting = False
        self._call_producer()
        interruption = await self._calls.close()
        try:
            await call_hook(self._function, "close")
        except Exception as error:
            first = interruption or (None if self._error_raised else self._error)
            if first is None:
                raise
            first.add_note(f"closing the function failed too: {error!r}")
        finally:
            self._drop_elements()
            self._stage = _Stage.CLOSED
            self._closed.set()
        if interruption is not None:
            raise interruption
        if self._error is not None and not self._error_raised:
            self._raise_error()

    def _drop_elements(self) -> None:
        self._dropped = len(self._queue)
        self._queue = OrderedStreamElementQueue(self._queue.capacity)
        self._unrestored.clear()

    # -- input

    async def process_element(self, element: StreamElement) -> None:
        """Accept a record or watermark; wait while the queue is full.

        A cancelled call has not accepted the element.

        Args:
            element: A StreamRecord or a Watermark.

        Raises:
            Exception: The error that fails the operator.
            RuntimeError: The operator is not open, the input has ended, or another process_element
                waits.
        """
        if not self._accepting:
            self._check_producer("process_element")
            if self._ended:
                raise RuntimeError("process_element() after end_input(): the input has ended")
            await self._put_when_there_is_room(element)
            return
        entry = self._queue.try_put(element)
        if entry is None:
            await self._put_when_there_is_room(element)
        elif type(element) is StreamRecord:  # as in _enter, whose frame would cost 3 %
            self._records += 1
            if self._backlog:  # spares the frame of add: 6 %
                self._backlog.append(entry)
            else:
                self._calls.add(entry)
        else:
            self._enter(entry)

    async def _put_when_there_is_room(self, element: StreamElement) -> None:
        self._waiting = element
        with self._as_the_producer():
            await self._put_unrestored()
            entry = await self._put(element)
            self._waiting = None
            self._enter(entry)

    async def _put(self, element: StreamElement) -> Entry:
        while (entry := self._queue.try_put(element)) is None:
            capacity = self._queue.capacity
            places = (capacity - self._concurrency) // PART_AT_ONCE if self._backlog else 1
            await self._queue_holds_at_most(capacity - max(1, places))
        return entry

    def resize(self, *, capacity: int, concurrency: int) -> None:
        """Set the places in the queue and the number of concurrent calls.

        Lower values cancel no call and drop no element: no call starts until fewer than
        `concurrency` run, and no element is accepted until fewer than `capacity` are in the queue.
        Call it between open and close, also from within the function or `output`.

        Args:
            capacity: Places in the queue, at least 1.
            concurrency: Calls that run at once, from 1 to `capacity`.

        Raises:
            ValueError: A number is out of its range; nothing changes.
        """
        check_capacity(capacity)
        self._concurrency = check_concurrency(concurrency, capacity)
        self._queue.capacity = capacity
        self._calls.resize(concurrency)
        self._call_producer()

    def yield_slot(self) -> AbstractContextManager[None]:
        """Release a call's slot during a wait: `with operator.yield_slot(): await ...`.

        Inside, the call does not count for `concurrency`, so it blocks no other record; its time
        limit keeps running. After it the call counts again at once and should return: until other
        calls end, one call too many may run.

        Returns:
            The context manager.
        """
        return self._calls.aside()

    def take_slot(self) -> Callable[[], None]:
        """Use a free slot for a call that the function makes beside the records' calls.

        Returns:
            A function that gives the slot back; until then the call counts for `concurrency`.
        """
        self._calls.take_slot()
        return self._calls.give_slot

    def _enter(self, entry: Entry) -> None:
        if type(entry.element) is StreamRecord:
            self._records += 1
            self._calls.add(entry)
        else:
            self._watermarks += 1
            self._emit()
            self._check_usable()

    async def _queue_holds_at_most(self, size: int) -> None:
        """Wait until the queue holds at most this many entries."""
        self._size_awaited = size
        self._producer = asyncio.get_running_loop().create_future()
        try:
            await self._producer
        finally:
            self._size_awaited = -1
            self._producer = None
            self._calls.expect_records(False)
        self._check_usable()

    def _offer_any_place(self) -> None:
        """Wake a producer that waits for several places: without more records, workers idle."""
        if self._size_awaited > 0:
            self._size_awaited = self._queue.capacity - 1
            self._emit()

    def _call_producer(self) -> None:
        if self._producer is not None and not self._producer.done():
            self._size_awaited = -1
            self._producer.set_result(None)
            self._calls.expect_records(not self._ended)

    @contextmanager
    def _as_the_producer(self) -> Iterator[None]:
        self._accepting = False
        self._producing = True
        try:
            yield
        finally:
            self._waiting = None
            self._producing = False
            self._accepting = (
                self._stage is _Stage.OPEN
                and self._error is None
                and not self._ended
                and not self._unrestored
            )

    def _check_producer(self, method: str) -> None:
        self._check_usable()
        if self._producing:
            raise RuntimeError(
                f"{method}() while another call is waiting: an operator has one producer at a time"
            )

    def _check_usable(self) -> None:
        if self._stage is not _Stage.OPEN:
            raise RuntimeError(
                f"the operator is {self._stage.value}; it takes elements between open() and close()"
            )
        if self._error is not None:
            self._raise_error()

    # -- output

    def _emit(self) -> None:
        """Emit everything that may leave now, and wake the producer if that makes room for it."""
        if self._error is not None:
            return
        queue = self._queue
        try:
            queue.emit_all_completed(self._output)
        except BaseException as error:
            self._fail(error)
            if isinstance(error, (Exception, asyncio.CancelledError)):
                return  # the producer raises it
            raise
        if self._size_awaited >= 0 and len(queue) <= self._size_awaited:
            self._call_producer()

    def _fail(self, error: BaseException) -> None:
        if self._error is not None:
            return
        self._error = error
        self._accepting = False
        self._calls.stop()
        self._call_producer()
        if self._on_failure is not None:
            self._on_failure()

    def call_on_failure(self, callback: Callable[[], object]) -> None:
        """Register a callback for the operator's failure, for a producer that waits elsewhere.

        Args:
            callback: Called once, on the loop, without arguments. It replaces an earlier callback.
        """
        self._on_failure = callback

    def _raise_error(self) -> NoReturn:
        assert self._error is not None
        self._error_raised = True
        if isinstance(self._error, asyncio.CancelledError):  # nobody cancelled the producer
            raise RuntimeError("output raised CancelledError") from self._error  # noqa: TRY004
        raise self._error

    # -- state

    def snapshot_state(self) -> list[StreamElement]:
        """Return all elements whose results have not left yet, for restore_state.

        They include finished elements that wait for their turn, which will be called again. A
        snapshot has no results, attempts or clocks. Call it at any moment between open and close;
        it does not follow later output.

        Returns:
            The elements, in an order in which they can be restored.

        Raises:
            RuntimeError: The operator is not open.
        """
        if self._stage is not _Stage.OPEN:
            raise RuntimeError(
                f"the operator is {self._stage.value}; it has a state between open() and close()"
            )
        state = [*self._queue.values(), *self._unrestored]
        return state if self._waiting is None else [*state, self._waiting]

    async def restore_state(self, elements: Iterable[StreamElement]) -> None:
        """Restore a snapshot's elements in order, before new input; wait while the queue is full.

        If cancelled, the remaining elements stay in the operator and its snapshots, and enter
        before the next element.

        Args:
            elements: The result of snapshot_state; may exceed the capacity.

        Raises:
            RuntimeError: There was new input, the input has ended, or the operator is not open.
            TypeError: An element is no StreamRecord or Watermark.
            Exception: The error that fails the operator.
        """
        self._check_producer("restore_state")
        if self._ended or self._records + self._watermarks > self._restored:
            raise RuntimeError("restore_state() after new input: restored elements come first")
        restored = list(elements)
        for element in restored:
            if not isinstance(element, StreamElement):
                raise TypeError(
                    f"a state holds StreamRecord and Watermark, got {type(element).__name__}"
                )
        self._unrestored.extend(restored)
        with self._as_the_producer():
            await self._put_unrestored()

    async def _put_unrestored(self) -> None:
        while self._unrestored:
            entry = await self._put(self._unrestored[0])
            self._unrestored.popleft()
            self._restored += 1
            self._enter(entry)

    def statistics(self) -> OperatorStatistics:
        """Return the current statistics; they are readable after close too."""
        calls = self._calls
        return OperatorStatistics(
            capacity=self._queue.capacity,
            concurrency=self._concurrency,
            queued=len(self._queue),
            running=calls.running(),
            waiting_for_retry=calls.waiting_for_retry,
            outstanding=calls.outstanding(),
            records=self._records,
            watermarks=self._watermarks,
            emitted=self._records + self._watermarks - len(self._queue) - self._dropped,
            attempts=self._records - calls.never_called() + calls.retries,
            retries=calls.retries,
            timeouts=calls.timeouts,
            failures=calls.failures,
            cancelled=calls.cancelled,
        )
