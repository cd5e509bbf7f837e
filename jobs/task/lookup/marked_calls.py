"""Marks in the ledger, before each request that must not be made twice."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from jobs.clients.client import Ask, Send
from jobs.declare.lookup import Key
from jobs.errors import AccessRefused
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.task_ledger import TaskLedger

LAST_ANSWERS = 2.0  # s to wait for the answers of calls in flight once access is denied


class Marks:
    """Marks the keys of a lookup in the ledger before their request leaves.

    Where access is denied, the run ends only after the other calls in flight have ended, at most
    LAST_ANSWERS later: a call that is cancelled keeps its mark for ever.
    """

    def __init__(
        self, ledger: TaskLedger, watch: CircuitBreaker, *, denial_settles: bool = False
    ) -> None:
        """Create it; `denial_settles` tells that denied access means that nothing was done."""
        self._ledger, self._watch = ledger, watch
        self._denial_settles = denial_settles
        self._in_flight = 0
        self._idle = asyncio.Event()

    async def before_call(self, ask: Ask, key: Key) -> Any:
        """Mark the key, then call.

        Raises Throttled if the service wants no call any more; AccessRefused.
        """
        return await self._marked([key], ask, key)

    async def before_batch(self, send: Send, keys: Sequence[Key]) -> Sequence[Any]:
        """Mark the keys, then send.

        Raises Throttled if the service wants no call any more; AccessRefused.
        """
        answers: Sequence[Any] = await self._marked(keys, send, keys)
        return answers

    async def _marked(
        self, keys: Sequence[Key], request: Callable[[Any], Awaitable[Any]], asked: Any
    ) -> Any:
        await self._ledger.mark(keys)
        self._watch.refuse_in_pause()
        self._in_flight += 1
        self._idle.clear()
        try:
            return await request(asked)
        except AccessRefused as error:
            denied = error
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
        if self._denial_settles:
            self._ledger.settle(keys)
        self._watch.pause(2 * LAST_ANSWERS, down=False)  # no call starts, and no row times out
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS):
                await self._idle.wait()
        raise denied
