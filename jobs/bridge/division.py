"""How the tasks of one run divide the calls in flight: evenly, and what one that has ended leaves goes to the others.

Spark gives tasks what it likes: of a file of one row group one task gets all rows, and the others none. Without this
the limit would be that of one task then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence


def shares(total: int, parts: int) -> tuple[int, ...]:
    """`total` calls in flight, divided over so many parts as evenly as whole calls can be."""
    share, left = divmod(total, parts)
    return tuple(share + (number < left) for number in range(parts))


class Division:
    """Which share each task of a run has now. Plain data: whoever holds it tells the tasks.

    The shares of all tasks together never exceed the totals. The share of a task that works never becomes smaller; that
    of one that died is kept for its next attempt. A task that had ended and comes again, as its result was lost, has no
    share until another ends, or until no other works.
    """

    def __init__(self, totals: Sequence[int], tasks: int) -> None:
        """totals: per lookup, calls in flight of all tasks; each at least `tasks`."""
        self.totals = tuple(totals)
        self._places = list(range(tasks))  # those that have not ended; each has the part of its place
        self._attempts: Counter[int] = Counter()  # of each task that works, with those that wait for a share
        self._ended: set[int] = set()  # of which another attempt still works
        self._waiting: deque[int] = deque()  # they had ended, and came again

    def share_of(self, task: int) -> tuple[int, ...] | None:
        """Per lookup; None while there is none for it."""
        if task not in self._places:
            return None
        place, parts = self._places.index(task), len(self._places)
        return tuple(shares(total, parts)[place] for total in self.totals)

    def begin(self, task: int) -> None:
        """An attempt of the task begins."""
        self._attempts[task] += 1
        if task not in self._places and task not in self._waiting:
            self._waiting.append(task)
            self._admit()

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
            gives = task in self._ended and task in self._places
            self._ended.discard(task)
            if gives:
                self._give_place_of(task)
            elif task in self._waiting:
                self._waiting.remove(task)
        self._admit()
        return gives

    def _give_place_of(self, task: int) -> None:
        place = self._places.index(task)
        if self._waiting:
            self._places[place] = self._waiting.popleft()
        else:
            del self._places[place]

    def _admit(self) -> None:
        """Where nobody works who could end, nobody need be waited for: the one who waits may keep the others out."""
        while self._waiting and not any(self._attempts[task] for task in self._places):
            self._places.append(self._waiting.popleft())
