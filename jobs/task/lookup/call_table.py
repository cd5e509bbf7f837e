"""Single-flight and cache: equal requests of a partition share a call and its cached answer."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jobs.clients.batcher import batching_in
from jobs.clients.client import Client
from jobs.declare.lookup import Key, Lookup
from jobs.declare.services import Cache
from jobs.task.lookup.lookup_state import LookupState
from jobs.task.lookup.replies import Reply
from jobs.task.lookup.shared_calls import AnswerCache, Kept, SharedCall, hashable


class CallTable:
    """The calls in flight of a lookup, and its cached answers, by key.

    Equal requests in flight are joined; answers and misses are cached, errors are not. The row that
    starts a call owns it. If that row times out, the call continues while another row waits for it,
    and is cancelled otherwise. Rows that joined share an error too, and count their retries
    separately: the first row to retry calls, the others join.

    A row that joins a call, or waits for its retry, uses no slot: the operator's concurrency counts
    only calls at the service. Its LookupFunction reads and writes in_flight and kept for each row.
    """

    def __init__(
        self, lookup: Lookup, caller: Client, cache: Cache, now_us: Callable[[], int]
    ) -> None:
        self.in_flight: dict[Any, LookupState] = {}
        self.kept = AnswerCache[Kept](cache, now_us)
        self._finish_after_timeout = lookup.finish_after_timeout
        self._batching = batching_in(caller)
        self._left_behind: set[SharedCall] = set()  # calls that continue after their rows have left

    async def finish(self) -> None:
        while self._left_behind:
            await next(iter(self._left_behind)).over()

    async def join(
        self, asked: LookupState, owner: LookupState, slot: AbstractContextManager[None]
    ) -> Reply:
        """Return the reply of the owner's call, once it arrives; `slot` releases the row's slot."""
        asked.call = call = self._owned_call(owner)
        asked.source = "shared"
        call.waiting += 1
        try:
            with slot:
                return await call.reply()
        finally:
            call.waiting -= 1
            asked.call = None
            if call in self._left_behind and not self.lives_on(owner):
                self._forget(owner)
                assert owner.task is not None
                owner.task.cancel("no row waits for it any more")

    @staticmethod
    def _owned_call(owner: LookupState) -> SharedCall:
        if owner.call is None:
            owner.call = SharedCall()
        return owner.call

    def end(
        self, asked: LookupState, hashed: Any, reply: Reply | None, error: BaseException | None
    ) -> None:
        """Pass the call's result to all waiting rows and to later equal requests."""
        if reply is not None and reply.outcome in ("ok", "miss"):
            assert reply.answered_at is not None
            self.kept.put(hashed, (reply.answer, reply.answered_at), reply.answer)
        self._forget(asked)
        if asked.call is not None:
            self._left_behind.discard(asked.call)
            asked.call.end(reply, error)
            asked.call = None

    def drop(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self.kept.discard(hashable(key))

    def leave(self, owner: LookupState) -> None:
        """Handle the timeout of a call's row: the call continues, or can no longer be joined."""
        if self.lives_on(owner):
            self._left_behind.add(self._owned_call(owner))
        else:
            self._forget(owner)

    def lives_on(self, owner: LookupState) -> bool:
        """Return whether the owner's call continues without it.

        It does while another row waits for it, or where finish_after_timeout lets a billed request
        finish.
        """
        if owner.call is not None and owner.call.waiting:
            return True
        if not self._finish_after_timeout:
            return False
        assert owner.key is not None
        return self._batching is None or self._batching.has_sent(owner.key)

    def _forget(self, owner: LookupState) -> None:
        hashed = hashable(owner.key)
        if self.in_flight.get(hashed) is owner:
            del self.in_flight[hashed]
