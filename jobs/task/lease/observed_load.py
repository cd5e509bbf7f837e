"""What the ends of a task's calls tell of the load that a service bears."""

import math
from typing import Any

from jobs.limits.adaptive_limit import SOONEST, Seen


class ObservedLoad:
    """The ends of calls since the last heartbeat, where a limit adapts to them.

    Attributes:
        seen: The ends.
        adapted_s: Seconds for which calls waited because the service bears no more.
        is_adapted: Whether the limit on calls is what the service bears.
    """

    def __init__(self) -> None:
        self.seen = Seen()
        self.adapted_s = 0.0
        self.is_adapted = False
        self._reported_at = -math.inf

    def note(self, seconds: float, *, answered: bool, known: bool) -> None:
        """Note the end of a call that took this long.

        Args:
            seconds: The time that it took.
            answered: Whether the service answered.
            known: Whether the call has reported all that it used; without an answer it was refused.
        """
        seen = self.seen
        if answered:
            seen.answered += 1
            seen.seconds += seconds
            return
        seen.lost += seconds
        if known:
            seen.refused += 1
        else:
            seen.failed += 1

    def tells_enough(self, now: float, calls: int) -> bool:
        """Return whether to report now: after each round of `calls` calls, or a refusal."""
        seen = self.seen
        return now >= self._reported_at + SOONEST and bool(
            seen.refused or seen.answered + seen.failed >= calls
        )

    def report(self, now: float, *, waits: bool) -> dict[str, Any]:
        """Return the ends of calls since the last report, and forget them.

        Args:
            now: The time.
            waits: Whether more calls could run than may.
        """
        if self.is_adapted and waits:
            self.adapted_s += now - self._reported_at
        seen, self.seen, self._reported_at = self.seen, Seen(), now
        return vars(seen)
