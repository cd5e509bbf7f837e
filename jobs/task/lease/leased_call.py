"""A call within a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from jobs.clients.client import CallFailed, Throttled
from jobs.declare.values.prices import Unit
from jobs.limits.window_use import CallUse

T = TypeVar("T")
R = TypeVar("R")


class Lease(Protocol):
    """The lease that decides on a call: ServiceLease."""

    loop: asyncio.AbstractEventLoop
    clock: Callable[[], float]

    def may_start(self) -> bool: ...

    async def turn(self) -> None: ...

    def begin(self, call: LeasedCall) -> None: ...

    def has_ended(self, call: LeasedCall) -> bool: ...

    def end(self, call: LeasedCall, *, answered: bool, known: bool) -> None: ...


class LeasedCall:
    """A call within a lease. The lease ends the call before it may end itself.

    Args:
        lease: Has granted the call.

    Attributes:
        began: When it began, in s by the lease's clock.
        until: When the lease ends it at the latest.
        probes: Whether it finds out if a pause has ended.
        use: What it uses of limits with a window.
        task: Its task.
        is_counted: Whether its end counts for a limit that adapts to the service.
    """

    __slots__ = (
        "_cancelling",
        "_lease",
        "began",
        "is_counted",
        "is_late",
        "probes",
        "task",
        "until",
        "use",
    )

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.is_late = False
        self.probes, self.is_counted = False, True
        self.use: CallUse | None = None
        self.began = self.until = 0.0
        task = asyncio.current_task(lease.loop)  # finding the loop costs a system call
        assert task is not None
        self.task, self._cancelling = task, task.cancelling()

    def expire(self) -> None:
        """End the call."""
        if not self.is_late:
            self.is_late = True
            self.task.cancel()

    def uncancel(self) -> bool:
        """Take back the cancel of `expire`; return whether others cancel the task too."""
        return self.task.uncancel() > self._cancelling

    # -- for its requests, where no limit has a window ---------------------------------------------

    def request_left(self, _items: int, _model: str | None = None) -> None:
        """Note that a request is about to leave, like CallUse.

        Raises:
            TimeoutError: The call's time has ended.
        """
        if self._lease.has_ended(self):
            raise TimeoutError

    def request_ended(self) -> None:
        """Do nothing: no limit counts the end of a request."""

    def bill(self, units: Mapping[Unit, int]) -> None:
        """Do nothing: no limit counts what it used."""

    def note_unknown_use(self) -> None:
        """Do nothing: no limit counts what it used."""


async def within_lease(lease: Lease, send: Callable[[T], Awaitable[R]], keys: T) -> R:
    """Send a request, or call a key, once the lease grants it. A cancel ends the call.

    Raises:
        CallFailed: The call had no answer when the lease ended it.
    """
    if not lease.may_start():
        await lease.turn()
    call = LeasedCall(lease)
    lease.begin(call)
    try:
        answer = await send(keys)
    except BaseException as error:
        answered = isinstance(error, CallFailed) and not error.passing
        lease.end(call, answered=answered, known=type(error) is Throttled)
        if call.is_late and call.uncancel():
            raise
        if isinstance(error, TimeoutError) or (
            call.is_late and isinstance(error, asyncio.CancelledError)
        ):
            raise CallFailed(
                f"no answer within {call.until - call.began:g} s", passing=True
            ) from error
        raise
    lease.end(call, answered=True, known=True)
    if call.is_late:
        call.uncancel()
    return answer
