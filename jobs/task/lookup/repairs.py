"""One more request for an answer that does not fit, which tells the service the reason.

Both requests are parts of one attempt of the row, and each passes the budget and the lease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobs.clients.client import Ask, CallFailed
from jobs.declare.lookup import Key
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.shared_calls import hashable
from jobs.task.lookup.task_ledger import TaskLedger

if TYPE_CHECKING:
    from jobs.clients.http.http_client import HttpClient


class Repairs:
    """Repairs the answers of a lookup in a task, each at most once.

    The first answer is stored before the second request leaves. If the second request fails for the
    moment, the row's next attempt sends only that one.

    A key has one `call` at a time: a lookup with repairs has a cache, so that equal keys share a
    call.

    Args:
        caller: Makes the requests, and judges their answers.
        ledger: Stores first answers.
        watch: Tells whether the service wants no request.
        on_repair: Called before a second request.
        now_us: The task's clock.
    """

    def __init__(
        self,
        caller: HttpClient,
        ledger: TaskLedger | None,
        watch: CircuitBreaker,
        *,
        on_repair: Callable[[], None],
        now_us: Callable[[], int],
    ) -> None:
        self._caller, self._ledger, self._watch = caller, ledger, watch
        self._on_repair, self._now_us = on_repair, now_us
        self._reasons: dict[Any, str] = {}  # by key: what was wrong with its first answer

    async def send(self, key: Key) -> Any:
        """Send the first request of a key, or the second one once its first answer did not fit."""
        return await self._caller.call(key, self._reasons.get(hashable(key), ""))

    async def call(self, ask: Ask, key: Key) -> Any:
        """Return the first answer, or the second one if the first does not fit.

        Args:
            ask: Calls `send`, within the task's limits.
            key: The key.
        """
        asked = hashable(key)
        if asked not in self._reasons:
            answer = await ask(key)
            reason = None if answer is None else self._caller.misfit(answer)
            if reason is None:
                return answer
            if self._ledger is not None:
                self._ledger.keep(key, answer, self._now_us())
            self._reasons[asked] = reason
            self._on_repair()
        self._watch.refuse_in_pause()
        try:
            answer = await ask(key)
        except CallFailed as failure:
            if not failure.passing:
                del self._reasons[asked]
            raise
        del self._reasons[asked]
        return answer
