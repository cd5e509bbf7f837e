"""Divides the calls in flight of a run among its tasks.

Spark's partitions are uneven: one task gets all rows of a file of one row group. With fixed shares the whole limit
would be that task's share, and a last row that hangs would occupy its task's whole share. So a task reports what it can
still use, keeps no more than that, and gets what others leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.limits.fair_shares import even_shares, fair_shares
from jobs.schema import ShareGiven

RESERVED_FOR = 30.0  # s for the next attempt of a task whose connection ended


@dataclass(eq=False)
class _Part:
    task: int
    has: list[int]
    wants: Sequence[int] = ()
    lost_at: float | None = None  # s; None: its attempt works, or none has begun


class CallShares:
    """Each attempt's share per lookup. Plain data; its owner informs the tasks. given: the changes, in order.

    All shares together never exceed the totals. A share becomes smaller only by its attempt's own report or end. Each
    task begins with an even share, which is reserved until its first attempt; that of an attempt which died is reserved
    for the next one.
    """

    def __init__(self, totals: Sequence[int], tasks: int) -> None:
        self._totals = tuple(totals)
        even = zip(*(even_shares(total, tasks) for total in totals), strict=True)
        self._reserved = {task: _Part(task, list(share)) for task, share in enumerate(even)}
        self._working: dict[str, _Part] = {}
        self._free = [0] * len(self._totals)
        self._more_is_free = False  # than when attempts were last to ask
        self.given: list[ShareGiven] = []

    def begin(self, attempt: str, task: int, at: int) -> list[int]:
        """The first share of an attempt: what is reserved for its task, and what is free. at: µs, by its clock."""
        part = self._reserved.pop(task, None) or _Part(task, [0] * len(self._totals))
        self._working[attempt] = _Part(task, part.has)
        return self.report(attempt, part.has, self._totals, at)

    def report(self, attempt: str, keeps: Sequence[int], wants: Sequence[int], at: int) -> list[int]:
        """An attempt's share from now on. keeps: its calls in flight since `at`, at most. wants: what it could use."""
        part = self._working[attempt]
        part.wants = wants
        before = list(part.has)
        for lookup, has in enumerate(before):
            kept = min(has, max(0, keeps[lookup]))
            self._free[lookup] += has - kept
            self._more_is_free |= has > kept
            more = self._more(part, lookup, kept) if self._free[lookup] and wants[lookup] > kept else 0
            self._free[lookup] -= more
            part.has[lookup] = kept + more
        if part.has != before:
            self._note(part.task, part.has, at)
        return list(part.has)

    def _more(self, part: _Part, lookup: int, kept: int) -> int:
        """What an attempt gets of what is free, up to its fair share of what all attempts have and could have."""
        parts = [*self._working.values()]
        together = self._free[lookup] + kept + sum(one.has[lookup] for one in parts if one is not part)
        fair = fair_shares(together, [one.wants[lookup] for one in parts])[parts.index(part)]
        return max(0, min(fair - kept, self._free[lookup]))

    def end(self, attempt: str, at: int) -> None:
        """All rows of the attempt's task are through: others can have its share."""
        self._release(self._working.pop(attempt), at)

    def lose(self, attempt: str, now: float) -> None:
        """The attempt's connection ended before its rows were through. now: s."""
        part = self._working.pop(attempt)
        earlier = self._reserved.pop(part.task, None)
        has = part.has if earlier is None else [*map(sum, zip(part.has, earlier.has, strict=True))]
        self._reserved[part.task] = _Part(part.task, has, lost_at=now)

    def expire(self, now: float) -> None:
        """Release what is reserved for attempts that have not come for a while: those that work may wait for it."""
        for part in list(self._reserved.values()):
            if part.lost_at is not None and now - part.lost_at >= RESERVED_FOR:
                del self._reserved[part.task]
                self._release(part, max((one.since for one in self.given if one.task == part.task), default=0))

    def to_ask(self) -> list[str]:
        """The attempts that could use what is free since the last time, the least first; no more than free calls."""
        if not self._more_is_free:
            return []
        self._more_is_free = False
        free = [lookup for lookup, calls in enumerate(self._free) if calls]
        found = [
            attempt
            for attempt, part in self._working.items()
            if any(part.wants[lookup] > part.has[lookup] for lookup in free)
        ]
        return sorted(found, key=lambda attempt: self._working[attempt].has)[: sum(self._free)]

    def _release(self, part: _Part, at: int) -> None:
        self._more_is_free = True
        self._free = [free + has for free, has in zip(self._free, part.has, strict=True)]
        if any(part.has):
            self._note(part.task, [0] * len(self._totals), at)

    def _note(self, task: int, shares: Sequence[int], at: int) -> None:
        self.given.append(ShareGiven(task, tuple(shares), at))
