"""The call that finds out whether a pause of a service has ended."""

import enum
import math


class ProbeState(enum.Enum):
    """What the driver does not know yet of a task's probe."""

    NONE = "no probe"
    RUNNING = "a probe runs"
    ANSWERED = "the service answered the probe"


class Probe:
    """A task's probe. Times are seconds by the clock of the loop.

    Attributes:
        state: What the next report to the driver is about.
    """

    def __init__(self) -> None:
        self.state = ProbeState.NONE
        self._ended_at = -math.inf

    def begin(self) -> None:
        self.state = ProbeState.RUNNING

    def end(self, now: float, *, answered: bool) -> None:
        self.state = ProbeState.ANSWERED if answered else ProbeState.NONE
        self._ended_at = now

    def report(self) -> bool:
        """Return True once after the service answered a probe: a second report would be stale."""
        is_answered = self.state is ProbeState.ANSWERED
        if is_answered:
            self.state = ProbeState.NONE
        return is_answered

    def ended_since(self, asked_at: float) -> bool:
        """Return whether a probe ended after this time, so that the driver's answer ignores it."""
        return asked_at <= self._ended_at
