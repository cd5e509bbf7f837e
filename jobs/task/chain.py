"""Links that carry elements from an operator to the next, for several lookups in a pass."""

from __future__ import annotations

import asyncio
from collections import deque

from asyncio_core import AsyncWaitOperator, StreamElement


class Link:
    """Carries an operator's output into the next operator.

    `room` blocks the feeder of the first operator.
    """

    BOUND = 1000  # waiting elements before the feeder blocks

    def __init__(self, operator: AsyncWaitOperator, onward: Link | None) -> None:
        self._operator = operator
        self._onward = onward
        self._waiting: deque[StreamElement] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._ended = False

    def __len__(self) -> int:
        """The number of elements that the operator has not accepted yet."""
        return len(self._waiting)

    def put(self, element: StreamElement) -> None:
        self._waiting.append(element)
        self._arrived.set()

    def end(self) -> None:
        self._ended = True
        self._arrived.set()

    async def room(self) -> None:
        while len(self._waiting) >= self.BOUND:
            self._taken.clear()
            await self._taken.wait()

    async def carry(self) -> None:
        """Carry elements until `end` was called and the next operator is empty."""
        while True:
            while self._waiting:
                if self._onward is not None:
                    await self._onward.room()
                await self._operator.process_element(self._waiting[0])
                self._waiting.popleft()
                self._taken.set()
            if self._ended:
                await self._operator.end_input()
                return
            self._arrived.clear()
            await self._arrived.wait()


async def raise_failure(operator: AsyncWaitOperator) -> None:
    """Raise the operator's error as soon as it fails, even without a waiting element."""
    failed = asyncio.Event()
    operator.call_on_failure(failed.set)
    await failed.wait()
    await operator.end_input()
