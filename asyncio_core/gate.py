"""A gate for the calls of operators: while it is closed, no call starts, no clock runs."""

import asyncio
import math
from typing import Protocol


class GateListener(Protocol):
    """A gate's notifications to an operator. `closed_seconds` is the gate's total so far."""

    def gate_closed(self) -> None: ...

    def gate_opened(self, closed_seconds: float) -> None: ...


class Gate:
    """Pauses the calls of all operators that share it, while a service throttles or is down.

    While the gate is closed, its operators start no attempt and their time limits stand still;
    running calls continue. A new gate is open. A gate is for one event loop: another loop may use
    it only while it is open, after the operators of the first loop ended.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        # -> whether the last notification was gate_opened
        self._listeners: dict[GateListener, bool] = {}
        self._past_closed_seconds = 0.0  # without the current closure
        self._closed_at: float | None = None
        self._opens_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._closed_at is None

    @property
    def closed_seconds(self) -> float:
        """Total seconds that the gate was closed so far, including the current closure."""
        if self._closed_at is None:
            return self._past_closed_seconds
        assert self._loop is not None
        return self._past_closed_seconds + self._loop.time() - self._closed_at

    def close(self, seconds: float | None = None) -> None:
        """Close for this many seconds from now, or until open() is called. Needs the running loop.

        A gate that is already closed opens at the later of the two times; a closure is never
        shortened.

        Args:
            seconds: 0 does nothing; None closes until open().

        Raises:
            ValueError: The seconds are negative.
            RuntimeError: The gate is in use, or closed, on another event loop.
        """
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"seconds must be None or at least 0, got {seconds!r}")
        if seconds == 0:
            return
        loop = self._bind()
        opens_at = math.inf if seconds is None else loop.time() + seconds
        if self._closed_at is not None and opens_at <= self._opens_at:
            return
        self._opens_at = opens_at
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if opens_at == math.inf else loop.call_at(opens_at, self.open)
        if self._closed_at is None:
            self._closed_at = loop.time()
            self._notify()

    def open(self) -> None:
        """Open the gate, regardless of earlier closures. An open gate stays open."""
        if self._closed_at is None:
            return
        self._past_closed_seconds = self.closed_seconds
        self._closed_at = None
        self._opens_at = -math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._notify()

    def _notify(self) -> None:
        for listener in list(self._listeners):
            # an earlier listener may have unsubscribed it, or changed the gate back
            if self._listeners.get(listener, self.is_open) == self.is_open:
                continue
            self._listeners[listener] = self.is_open
            if self.is_open:
                listener.gate_opened(self._past_closed_seconds)
            else:
                listener.gate_closed()

    def subscribe(self, listener: GateListener) -> None:
        """Notify the listener of every later change, until unsubscribe.

        Listeners may close, open, subscribe and unsubscribe. A change that an earlier listener
        takes back at once is not reported, so closing and opening alternate for each listener.

        Args:
            listener: Has gate_closed() and gate_opened(closed_seconds).

        Raises:
            RuntimeError: The gate is in use, or closed, on another event loop.
        """
        self._bind()
        self._listeners[listener] = self.is_open

    def unsubscribe(self, listener: GateListener) -> None:
        self._listeners.pop(listener, None)

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and (self._listeners or not self.is_open):
                raise RuntimeError(
                    "a gate belongs to one event loop, and this one is closed, or in use, on "
                    "another; make a new Gate"
                )
            self._loop = loop
        return loop
