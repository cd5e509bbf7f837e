"""A call within a lease."""

import asyncio

from jobs.limits.window_use import CallUse


class LeasedCall:
    """A call within a lease. The lease ends the call before it may end itself.

    Args:
        loop: Of its task, which is the current one.

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
        "began",
        "is_counted",
        "is_late",
        "probes",
        "task",
        "until",
        "use",
    )
    use: CallUse  # once it begins

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_late = False
        self.probes, self.is_counted = False, True
        self.began = self.until = 0.0
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
