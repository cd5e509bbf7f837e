"""Decides when a service is down and how long to wait; each partition has a breaker per service."""

import datetime as dt
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from asyncio_core import Gate
from jobs.clients.client import NotSent, Send
from jobs.declare.lookup import Key
from jobs.declare.services import Outage
from jobs.errors import AccessRefused, RunStopped, ServiceDown

# this many failed batches are an outage, if they have more rows than the declared number
BATCHES_IN_A_ROW = 3
PATIENCE = 60.0  # s; a pause up to this is always waited for once
SLOTS = 60  # parts of `Outage.within` in which attempts are counted


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
        # each answer is to be reported: for its share, or after a failure or throttling
        self.counts_answers = rule.failing is not None
        self._now_us = now_us
        self._in_a_row = 0
        # for `failing`: the number of a slot, its attempts and the failed of them
        self._recent_attempts: deque[list[int]] = deque()
        self._slot_us = rule.within.total_seconds() * 1e6 / SLOTS
        self._redirects = 0  # in a row
        self._first_failure_us: int | None = None  # since the last success
        self._down_since_us: int | None = None
        self._throttled_since_us: int | None = None
        self._paused_until_us = 0  # by throttling or an outage; a lease closes the gate too
        self._found_down_elsewhere = False  # by another task, and the gate is closed
        self._down_s = 0.0  # closed by an outage, up to the last update
        self._looked_s = 0.0  # closed in total, up to the last update

    def closed_seconds(self) -> tuple[float, float]:
        """Return the seconds that throttling and an outage have closed the gate so far.

        The time since the last update counts for the current cause, so update often.
        """
        closed = self._gate.closed_seconds
        self._found_down_elsewhere = self._found_down_elsewhere and not self._gate.is_open
        if self.is_down or self._found_down_elsewhere:
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
        """Raise NotSent if a pause began while a call waited to leave."""
        if self.wants_no_call:
            raise NotSent

    async def unless_paused(self, send: Send, keys: Sequence[Key]) -> Sequence[Any]:
        """Send a request. Raises NotSent if a pause began while the request waited to leave."""
        self.refuse_in_pause()
        return await send(keys)

    def succeeded(self) -> None:
        """Record an answer; needed only while `counts_answers`."""
        if self.is_down:
            self._recent_attempts.clear()
        self._count(failed=False)
        self.counts_answers = self._rule.failing is not None
        self._in_a_row = self._redirects = 0
        self._first_failure_us = self._down_since_us = self._throttled_since_us = None

    def _count(self, *, failed: bool) -> None:
        if self._rule.failing is None:
            return
        slot = int(self._now_us() / self._slot_us)
        if not self._recent_attempts or self._recent_attempts[-1][0] != slot:
            self._recent_attempts.append([slot, 0, 0])
        self._recent_attempts[-1][1] += 1
        self._recent_attempts[-1][2] += failed
        while self._recent_attempts[0][0] <= slot - SLOTS:
            self._recent_attempts.popleft()

    def _too_many_fail(self) -> bool:
        """Return whether enough attempts failed, in a row or as the recent attempts' share."""
        share = self._rule.failing
        attempts = sum(count for _, count, _ in self._recent_attempts)
        failed = sum(count for _, _, count in self._recent_attempts)
        return self._in_a_row >= self._after or (
            share is not None and attempts >= self._after and failed >= share * attempts
        )

    def throttled(self, reason: str, seconds: float, *, is_down: bool = False) -> None:
        """Record throttling: no call for this many seconds.

        Args:
            reason: The service's words, for messages.
            seconds: Of the pause.
            is_down: Whether the service says that it is unavailable, rather than busy with us.

        Raises:
            RunStopped: With this pause, the continuous throttling exceeds the longest wait; as
                ServiceDown if the service is unavailable.
        """
        self.counts_answers = True
        now = self._now_us()
        if self._throttled_since_us is None:
            self._throttled_since_us = now
        waited = (now - self._throttled_since_us) / 1e6
        # calls under way at the start of a pause begin no further one
        before = 0.0 if self.wants_no_call else waited
        longest = self._rule.wait_at_most.total_seconds()
        is_too_long = before + seconds > longest
        if is_too_long and (before or seconds > PATIENCE):
            since = dt.datetime.fromtimestamp(self._throttled_since_us / 1e6, dt.UTC)
            kind, state = (
                (ServiceDown, "been unavailable") if is_down else (RunStopped, "throttled calls")
            )
            raise kind(
                f"{self._service} has {state} since {since:%H:%M:%S} UTC ({reason}): waited "
                f"{waited:.0f} s, and {seconds:.0f} s more would exceed wait_at_most, "
                f"{longest:g} s."
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
        self.counts_answers = True
        self._redirects += 1
        if self._redirects >= self._after:
            raise AccessRefused(
                f"{self._service} redirected {self._redirects} calls in a row ({reason}). Correct "
                "the service's url, or renew its login."
            )

    def failed(self, reason: str, *, repeated: bool = False) -> None:
        """Record an attempt without an answer.

        Args:
            reason: The failure, for messages.
            repeated: Whether the row failed before; while the service is up, such a failure counts
                only in the share. Otherwise a few rows that always fail would look like an outage
                at the end of a partition, where no other rows succeed.

        Raises:
            ServiceDown: The service stayed down for the declared wait.
        """
        self.counts_answers = True
        now = self._now_us()
        if self._first_failure_us is None:
            self._first_failure_us = now
        self._in_a_row += self.is_down or not repeated
        self._count(failed=True)
        if not self.is_down and not self._too_many_fail():
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
        self._found_down_elsewhere = down

    def _pause(self, seconds: float) -> None:
        self._gate.close(seconds)
        self._paused_until_us = max(self._paused_until_us, self._now_us() + int(seconds * 1e6))

    def _close(self, seconds: float, reason: str) -> None:
        self._pause(seconds)
        if seconds > 0:
            self._on_pause(seconds, reason, self.is_down)
