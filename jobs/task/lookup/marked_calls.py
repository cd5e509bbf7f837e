"""Marks in the ledger, before each request that must not be made twice."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from jobs.clients.client import Ask, Send
from jobs.declare.lookup import Key
from jobs.errors import AccessRefused
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.task_ledger import TaskLedger


class Marks:
    """Marks the keys of a lookup in the ledger before their request leaves."""

    def __init__(
        self, ledger: TaskLedger, watch: CircuitBreaker, *, denial_settles: bool = False
    ) -> None:
        """Create it; `denial_settles` tells that denied access means that nothing was done."""
        self._ledger, self._watch = ledger, watch
        self._denial_settles = denial_settles

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
        unmarked = [key for key in keys if not self._ledger.was_asked(key)]
        try:
            await self._ledger.mark(keys)
            self._watch.refuse_in_pause()
        except BaseException:  # nothing was sent
            self._ledger.settle(unmarked)
            raise
        try:
            return await request(asked)
        except AccessRefused:
            if self._denial_settles:
                self._ledger.settle(keys)
            raise
