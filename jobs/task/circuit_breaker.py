"""When is a service down, and how long is it waited for: one watch per service and partition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobs.errors import AccessRefused, RunStopped

BATCHES_IN_A_ROW = 3  # so many that fail whole are an outage, if that is more rows than the rule says
PATIENCE = 60.0  # s; a service that asks to be left alone for no longer is always waited for once

if TYPE_CHECKING:
    from asyncio_core import Gate
    from jobs.declare.services import Outage


class CircuitBreaker:
    """Counts failures in a row; closes the gate when the service is down, and gives up when it stays so.

    While the gate is closed no attempt starts and all record clocks stand still. It opens by itself every
    `probe_every`; the first success ends the outage, the first failure closes it again.
    """

    def __init__(
        self,
        rule: Outage,
        service: str,
        gate: Gate,
        now_us: Callable[[], int],
        *,
        batch_size: int = 1,
        on_pause: Callable[[float, str], None] = lambda _seconds, _reason: None,
    ) -> None:
        """on_pause: told of each closure of the gate: for how many s, and why."""
        self._rule = rule
        # a batch that fails is as many rows: one alone is no outage
        self._after = rule.after if batch_size == 1 else max(rule.after, BATCHES_IN_A_ROW * batch_size)
        self._service = service
        self._gate = gate
        self._on_pause = on_pause
        self.is_degraded = False  # no success since it failed, or asked for patience
        self._now_us = now_us
        self._in_a_row = 0
        self._redirects = 0  # in a row
        self._first_failure_us = 0
        self._down_since_us: int | None = None
        self._throttled_since_us: int | None = None
        self._down_s = 0.0  # closed as the service was down, up to the last look
        self._looked_s = 0.0  # closed in all, up to the last look

    def closed_seconds(self) -> tuple[float, float]:
        """Seconds that the gate stood closed so far: as the service asked for it, as it was down.

        What passed since the last look goes to what is the case now: look often.
        """
        closed = self._gate.closed_seconds
        if self.is_down:
            self._down_s += closed - self._looked_s
        self._looked_s = closed
        return closed - self._down_s, self._down_s

    @property
    def is_down(self) -> bool:
        return self._down_since_us is not None

    def succeeded(self) -> None:
        """The service answered, whatever it said."""
        self.is_degraded = False
        self._in_a_row = self._redirects = 0
        self._down_since_us = self._throttled_since_us = None

    def throttled(self, reason: str, seconds: float) -> None:
        """The service wants to be left alone for so many seconds: nobody asks it for that long.

        Raises RunStopped when it wants that for longer than is waited at most, or has wanted nothing else for so long.
        """
        self.is_degraded = True
        now = self._now_us()
        if self._throttled_since_us is None:
            self._throttled_since_us = now
        waited = (now - self._throttled_since_us) / 1e6
        at_most = self._rule.wait_at_most.total_seconds()
        if waited > at_most or seconds > max(at_most, PATIENCE):
            since = dt.datetime.fromtimestamp(self._throttled_since_us / 1e6, dt.UTC)
            raise RunStopped(
                f"{self._service} has been throttling us since {since:%H:%M:%S} UTC ({reason}), "
                f"now for {seconds:.0f} s more; waited {waited:.0f} s, gave up."
            )
        self._close(seconds, reason)

    def redirected(self, reason: str) -> None:
        """The service sent us elsewhere. Raises AccessRefused after as many in a row as make an outage: each row would
        cost a call, and waiting mends no login.
        """
        self.is_degraded = True
        self._redirects += 1
        if self._redirects >= self._after:
            raise AccessRefused(
                f"{self._service} redirected {self._redirects} calls in a row ({reason}). Correct the service's url, "
                "or renew its login."
            )

    def failed(self, reason: str, *, repeated: bool = False) -> None:
        """An attempt got no answer. Raises RunStopped when the service was waited for as long as declared.

        repeated: of a row that failed before; it says nothing new of a service that is up. A few rows that always fail
        would else look like an outage at the end of a partition, where nothing else is left to succeed.
        """
        if repeated and not self.is_down:
            return
        self.is_degraded = True
        now = self._now_us()
        if self._in_a_row == 0:
            self._first_failure_us = now
        self._in_a_row += 1
        if self._in_a_row < self._after:
            return
        if self._down_since_us is None:
            self._down_since_us = now
        waited = (now - self._down_since_us) / 1e6
        left = self._rule.wait_at_most.total_seconds() - waited
        if left <= 0:
            since = dt.datetime.fromtimestamp(self._first_failure_us / 1e6, dt.UTC)
            raise RunStopped(
                f"{self._service} stopped answering at {since:%H:%M:%S} UTC ({reason}); "
                f"gate closed, waited {waited:.0f} s, gave up."
            )
        self._close(min(self._rule.probe_every.total_seconds(), left), reason)

    def _close(self, seconds: float, reason: str) -> None:
        self._gate.close(seconds)
        if seconds > 0:
            self._on_pause(seconds, reason)
