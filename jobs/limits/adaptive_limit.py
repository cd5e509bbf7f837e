"""Finds how many calls in flight a service bears, by pure decisions on reported latencies.

A service with spare capacity answers twice the calls just as fast; a service without it queues
them, and its latency grows in proportion. So the limit is multiplied by the least latency over the
present latency, plus the limit's square root, which keeps a short queue and finds new capacity (the
gradient of Netflix' concurrency-limits, on the least latency). A limit at which the service refused
calls is a ceiling for a while. Times are seconds by the owner's clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SOONEST, LATEST = 0.1, 0.25  # s after a decision until all tasks know it: they report that often
LEAST_KNOWN_FOR = 50  # rounds; then half of the limit shows the present least latency
CEILING_KNOWN_FOR = 60.0  # s; then the service may bear more than it refused
# s, by one call, if the ceiling is below the limit that the refusal implies
CEILING_RISES_EVERY = 20.0
LESS_THAN_REFUSED = 0.95
# so many failures, and such a share of a round's calls, are an overload; a larger share is an
# outage
FAILURES, SHARE_OF_FAILURES = 3, (0.1, 0.5)
# share of the limit in use on average: a round with less does not show what the service bears
IN_USE = 0.75
# if a cut of the limit leaves more than this share of the latency, it is no queue of these calls
STALE = 0.9


@dataclass
class Seen:
    answered: int = 0
    seconds: float = 0.0  # of answered calls
    refused: int = 0  # throttled
    failed: int = 0  # by transient errors or their time limit
    lost: float = 0.0  # s of refused and failed calls

    def add(self, other: Seen) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class AdaptiveLimit:
    """The calls in flight of a run at a service: at_least to begin with, and never less."""

    def __init__(self, at_least: int, at_most: int) -> None:
        self._at_least, self.at_most = at_least, at_most
        self.limit = at_least
        self._starting = True  # doubles until the service shows a bound
        self._least = math.inf  # latency while the service has spare capacity
        self._least_age = 0  # rounds
        self._before_probe: int | None = None  # the limit, while half of it is tried
        self._good = at_least  # a limit that was not refused
        self._ceiling, self._ceiling_until, self._ceiling_rises_at = math.inf, -math.inf, math.inf
        self._refused_over = math.inf  # the limit minus the calls of the last refusal
        self._cut_at: float | None = None  # the latency before the limit was cut, in the last round
        self._lost = Seen()  # in this round: refusals, failures, and answers of the same time
        self._lost_since = -math.inf  # from then on reports concern calls under the present limit
        self._refused_at = math.inf  # the first time in this round
        self._timed = Seen()  # in this round: answers with their latencies
        self._timed_since = -math.inf  # the same for `_timed`
        self._latency = SOONEST

    def take(self, seen: Seen, now: float) -> None:
        """Take a task's report; at the end of a round, decide on the limit."""
        if self._timed_since == -math.inf:
            self._timed_since = now
        if now >= self._timed_since:
            self._timed.add(seen)
        if now >= self._lost_since:
            self._lost.add(seen)
            if seen.refused:
                self._refused_at = min(self._refused_at, now)
        whole = (
            now >= self._timed_since + max(SOONEST, self._latency)
            and self._timed.answered + self._lost.failed > 0
        )
        if whole or now >= self._refused_at + SOONEST:
            self._decide(now)

    def _decide(self, now: float) -> None:
        before, heard = self.limit, min(LATEST, max(SOONEST, self._latency))
        if self._lost.refused or _is_overload(self._lost):
            self._refused(now)
        elif self._timed.answered:
            self._latency = self._timed.seconds / self._timed.answered
            self._follow(self._timed, now - self._timed_since)
            if now >= self._ceiling_until:
                self._ceiling = math.inf
            elif now >= self._ceiling_rises_at and self._ceiling < self._refused_over:
                self._ceiling, self._ceiling_rises_at = self._ceiling + 1, now + CEILING_RISES_EVERY
        self.limit = max(self._at_least, int(min(self.limit, self._ceiling, self.at_most)))
        self._lost, self._timed, self._refused_at = Seen(), Seen(), math.inf
        # by then the calls over the limit have ended
        self._timed_since = now + (heard if self.limit >= before else LATEST + self._latency)

    def _refused(self, now: float) -> None:
        """Reduce the limit by the refused calls, or halfway to a limit that was not refused."""
        many, lost = self._lost.refused or self._lost.failed, self._lost
        if self._good < self.limit:
            less = max(self._good, min(self.limit - many, (self._good + self.limit) // 2))
        else:
            less = max(self.limit - many, self.limit // 2)
        self._refused_over = self.limit - many
        self._ceiling = int(min(less, self.limit * LESS_THAN_REFUSED))
        self._good = min(self._good, self._ceiling)
        self._ceiling_until = now + CEILING_KNOWN_FOR
        self._ceiling_rises_at = now + CEILING_RISES_EVERY
        self._lost_since = now + LATEST + lost.lost / (lost.refused + lost.failed)
        self._before_probe, self._starting, self._cut_at = None, False, None

    def _follow(self, timed: Seen, lasted: float) -> None:
        """Set the limit by the latency of a round that lasted `lasted` seconds."""
        # the mean of few answers is inexact
        least = self._latency * (1 + 1 / math.sqrt(timed.answered))
        if self._before_probe is not None:
            self.limit, self._before_probe = self._before_probe, None
            self._least, self._least_age = least, 0
            return
        is_used = timed.seconds >= lasted * self.limit * IN_USE
        if is_used:
            self._good = max(self._good, self.limit)
        if least <= self._least or (
            self._cut_at is not None and self._latency > STALE * self._cut_at
        ):
            self._least, self._least_age = least, 0
        self._least_age += 1
        gradient = min(1.0, max(0.5, self._least / self._latency))
        if self._starting and gradient == 1.0:
            wanted = 2.0 * self.limit
        else:
            self._starting = False
            wanted = self.limit * gradient + math.sqrt(self.limit)
        self._cut_at = self._latency if wanted < STALE * self.limit else None
        if (
            self._least_age >= LEAST_KNOWN_FOR
            and self._latency > self._least
            and self.limit > self._at_least
        ):
            self._before_probe, wanted = self.limit, self.limit / 2
        if is_used or wanted < self.limit:
            self.limit = int(wanted)


def _is_overload(lost: Seen) -> bool:
    low, high = SHARE_OF_FAILURES
    return lost.failed >= FAILURES and low <= lost.failed / (lost.answered + lost.failed) <= high
