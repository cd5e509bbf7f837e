"""A call within a lease."""

import asyncio
from collections.abc import Callable, Iterable

from jobs.limits.window_use import CallUse, WindowUse


class LeasedCall(CallUse):
    """A call within a lease, with what it uses. The lease ends it before it may end itself.

    Args:
        loop: Of its task, which is the current one.
        limits: The limits with a window.
        clock: The lease's.
        began: When it begins.
        until: When the lease ends it at the latest.

    Attributes:
        began: As above.
        probes: Whether it finds out if a pause has ended.
        task: Its task.
        is_counted: Whether its end counts for a limit that adapts to the service.
        is_late: Whether the lease has ended it.
    """

    __slots__ = ("_cancelling", "began", "is_counted", "is_late", "probes", "task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Iterable[WindowUse],
        clock: Callable[[], float],
        *,
        began: float,
        until: float,
    ) -> None:
        super().__init__(limits, clock, until)
        self.began = began
        self.is_late = self.probes = False
        self.is_counted = True
        task = asyncio.current_task(loop)  # finding the loop costs a system call
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
