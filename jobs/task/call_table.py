"""Single-flight and cache: equal requests of a partition make one call, and answers are used again while kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from jobs.clients.client import Client, Collecting
from jobs.task.shared_calls import AnswerCache, Kept, SharedCall, hashable

if TYPE_CHECKING:
    from jobs.declare.lookup import Key, Lookup
    from jobs.declare.services import Cache
    from jobs.task.lookup_state import LookupState
    from jobs.task.replies import Reply


class CallTable:
    """The calls in flight of one lookup, and its answers that are kept, by key.

    Requests in flight are joined, answers and misses are kept, errors are not. The row that starts a call makes it.
    When that row leaves at its time limit, the call lives on while another row waits for it, and is cancelled when none
    does. Rows that joined share an error too, and each goes on by its own retries: the first one to try again calls,
    the others join.

    A row that joins a call, or waits for a retry of its own, keeps nobody from calling: the operator's concurrency
    counts calls at the service, nothing else.

    Attributes:
        in_flight: By key, the row that makes the call. Its LookupFunction reads and writes it, row by row.
        kept: By key, the answer; likewise.
    """

    def __init__(self, lookup: Lookup, caller: Client, cache: Cache, now_us: Callable[[], int]) -> None:
        self.in_flight: dict[Any, LookupState] = {}
        self.kept = AnswerCache[Kept](cache, now_us)
        self._finish_after_timeout = lookup.finish_after_timeout
        self._caller = caller
        self._left_behind: set[SharedCall] = set()  # their rows have left, and they go on

    async def finish(self) -> None:
        """Wait for the calls that go on although nobody waits for them: what they answer is kept."""
        while self._left_behind:
            await next(iter(self._left_behind)).over()

    async def join(self, asked: LookupState, owner: LookupState, slot: AbstractContextManager[None]) -> Reply:
        """The reply of the owner's call, once it came. slot: lends the row's place among the calls meanwhile."""
        asked.call = call = self._call_of(owner)
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
    def _call_of(owner: LookupState) -> SharedCall:
        if owner.call is None:
            owner.call = SharedCall()
        return owner.call

    def end(self, asked: LookupState, hashed: Any, reply: Reply | None, error: BaseException | None) -> None:
        """What came of the call, to all who wait for it and all who will ask the same."""
        if reply is not None and reply.outcome in ("ok", "miss"):
            assert reply.answered_at is not None
            self.kept.put(hashed, (reply.answer, reply.answered_at), reply.answer)
        self._forget(asked)
        if asked.call is not None:
            self._left_behind.discard(asked.call)
            asked.call.end(reply, error)
            asked.call = None

    def drop(self, keys: Sequence[Key]) -> None:
        """Equal rows get these answers no more."""
        for key in keys:
            self.kept.pop(hashable(key), None)

    def leave(self, owner: LookupState) -> None:
        """The row that makes a call leaves at its time limit: the call lives on, or is not to be joined any more."""
        if self.lives_on(owner):
            self._left_behind.add(self._call_of(owner))
        else:
            self._forget(owner)

    def lives_on(self, owner: LookupState) -> bool:
        """Whether a row waits for its call, or nobody need: a request that was sent is billed."""
        if owner.call is not None and owner.call.waiting:
            return True
        if not self._finish_after_timeout:
            return False
        assert owner.key is not None
        return not isinstance(self._caller, Collecting) or self._caller.has_sent(owner.key)

    def _forget(self, owner: LookupState) -> None:
        hashed = hashable(owner.key)
        if self.in_flight.get(hashed) is owner:
            del self.in_flight[hashed]
