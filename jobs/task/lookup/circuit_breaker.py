"""Decides when a service is down and how long to wait; each partition has a breaker per service."""

import datetime as dt
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from asyncio_core import Gate
from jobs.clients.client import Send, Throttled
from jobs.declare.lookup import Key
from jobs.declare.services import Outage
from jobs.errors import AccessRefused, RunStopped, ServiceDown

# this many failed batches are an outage, if they have more rows than the declared number
BATCHES_IN_A_ROW = 3
PATIENCE = 60.0  # s; a pause up to this is always waited for once


class CircuitBreaker:
    """Closes the gate when failures show that the service is down; gives up if it stays down.

    While the gate is closed no attempt starts and all record clocks stand still. It opens every
    `probe_every` for probes; the first success ends the outage, the first failure closes it again.
    """

    def __init__(
        self,
        rule: Outage,
        service: str,
        gate: Gate,
        now_us: Callable[[], int],
        *,
        batch_size: int = 1,
        on_pause: Callable[[float, str, bool], None] = lambda _seconds, _reason, _down: None,
    ) -> None:
        """Start without failures.

        Args:
            rule: The declared limits on failures and waiting.
            service: Its name and address, for messages.
            gate: Closed while the service is down or throttles.
            now_us: The task's clock.
            batch_size: Keys in a request.
            on_pause: Called for each closure of the gate with its seconds, its reason, and whether
                it is an outage.
        """
        self._rule = rule
        # a failed batch counts as its rows, but a batch alone is not an outage
        self._after = (
            rule.after if batch_size == 1 else max(rule.after, BATCHES_IN_A_ROW * batch_size)
        )
        self._service = service
        self._gate = gate
        self._on_pause = on_pause
        self.is_degraded = False  # no success since a failure or throttling
        self._now_us = now_us
        self._in_a_row = 0
        self._recent: deque[tuple[int, bool]] = deque()  # for `failing`: end in µs, failed
        self._redirects = 0  # in a row
        self._first_failure_us = 0
        self._down_since_us: int | None = None
        self._throttled_since_us: int | None = None
        self._paused_until_us = 0  # by throttling or an outage; a lease closes the gate too
        self._others_down = False  # another task found it down, and the gate is closed
        self._down_s = 0.0  # closed by an outage, up to the last update
        self._looked_s = 0.0  # closed in total, up to the last update

    def closed_seconds(self) -> tuple[float, float]:
        """Return the seconds that throttling and an outage have closed the gate so far.

        The time since the last update counts for the current cause, so update often.
        """
        closed = self._gate.closed_seconds
        self._others_down = self._others_down and not self._gate.is_open
        if self.is_down or self._others_down:
            self._down_s += closed - self._looked_s
        self._looked_s = closed
        return closed - self._down_s, self._down_s

    @property
    def is_down(self) -> bool:
        return self._down_since_us is not None

    @property
    def wants_no_call(self) -> bool:
        """Whether the service throttles or is down, so that the gate is closed."""
        return self._now_us() < self._paused_until_us

    def refuse_in_pause(self) -> None:
        """Raise Throttled if a pause began while a call waited to leave."""
        if self.wants_no_call:
            raise Throttled("a pause of the service began before the call left", 0.0)

    async def unless_paused(self, send: Send, keys: Sequence[Key]) -> Sequence[Any]:
        """Send a request. Raises Throttled if a pause began while the request waited to leave."""
        self.refuse_in_pause()
        return await send(keys)

    def succeeded(self) -> None:
        if self._rule.failing is not None and not self.is_down:
            self._note(failed=False)
        else:
            self._recent.clear()
        self.is_degraded = any(failed for _, failed in self._recent)  # then answers count too
        self._in_a_row = self._redirects = 0
        self._down_since_us = self._throttled_since_us = None

    def _note(self, *, failed: bool) -> None:
        now = self._now_us()
        self._recent.append((now, failed))
        since = now - self._rule.within.total_seconds() * 1e6
        while self._recent[0][0] < since:
            self._recent.popleft()

    def _too_many_fail(self) -> bool:
        """Return whether enough attempts failed, in a row or as the recent attempts' share."""
        if self._in_a_row >= self._after:
            return True
        share, count = self._rule.failing, len(self._recent)
        return (
            share is not None
            and count >= self._after
            and sum(one for _, one in self._recent) >= share * count
        )

    def throttled(self, reason: str, seconds: float, *, is_down: bool = False) -> None:
        """Record throttling: no call for this many seconds.

        Args:
            reason: The service's words, for messages.
            seconds: Of the pause.
            is_down: Whether the service says that it is unavailable, rather than busy with us.

        Raises:
            RunStopped: The pause, or the continuous throttling, exceeds the longest wait; as
                ServiceDown if the service is unavailable.
        """
        self.is_degraded = True
        now = self._now_us()
        if self._throttled_since_us is None:
            self._throttled_since_us = now
        waited = (now - self._throttled_since_us) / 1e6
        at_most = self._rule.wait_at_most.total_seconds()
        if waited > at_most or seconds > max(at_most, PATIENCE):
            since = dt.datetime.fromtimestamp(self._throttled_since_us / 1e6, dt.UTC)
            kind = ServiceDown if is_down else RunStopped
            raise kind(
                f"{self._service} has been throttling us since {since:%H:%M:%S} UTC ({reason}), "
                f"now for {seconds:.0f} s more; waited {waited:.0f} s, gave up."
            )
        self._close(seconds, reason)

    def used_up(self, seconds: float) -> None:
        """Pause, at most PATIENCE, because an answer reports that nothing of a limit is left."""
        self._close(min(max(0.0, seconds), PATIENCE), "a limit of the service is used up")

    def redirected(self, reason: str) -> None:
        """Record a redirect.

        Raises:
            AccessRefused: As many in a row as make an outage. Each row would cost a call, and
                waiting does not renew a login.
        """
        self.is_degraded = True
        self._redirects += 1
        if self._redirects >= self._after:
            raise AccessRefused(
                f"{self._service} redirected {self._redirects} calls in a row ({reason}). Correct "
                "the service's url, "
                "or renew its login."
            )

    def failed(self, reason: str, *, repeated: bool = False) -> None:
        """Record an attempt without an answer.

        Args:
            reason: The failure, for messages.
            repeated: Whether the row failed before; such failures do not count while the service is
                up. Otherwise a few rows that always fail would look like an outage at the end of a
                partition, where no other rows succeed.

        Raises:
            ServiceDown: The service stayed down for the declared wait.
        """
        if repeated and not self.is_down:
            return
        self.is_degraded = True
        now = self._now_us()
        if self._in_a_row == 0:
            self._first_failure_us = now
        self._in_a_row += 1
        if self._rule.failing is not None:
            self._note(failed=True)
        if not self._too_many_fail():
            return
        if self._down_since_us is None:
            self._down_since_us = now
        waited = (now - self._down_since_us) / 1e6
        left = self._rule.wait_at_most.total_seconds() - waited
        if left <= 0:
            since = dt.datetime.fromtimestamp(self._first_failure_us / 1e6, dt.UTC)
            raise ServiceDown(
                f"{self._service} stopped answering at {since:%H:%M:%S} UTC ({reason}); "
                f"gate closed, waited {waited:.0f} s, gave up."
            )
        self._close(min(self._rule.probe_every.total_seconds(), left), reason)

    def pause(self, seconds: float, *, down: bool) -> None:
        """Pause for this many seconds, as another task found the service throttling or down."""
        self._pause(seconds)
        self._others_down = down

    def _pause(self, seconds: float) -> None:
        self._gate.close(seconds)
        self._paused_until_us = max(self._paused_until_us, self._now_us() + int(seconds * 1e6))

    def _close(self, seconds: float, reason: str) -> None:
        self._pause(seconds)
        if seconds > 0:
            self._on_pause(seconds, reason, self.is_down)
