"""The gate of a service, as its lease closes it."""

import math
from collections.abc import Callable

from asyncio_core import Gate

CLOSED_FOR = 0.6  # s; renewed with each heartbeat, four times a second, while no call may start


class HeldGate:
    """A gate that a lease closes while no call may start, and that others close too.

    Attributes:
        others_close_until: By the clock, when the pauses of others end.
    """

    def __init__(self, gate: Gate, clock: Callable[[], float]) -> None:
        self._gate, self._clock = gate, clock
        self._is_closed = False  # by the lease
        self._shared_s, self._shared_since = 0.0, math.inf
        self.others_close_until = 0.0

    @property
    def shared_s(self) -> float:
        """Seconds for which the lease closed it for limits that other calls and runs use up."""
        return self._shared_s + min(CLOSED_FOR, max(0.0, self._clock() - self._shared_since))

    def close(self, *, for_shared: bool) -> None:
        """Close it; `for_shared` tells that only calls of others, or a budget, hold calls back."""
        self._shared_s = self.shared_s
        self._shared_since = self._clock() if for_shared else math.inf
        self._is_closed = True
        self._gate.close(CLOSED_FOR)

    def open(self) -> None:
        """Open the gate, unless others close it."""
        self._shared_s, self._shared_since = self.shared_s, math.inf
        if self._is_closed and self._clock() >= self.others_close_until:
            self._gate.open()
        self._is_closed = False

    def others_close(self, seconds: float) -> None:
        self.others_close_until = max(self.others_close_until, self._clock() + seconds)
