"""The async wait operator: keeps many calls in flight and lets their results out in the promised order."""

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from asyncio_core.arguments import OutputMode, check_concurrency, check_strategy, check_timeout, queue_for
from asyncio_core.calls import Calls
from asyncio_core.elements import StreamElement, StreamRecord
from asyncio_core.function import call_hook, check_function
from asyncio_core.gate import Gate
from asyncio_core.queues import Entry, OrderedStreamElementQueue, check_capacity
from asyncio_core.retry import NO_RETRY, RetryStrategy
from asyncio_core.statistics import OperatorStatistics


class _Stage(enum.Enum):
    NEW = "not open yet"
    OPENING = "still opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class AsyncWaitOperator:
    """Calls an async function for each record and hands every outcome to `output`, in the order of `mode`.

    Use it on one event loop, in this order: open, perhaps restore_state, process_element again and again, end_input,
    and close in every case. It has one producer. The semantics are those of Flink's AsyncWaitOperator.

    The first error fails the operator: nothing starts and nothing leaves any more. The error is raised by every
    process_element and end_input from then on, and by close if none of these has raised it. A record without a result
    gives AsyncInvokeError.

    Args:
        function: What is called for each value; see AsyncFunction.
        output: Called on the loop with each result and each watermark. It must not wait. What it raises fails the
            operator.
        mode: In which order results leave.
        timeout: Seconds for all attempts of a record and the waits between them, from the start of its first call; None
            for no limit.
        capacity: Places in the queue, for records and watermarks, until they are emitted. A full queue holds up the
            input.
        concurrency: Most calls that run at once; `capacity` when None.
        retry_strategy: Which outcomes of a call are worth another call, and when.
        key: Gives the key of a value; for KEY_ORDERED, and for that only.
        gate: While it is closed no attempt starts, and no record's time runs.
        runtime_context: Passed to the function's `open` as it is.

    Raises:
        ValueError: For a wrong argument.
        TypeError: For a function or a strategy that lacks a method.
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
            on_failure=self._fail,
        )
        self._stage = _Stage.NEW
        self._closed = asyncio.Event()
        self._accepting = False  # process_element may put at once: open, no error, no end, nobody in front
        self._producing = False  # a process_element, restore_state or end_input is under way
        self._ended = False
        self._unrestored: deque[StreamElement] = deque()
        self._waiting: StreamElement | None = None  # stands in front of the full queue
        self._size_awaited = -1  # the producer is called as soon as the queue holds no more; -1: nobody waits uncalled
        self._producer: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._error_raised = False
        self._on_failure: Callable[[], object] | None = None
        self._records = self._watermarks = self._restored = self._dropped = 0

    # -- life cycle

    async def open(self) -> None:
        """Open the function, then let records in. When this fails or is cancelled, the operator is closed.

        Raises:
            RuntimeError: When the operator was opened before.
            Exception: What the function's `open` raises.
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
        """Wait until every element taken has left. Retries and time limits go on as ever; no watermark is added.

        A cancelled end_input can be called again; the input stays ended.

        Raises:
            Exception: The error that fails the operator.
            RuntimeError: When the operator is not open, or another call of the producer waits.
        """
        self._check_producer("end_input")
        self._ended = True
        with self._as_the_producer():
            await self._put_unrestored()
            while len(self._queue) > 0:
                await self._queue_holds_at_most(0)

    async def close(self) -> None:
        """Cancel the calls under way, wait for them to end, and close the function. Elements inside are dropped.

        A call that swallows its cancellation is waited for; so it is when close itself is cancelled, and the
        cancellation is raised afterwards. Further calls of close wait for the first and do nothing.

        Raises:
            RuntimeError: When it is called from within the function, or while open is under way.
            Exception: The error that failed the operator, unless it was raised before, or what the function's `close`
                raises.
        """
        if self._calls.runs_in(asyncio.current_task()):
            raise RuntimeError("close() cannot be called from within the function: it waits for the call to end")
        if self._stage is _Stage.OPENING:
            raise RuntimeError("close() while open() is under way: cancel open() instead, it cleans up after itself")
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
        """Take one record or watermark; wait while the queue is full. Cancelled, it has not taken its element.

        Args:
            element: A StreamRecord or a Watermark.

        Raises:
            Exception: The error that fails the operator.
            RuntimeError: When the operator is not open, the input has ended, or another process_element waits.
        """
        if not self._accepting:
            self._check_takes("process_element")
            await self._put_when_there_is_room(element)
            return
        entry = self._queue.try_put(element)
        if entry is None:
            await self._put_when_there_is_room(element)
        elif type(element) is StreamRecord:  # as in _enter, whose frame would cost 3 %
            self._records += 1
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
            await self._queue_holds_at_most(self._queue.capacity - 1)
        return entry

    def resize(self, *, capacity: int, concurrency: int) -> None:
        """Allow so many places in the queue and so many calls at once from now on, more or fewer than before.

        With fewer, calls under way go on and elements inside stay: no call starts until fewer than `concurrency` run,
        and no element is taken until fewer than `capacity` are inside. Call it between open and close, from within the
        function and from `output` too.

        Args:
            capacity: Places in the queue, at least 1.
            concurrency: Calls that run at once, from 1 to `capacity`.

        Raises:
            ValueError: When either number is out of its range; nothing has changed then.
        """
        check_capacity(capacity)
        self._concurrency = check_concurrency(concurrency, capacity)
        self._queue.capacity = capacity
        self._calls.resize(concurrency)
        self._call_producer()

    def yield_slot(self) -> AbstractContextManager[None]:
        """For a call that waits for another one of this operator: `with operator.yield_slot(): await ...`.

        Inside, it takes no part of `concurrency`, so that it keeps no record from being called; its time limit runs on.
        After it the call counts again at once, and is to return: until other calls have, one more may run.

        Returns:
            The context manager.
        """
        return self._calls.aside()

    def _enter(self, entry: Entry) -> None:
        if type(entry.element) is StreamRecord:
            self._records += 1
            self._calls.add(entry)
        else:
            self._watermarks += 1
            self._emit()
            self._check_usable()

    async def _queue_holds_at_most(self, size: int) -> None:
        """Wait for that, or for more places."""
        self._size_awaited = size
        self._producer = asyncio.get_running_loop().create_future()
        try:
            await self._producer
        finally:
            self._size_awaited = -1
            self._producer = None
            self._calls.expect_records(False)
        self._check_usable()

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
                self._stage is _Stage.OPEN and self._error is None and not self._ended and not self._unrestored
            )

    def _check_producer(self, method: str) -> None:
        self._check_usable()
        if self._producing:
            raise RuntimeError(f"{method}() while another call is waiting: an operator has one producer at a time")

    def _check_takes(self, method: str) -> None:
        self._check_producer(method)
        if self._ended:
            raise RuntimeError(f"{method}() after end_input(): the input has ended")

    def _check_usable(self) -> None:
        if self._stage is not _Stage.OPEN:
            raise RuntimeError(f"the operator is {self._stage.value}; it takes elements between open() and close()")
        if self._error is not None:
            self._raise_error()

    # -- output

    def _emit(self) -> None:
        """Hand out all that may leave now, and call the producer if that makes the room it waits for."""
        if self._error is not None:
            return
        queue = self._queue
        try:
            queue.emit_all_completed(self._output)
        except BaseException as error:
            self._fail(error)
            if isinstance(error, Exception):
                return  # raised to the producer
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
        """Have a callback called, on the loop, when the operator fails: for a producer that waits elsewhere.

        Args:
            callback: Called without arguments, once. It replaces the one given before.
        """
        self._on_failure = callback

    def _raise_error(self) -> NoReturn:
        assert self._error is not None
        self._error_raised = True
        raise self._error

    # -- state

    def snapshot_state(self) -> list[StreamElement]:
        """All elements taken whose results have not left yet, and those not taken yet: give them to restore_state.

        Finished elements that wait for their turn are among them and will be called again. Results, attempts and clocks
        are not kept. Can be called at any moment between open and close; what leaves later is not subtracted.

        Returns:
            The elements, in an order in which they may be taken again.

        Raises:
            RuntimeError: When the operator is not open.
        """
        if self._stage is not _Stage.OPEN:
            raise RuntimeError(f"the operator is {self._stage.value}; it has a state between open() and close()")
        state = [*self._queue.values(), *self._unrestored]
        return state if self._waiting is None else [*state, self._waiting]

    async def restore_state(self, elements: Iterable[StreamElement]) -> None:
        """Take the elements of a snapshot, in their order, before any new input; wait while the queue is full.

        Cancelled, those not taken yet stay in the operator and its snapshots, and enter before the next element does.

        Args:
            elements: What snapshot_state gave; there may be more of them than the capacity.

        Raises:
            RuntimeError: After new input, after the end of input, or when the operator is not open.
            TypeError: For an element that is no StreamRecord or Watermark.
            Exception: The error that fails the operator.
        """
        self._check_producer("restore_state")
        if self._ended or self._records + self._watermarks > self._restored:
            raise RuntimeError("restore_state() after new input: restored elements come first")
        restored = list(elements)
        for element in restored:
            if not isinstance(element, StreamElement):
                raise TypeError(f"a state holds StreamRecord and Watermark, got {type(element).__name__}")
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
        """The figures of this moment; they stay readable after close."""
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
