"""The context of a call within a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from jobs.clients.client import CallFailed, Throttled

if TYPE_CHECKING:
    from types import TracebackType

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
    """Waits until the call may start, and ends it with CallFailed before the lease could end.

    It is a class with a timer shared by all calls of the lease, because a generator and an asyncio
    timer per call took several times as long.

    Args:
        lease: Decides when the call starts.

    Attributes:
        began, until: Its start and the latest end, by the lease's clock.
        probes: Whether it finds out if a pause has ended.
        use: What it uses of limits with a window.
        task: Its task, once it has started.
        tells: Whether its end tells anything of the service.
    """

    __slots__ = (
        "_cancelling",
        "_is_late",
        "_lease",
        "began",
        "probes",
        "task",
        "tells",
        "until",
        "use",
    )

    task: asyncio.Task[Any]

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._is_late = False
        self.probes, self.tells = False, True
        self.use: CallUse | None = None
        self.began = self.until = 0.0

    async def __aenter__(self) -> None:
        if not self._lease.may_start():
            await self._lease.turn()
        task = asyncio.current_task(self._lease.loop)  # finding the loop costs a system call
        assert task is not None
        self.task, self._cancelling = task, task.cancelling()
        self._lease.begin(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        answered = kind is None or (isinstance(error, CallFailed) and not error.passing)
        self._lease.end(self, answered=answered, known=kind is None or kind is Throttled)
        if self._is_late and self.task.uncancel() > self._cancelling:
            return  # the task itself is cancelled too
        if kind is None:
            return
        if isinstance(error, TimeoutError) or (
            self._is_late and isinstance(error, asyncio.CancelledError)
        ):
            raise CallFailed(
                f"no answer within {self.until - self.began:g} s", passing=True
            ) from error

    def expire(self) -> None:
        """End the call."""
        if not self._is_late:
            self._is_late = True
            self.task.cancel()

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
        """Do nothing, likewise."""


async def within_lease(lease: Lease, send: Callable[[T], Awaitable[R]], keys: T) -> R:
    """Send a request, or call a key, once the lease grants it."""
    async with LeasedCall(lease):
        return await send(keys)
