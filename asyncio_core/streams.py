"""The operator as an async generator: elements in, elements out."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Hashable, Iterable
from typing import Any

from asyncio_core.arguments import OutputMode
from asyncio_core.elements import StreamElement
from asyncio_core.retry import NO_RETRY, RetryStrategy
from asyncio_core.wait_operator import AsyncWaitOperator

Elements = Iterable[StreamElement] | AsyncIterable[StreamElement]


def ordered_wait(
    elements: Elements,
    function: Any,
    *,
    timeout: float | None,
    capacity: int = 100,
    concurrency: int | None = None,
    retry_strategy: RetryStrategy = NO_RETRY,
) -> AsyncGenerator[StreamElement, None]:
    """Yield the results of `function` for `elements`, and watermarks, in input order.

    Nothing runs before the first element is requested. At most capacity + 1 elements are held. If
    the source or the function raises, or a record exceeds its timeout, the generator yields the
    results that may leave by then and raises the error. Leaving the generator (`aclose()`, or
    `contextlib.aclosing` around a loop with `break`) cancels the calls, waits for their end and
    closes the function; a source with resources is closed by who made it. If the function had
    failed for a record by then, leaving raises its AsyncInvokeError, even for a record that was not
    asked for; an error of the source that was not raised by then is dropped.

    Args:
        elements: StreamRecords and Watermarks, from an iterable or an async iterable.
        function: As for AsyncWaitOperator, like the arguments below.
        timeout: Seconds for all attempts of a record, or None.
        capacity: Places in the queue.
        concurrency: The highest number of concurrent calls; None: `capacity`.
        retry_strategy: Which outcomes of a call are retried, and when.

    Returns:
        An async generator of StreamRecords and Watermarks.

    Raises:
        ValueError: At the call: an argument is wrong.
        TypeError: At the call: the elements cannot be iterated, the function lacks a method, or a
            predicate is not a plain function.
        AsyncInvokeError: While iterating, as for AsyncWaitOperator; so are errors of the source.
    """
    return _waited(
        elements,
        function,
        OutputMode.ORDERED,
        timeout,
        capacity,
        concurrency,
        retry_strategy,
        key=None,
    )


def unordered_wait(
    elements: Elements,
    function: Any,
    *,
    timeout: float | None,
    capacity: int = 100,
    concurrency: int | None = None,
    retry_strategy: RetryStrategy = NO_RETRY,
) -> AsyncGenerator[StreamElement, None]:
    """Yield the results as records are completed; none crosses a watermark.

    Args:
        elements: As for ordered_wait, and so are the other arguments, the result and the errors.
        function: The function to call for each value.
        timeout: Seconds for all attempts of a record, or None.
        capacity: Places in the queue.
        concurrency: The highest number of concurrent calls; None: `capacity`.
        retry_strategy: Which outcomes of a call are retried, and when.
    """
    return _waited(
        elements,
        function,
        OutputMode.UNORDERED,
        timeout,
        capacity,
        concurrency,
        retry_strategy,
        key=None,
    )


def key_ordered_wait(
    elements: Elements,
    function: Any,
    *,
    timeout: float | None,
    capacity: int = 100,
    concurrency: int | None = None,
    retry_strategy: RetryStrategy = NO_RETRY,
    key: Callable[[Any], Hashable],
) -> AsyncGenerator[StreamElement, None]:
    """Yield the results as records are completed, in input order for each key; none crosses a
    watermark.

    Args:
        elements: As for ordered_wait, and so are the other arguments, the result and the errors.
        function: The function to call for each value.
        timeout: Seconds for all attempts of a record, or None.
        capacity: Places in the queue.
        concurrency: The highest number of concurrent calls; None: `capacity`.
        retry_strategy: Which outcomes of a call are retried, and when.
        key: Gives the key of a value.
    """
    return _waited(
        elements,
        function,
        OutputMode.KEY_ORDERED,
        timeout,
        capacity,
        concurrency,
        retry_strategy,
        key=key,
    )


def _waited(  # noqa: PLR0917 - called only from the three functions above
    elements: Elements,
    function: Any,
    mode: OutputMode,
    timeout: float | None,
    capacity: int,
    concurrency: int | None,
    retry_strategy: RetryStrategy,
    *,
    key: Callable[[Any], Hashable] | None,
) -> AsyncGenerator[StreamElement, None]:
    if not isinstance(elements, (Iterable, AsyncIterable)):
        raise TypeError(
            f"elements must be an iterable or async iterable, got {type(elements).__name__}"
        )
    results = _Results()
    operator = AsyncWaitOperator(
        function,
        results.append,
        mode=mode,
        timeout=timeout,
        capacity=capacity,
        concurrency=concurrency,
        retry_strategy=retry_strategy,
        key=key,
    )
    return _run(operator, elements, results)


class _Results:
    """Results not yet yielded.

    Attributes:
        changed: Set for the generator: a result came, or no more will.
        taken: Set for the feeder: the reader has taken all results, and wants more.
    """

    def __init__(self) -> None:
        self.elements: deque[StreamElement] = deque()
        self.changed, self.taken = asyncio.Event(), asyncio.Event()

    def append(self, element: StreamElement) -> None:
        self.elements.append(element)
        self.changed.set()

    async def all_taken(self) -> None:
        """Wait until no result is left; otherwise results would pile up behind a slow reader."""
        while self.elements:
            self.taken.clear()
            await self.taken.wait()


async def _feed(operator: AsyncWaitOperator, elements: Elements, results: _Results) -> None:
    if isinstance(elements, AsyncIterable):
        async for element in elements:
            await operator.process_element(element)
            await results.all_taken()
    else:
        for element in elements:
            await operator.process_element(element)
            await results.all_taken()
    await operator.end_input()


async def _run(
    operator: AsyncWaitOperator, elements: Elements, results: _Results
) -> AsyncGenerator[StreamElement, None]:
    await operator.open()
    feeder = asyncio.create_task(_feed(operator, elements, results), name="asyncio_core feeder")
    feeder.add_done_callback(lambda _: results.changed.set())
    operator.call_on_failure(feeder.cancel)  # the source may not wake up for a long time
    try:
        while True:
            while results.elements:
                yield results.elements.popleft()
            results.taken.set()
            if feeder.done():
                break
            results.changed.clear()
            await results.changed.wait()
        feeder.result()
    finally:
        feeder.cancel()
        try:
            await asyncio.wait([feeder])
        finally:
            # raises the operator's error, which no element has raised if the reader left
            await operator.close()
