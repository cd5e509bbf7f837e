"""The operator of a lookup that shares calls: which row enters when, by the slots and places that are free."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from asyncio_core import AsyncWaitOperator, StreamElement, StreamRecord
from jobs.bridge.sharing import SharedAsking


class SharingOperator:
    """The async wait operator of a lookup that shares calls; process_element, open, close and the rest are its own.

    All its rows may wait at once, so that one that joins a call keeps nobody from calling. A row that needs a call of
    its own is let in when a slot is free for it: its clock starts with its call, as it does in the operator. As many
    elements as there are slots stand in line before it, so that the end of a call is the start of the next one, with no
    turn of the loop in between.
    """

    def __init__(
        self, asking: SharedAsking, output: Callable[[StreamElement], None], *, capacity: int, **options: Any
    ) -> None:
        self._asking = asking
        self._output = output
        self._capacity = capacity
        self._inside = 0
        self._line: deque[StreamElement] = deque()
        self._longest_line = asking.slots.count
        self._producer_at: int | None = None  # the length of the line at which somebody who waits goes on
        self._shorter = asyncio.Event()
        self._letting_in = False  # in the next turn of the loop
        self._stopped = False
        self._on_failure: Callable[[], object] | None = None
        self._operator = AsyncWaitOperator(asking, self._emit, capacity=capacity, **options)
        self._operator.call_on_failure(self._fail)

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._operator.open()

    def widen(self, *, capacity: int, concurrency: int) -> None:
        """As AsyncWaitOperator's; concurrency: calls at the service."""
        self._asking.slots.widen(concurrency)
        self._capacity, self._longest_line = capacity, concurrency
        self._operator.widen(capacity=capacity, concurrency=capacity)
        self._let_in()

    def process_element(self, element: StreamElement) -> Coroutine[Any, Any, None]:  # a coroutine less for most rows
        if self._line or not self._may_enter(element):
            return self._stand_in_line(element)
        self._inside += 1
        return self._operator.process_element(element)

    def _may_enter(self, element: StreamElement) -> bool:
        # a slot is taken only when there is a place too: else a row in front might wait for it in vain
        return self._inside < self._capacity and (
            not isinstance(element, StreamRecord) or self._asking.admit(element.value)
        )

    async def _stand_in_line(self, element: StreamElement) -> None:
        line = self._line
        if len(line) >= self._longest_line:
            await self._line_is_only(self._longest_line // 2)
        if self._stopped:
            await self._operator.process_element(element)  # raises why
        line.append(element)
        if len(line) == 1:
            self._asking.slots.on_free = self._let_in_as_a_call_ends
            self._let_in()  # what it is to wait for may have come meanwhile

    async def _line_is_only(self, length: int) -> None:
        """Wait for that; several elements are then brought in one go."""
        self._producer_at = length
        self._shorter.clear()
        await self._shorter.wait()

    def _let_in_as_a_call_ends(self) -> None:
        self._let_in(as_a_call_ends=True)

    def _let_in(self, *, as_a_call_ends: bool = False) -> None:
        """Let in whoever may enter now, in the order of the line."""
        line, enter = self._line, self._operator.try_process_element
        while line and self._may_enter(line[0]):
            self._inside += 1
            entered = enter(line.popleft(), as_a_call_ends=as_a_call_ends)
            assert entered, "it has as many places as this one counts"
        if not line:
            self._asking.slots.on_free = None
        if self._producer_at is not None and len(line) <= self._producer_at:
            self._call_producer()

    def _let_in_later(self) -> None:
        self._letting_in = False
        self._let_in()

    def _call_producer(self) -> None:
        self._producer_at = None
        self._shorter.set()

    def _emit(self, element: StreamElement) -> None:
        if self._inside == self._capacity and self._line and not self._letting_in:  # not amid what leaves now
            self._letting_in = True
            self._loop.call_soon(self._let_in_later)
        self._inside -= 1
        self._output(element)

    async def end_input(self) -> None:
        if self._line:
            await self._line_is_only(0)
        await self._operator.end_input()

    async def close(self) -> None:
        self._stop()
        await self._operator.close()

    def _stop(self) -> None:
        self._stopped = True
        self._line.clear()
        self._asking.slots.on_free = None
        self._call_producer()

    def call_on_failure(self, callback: Callable[[], object]) -> None:
        self._on_failure = callback

    def _fail(self) -> None:
        self._stop()
        if self._on_failure is not None:
            self._on_failure()

    @property
    def in_flight(self) -> int:
        """Calls at the service."""
        return self._asking.slots.taken
