"""The executor's side of a lookup: one Caller per partition, and what can go wrong with a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from jobs.declare.lookup import Key


class Client(Protocol):
    """Asks one outside system. Lives on the event loop of one partition; `call` runs many times at once."""

    async def open(self) -> None:
        """Connect what is shared by all calls. Runs before the first clock starts."""

    async def close(self) -> None:
        """Give back what `open` took; also after a failure."""

    async def call(self, key: Key) -> Any | None:
        """One attempt: the raw answer, or None for a miss. Raises CallFailed, Throttled or RunStopped."""

    def columns(self, answer: Any) -> tuple[Any, ...]:
        """The answer's columns, in the order of `returns`. Raises ValueError with a sentence when it does not fit."""

    def fallback(self, key: Key) -> Any | None:
        """What to answer when the time limit ran out; None when there is nothing. Raises CallFailed."""


@runtime_checkable
class Collecting(Protocol):
    """A caller whose keys may wait for others, to be asked for in one request."""

    def has_sent(self, key: Key) -> bool:
        """Whether a running call of this key is at the service, or still waits for others."""


@runtime_checkable
class Requesting(Protocol):
    """A caller whose requests are not its calls, as one may ask for many keys: it bounds them itself."""

    def allow(self, requests: int) -> None:
        """At most so many in flight from now on."""

    def leaving(self) -> int:
        """Requests still in flight that no call waits for any more: they are cancelled, which may take a while."""


@runtime_checkable
class Enclosing(Protocol):
    """A caller that can enter a context around each of its requests, where these are not its calls."""

    def each_within(self, around: Callable[[], AbstractAsyncContextManager[None]]) -> bool:
        """Whether it does so from now on; else each of its calls is a request."""


@runtime_checkable
class Doubting(Protocol):
    """A caller that may find out later that answers which it gave are not those of their keys."""

    def tell_doubt(self, tell: Callable[[Sequence[Key]], None]) -> None:
        """Have `tell` called with such keys, as soon as it is known."""

    async def settle(self) -> None:
        """Return when all that can be known of the answers given is known; there are no more calls."""


class CallFailed(Exception):  # noqa: N818  # reads as what happened
    """An attempt that gave no answer. passing: it may go better next time; the service itself may be unwell."""

    def __init__(self, reason: str, *, passing: bool) -> None:
        super().__init__(reason)
        self.passing = passing


def failed_by_cancel(error: asyncio.CancelledError) -> CallFailed:
    """What a function of the user's has failed by, when something that it waited for was cancelled. Raises the error
    when the call itself is cancelled.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return CallFailed("something that the function waited for was cancelled", passing=True)


class Redirected(CallFailed):
    """The service sends us to another address, which is not asked. An error of how it is declared, not of the key."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, passing=False)


class Throttled(Exception):  # noqa: N818  # reads as what happened
    """The service said "not now": nobody is to ask it for `seconds`. Uses up no attempt of the row."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds
