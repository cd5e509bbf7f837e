"""Divides the calls in flight among tasks: evenly, and unused ones go to other tasks.

Spark's partitions are uneven: one task gets all rows of a file of one row group. With fixed parts the whole limit would
be that task's part, and a last row that hangs would occupy its task's whole share.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence


def shares(total: int, parts: int) -> tuple[int, ...]:
    """`total` calls in flight, divided into this many parts as evenly as possible."""
    share, left = divmod(total, parts)
    return tuple(share + (number < left) for number in range(parts))


class Quota:
    """The current share of each task of a run. Plain data; its owner informs the tasks.

    The shares of all tasks together never exceed the totals. The share of a task that works becomes smaller by its own
    word only; that of one that died is kept for its next attempt. What is free goes to those that have least. A task
    that had ended and comes again, as its result was lost, has no share until there is one, or until no other works.
    """

    def __init__(self, totals: Sequence[int], tasks: int) -> None:
        """totals: per lookup, calls in flight of all tasks; each at least `tasks`."""
        self.totals = tuple(totals)
        divided = [shares(total, tasks) for total in totals]
        # per lookup, of those that have not ended, whether they work or not
        self._has = {task: [of_lookup[task] for of_lookup in divided] for task in range(tasks)}
        self._attempts: Counter[int] = Counter()  # of each task that works, with those that wait for a share
        self._sated: set[tuple[int, int]] = set()  # task and lookup: what it has is enough for its last rows
        self._ended: set[int] = set()  # of which another attempt still works
        self._waiting: deque[int] = deque()  # they had ended, and came again
        self.made_room: list[int] = []  # of what they had while nobody worked on them; for whoever holds this to note

    def share_of(self, task: int) -> tuple[int, ...] | None:
        """Per lookup; None while there is none for it."""
        return tuple(self._has[task]) if task in self._has else None

    def begin(self, task: int) -> None:
        """Start an attempt of the task."""
        self._attempts[task] += 1
        self._hungers(task)
        if task not in self._has and task not in self._waiting:
            self._waiting.append(task)
        self._divide()

    def reduce(self, task: int, calls: Sequence[int]) -> bool:
        """All rows of the task's one attempt are in: it never again has more than these in flight, per lookup. Where
        that is more than its share, it may still be given more. Whether this is taken: not where two attempts work. One
        call of each it keeps: it may die, and come again.
        """
        if self._attempts[task] != 1 or task not in self._has:
            return False
        has = self._has[task]
        for lookup, needed in enumerate(calls):
            if needed <= has[lookup]:
                has[lookup] = max(1, needed)
                self._sated.add((task, lookup))
        self._divide()
        return True

    def leave(self, task: int, *, ended: bool) -> bool:
        """An attempt is over. ended: all its rows are through. Whether its share is given to others now, which it is
        once no attempt of the task works.
        """
        self._attempts[task] -= 1
        if ended:
            self._ended.add(task)
        gives = False
        if not self._attempts[task]:
            del self._attempts[task]
            gives = task in self._ended and task in self._has
            self._ended.discard(task)
            if gives:
                del self._has[task]
                self._hungers(task)
            elif task in self._waiting:
                self._waiting.remove(task)
        self._divide()
        return gives

    def _hungers(self, task: int) -> None:
        self._sated.difference_update((task, lookup) for lookup in range(len(self.totals)))

    def _divide(self) -> None:
        while self._waiting and self._makes_room():
            self._has[self._waiting.popleft()] = [1] * len(self.totals)
        for lookup in range(len(self.totals)):
            self._give(lookup, self._free(lookup))

    def _free(self, lookup: int) -> int:
        return self.totals[lookup] - sum(share[lookup] for share in self._has.values())

    def _makes_room(self) -> bool:
        """For one more: of what is free; where nobody works who could end, of what those have that may come yet."""
        lookups = range(len(self.totals))
        if any(self._attempts[task] for task in self._has):
            return all(self._free(lookup) for lookup in lookups)
        for lookup in lookups:
            if not self._free(lookup):  # then one has two, as there are at least as many calls as tasks
                task, has = max(self._has.items(), key=lambda item: item[1][lookup])
                has[lookup] -= 1
                self.made_room.append(task)
        return True

    def _give(self, lookup: int, free: int) -> None:
        """Distribute free calls as evenly as possible, without reducing a share."""
        takers = sorted(task for task in self._has if (task, lookup) not in self._sated)
        while free and takers:
            together = free + sum(self._has[task][lookup] for task in takers)
            below = [task for task in takers if self._has[task][lookup] <= together // len(takers)]
            if below == takers:
                for task, share in zip(takers, shares(together, len(takers)), strict=True):
                    self._has[task][lookup] = share
                return
            takers = below
