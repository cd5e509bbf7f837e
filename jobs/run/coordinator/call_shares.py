"""Divides the calls in flight of a run among its tasks.

Spark's partitions are uneven: a file with a single row group goes to a single task. With fixed
shares that task could never use more than its share, and a last row that hangs would occupy its
task's whole share. So a task reports what it can still use, keeps no more than that, and gets what
other tasks leave.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.limits.fair_shares import even_shares, fair_shares
from jobs.schema.records import ShareGiven


@dataclass(eq=False)
class _Part:
    task: int
    has: list[int]
    wants: Sequence[int] = ()
    # number of the attempt that has, or had, this share; None: no attempt has begun
    attempt: int | None = None
    since: int = 0  # µs, by the attempt's clock: its last change
    until: float = math.inf  # s: until then reserved for the next attempt of its task


class CallShares:
    """Holds each attempt's share per lookup. Plain data; its owner informs the tasks.

    All shares together never exceed the totals; without totals they are empty. A share becomes
    smaller only by its attempt's report or end. Each task begins with an even share, which is
    reserved until its first attempt; the share of an attempt that died is reserved for the next
    attempt.

    Attributes:
        given: All shares of all attempts, in order, except the even share with which the first
            attempt of a task begins.
    """

    def __init__(self, totals: Sequence[int], tasks: int) -> None:
        self._totals = tuple(totals)
        even = zip(*(even_shares(total, tasks) for total in totals), strict=True)
        self._reserved = [_Part(task, list(share)) for task, share in enumerate(even)]
        self._working: dict[str, _Part] = {}
        self._free = [0] * len(self._totals)
        self._more_is_free = False  # than at the last `to_ask`
        self.given: list[ShareGiven] = []

    def begin(self, name: str, task: int, at: int, attempt: int = 0) -> list[int]:
        """Return the first share of an attempt: what is reserved for its task, and what is free.

        Args:
            name: The attempt's name from now on.
            task: Its task's number.
            at: The attempt's time, in µs.
            attempt: Its number among all attempts.
        """
        begun = self._working[name] = _Part(task, [0] * len(self._totals), attempt=attempt)
        reserved = [part for part in self._reserved if part.task == task]
        for part in reserved:
            self._reserved.remove(part)
            begun.has = [*map(sum, zip(begun.has, part.has, strict=True))]
            self._end(part, part.since)
        is_first = any(part.attempt is None for part in reserved)
        before = list(begun.has)
        self._divide(begun, before, self._totals)
        # the first attempt is known to begin with an even share
        if (self._totals and not is_first) or begun.has != before:
            self._note(begun, at)
        return list(begun.has)

    def report(self, name: str, keeps: Sequence[int], wants: Sequence[int], at: int) -> list[int]:
        """Return an attempt's share from now on.

        Args:
            name: The attempt's name.
            keeps: Its calls in flight since `at`, at most.
            wants: The calls that it could use.
            at: The attempt's time, in µs.
        """
        part = self._working[name]
        before = list(part.has)
        self._divide(part, keeps, wants)
        if part.has != before:
            self._note(part, at)
        return list(part.has)

    def _divide(self, part: _Part, keeps: Sequence[int], wants: Sequence[int]) -> None:
        """Take back what an attempt does not keep, and give it free calls that it wants."""
        part.wants = wants
        for lookup, has in enumerate(list(part.has)):
            kept = min(has, max(0, keeps[lookup]))
            self._free[lookup] += has - kept
            self._more_is_free |= has > kept
            more = (
                self._more(part, lookup, kept) if self._free[lookup] and wants[lookup] > kept else 0
            )
            self._free[lookup] -= more
            part.has[lookup] = kept + more

    def _more(self, part: _Part, lookup: int, kept: int) -> int:
        """Return the free calls for an attempt, up to its fair share of what all could have."""
        parts = [*self._working.values()]
        together = (
            self._free[lookup]
            + kept
            + sum(other.has[lookup] for other in parts if other is not part)
        )
        fair = fair_shares(together, [other.wants[lookup] for other in parts])[parts.index(part)]
        return max(0, min(fair - kept, self._free[lookup]))

    def end(self, name: str, at: int) -> None:
        """End an attempt whose task has finished all its rows: others can have its share."""
        self._release(self._working.pop(name), at)

    def lose(self, name: str, until: float) -> None:
        """Reserve the share of an attempt lost before its end, for the next attempt of its task.

        Args:
            name: Its name.
            until: Time in seconds, when the attempt's last call has certainly ended.
        """
        part = self._working.pop(name)
        part.until = until
        self._reserved.append(part)

    def expire(self, now: float) -> None:
        """Release reservations of attempts that did not come in time: others may wait for them."""
        for part in [part for part in self._reserved if part.until <= now]:
            self._reserved.remove(part)
            self._release(part, part.since)

    def to_ask(self) -> list[str]:
        """Return the attempts that could use what became free since the last call of `to_ask`, the
        smallest share first; at most as many as free calls.
        """
        if not self._more_is_free:
            return []
        self._more_is_free = False
        free = [lookup for lookup, calls in enumerate(self._free) if calls]
        found = [
            name
            for name, part in self._working.items()
            if any(part.wants[lookup] > part.has[lookup] for lookup in free)
        ]
        return sorted(found, key=lambda name: self._working[name].has)[: sum(self._free)]

    def _release(self, part: _Part, at: int) -> None:
        self._more_is_free = True
        self._free = [free + has for free, has in zip(self._free, part.has, strict=True)]
        self._end(part, at)

    def _end(self, part: _Part, at: int) -> None:
        if part.attempt is not None and any(part.has):
            part.has = [0] * len(part.has)
            self._note(part, at)

    def _note(self, part: _Part, at: int) -> None:
        assert part.attempt is not None
        part.since = at
        self.given.append(ShareGiven(part.task, tuple(part.has), at, part.attempt))
