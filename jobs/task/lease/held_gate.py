"""The gate of a service, as its lease closes it."""

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
        self.others_close_until = 0.0

    def close(self) -> None:
        self._is_closed = True
        self._gate.close(CLOSED_FOR)

    def open(self) -> None:
        """Open the gate, unless others close it."""
        if self._is_closed and self._clock() >= self.others_close_until:
            self._gate.open()
        self._is_closed = False

    def others_close(self, seconds: float) -> None:
        self.others_close_until = max(self.others_close_until, self._clock() + seconds)
