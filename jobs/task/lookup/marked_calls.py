"""Marks in the ledger, before each request that must not be made twice."""

from collections.abc import Sequence
from typing import Any

from jobs.clients.client import Ask, Send
from jobs.declare.lookup import Key
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.task_ledger import TaskLedger


class Marks:
    """Marks the keys of a lookup in the ledger before their request leaves."""

    def __init__(self, ledger: TaskLedger, watch: CircuitBreaker) -> None:
        self._ledger, self._watch = ledger, watch

    async def before_call(self, ask: Ask, key: Key) -> Any:
        """Mark the key, then call. Raises Throttled if the service wants no call any more."""
        await self._mark([key])
        return await ask(key)

    async def before_batch(self, send: Send, keys: Sequence[Key]) -> Sequence[Any]:
        """Mark the keys, then send. Raises Throttled if the service wants no call any more."""
        await self._mark(keys)
        return await send(keys)

    async def _mark(self, keys: Sequence[Key]) -> None:
        await self._ledger.mark(keys)
        self._watch.refuse_in_pause()
