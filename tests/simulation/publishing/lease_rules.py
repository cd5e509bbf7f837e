"""Who holds which day in a night of publishing, as the night itself saw it."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process


class LeaseRules:
    """The judge of leases.

    Attributes:
        holders: By day, the process that holds it, and its run.
        children: By day, the last process that a run of the day has started, and the run.
    """

    def __init__(self) -> None:
        self.holders: dict[str, tuple[Process, str]] = {}
        self.children: dict[str, tuple[Process, str]] = {}
        self._asking: Counter[str] = Counter()  # days that somebody asks for or holds
        self._left: list[str] = []  # such days, as they were left

    @contextlib.contextmanager
    def asking(self, day: str) -> Iterator[None]:
        """The body asks for the lease of the day, and holds it."""
        self._asking[day] += 1
        try:
            yield
        finally:
            self._asking[day] -= 1
            self._left.append(day)

    def taken(self, day: str, run_id: str) -> None:
        for other in self.at_work(day):
            scheduler().fail(f"two holders: of {day}: {other} and {run_id}")
        self.holders[day] = scheduler().me().process, run_id

    def left(self, day: str) -> None:
        self.holders.pop(day, None)

    def at_work(self, day: str) -> list[str]:
        """The runs that hold the day, or that left a child which inherited its lease."""
        found = [self.holders[day][1]] if day in self.holders else []
        child, run_id = self.children.get(day, (None, ""))
        return found if child is None or child.has_ended else [*found, run_id]

    def require_holder(self, day: str, run_id: str) -> None:
        me, holder = scheduler().me().process, self.holders.get(day)
        if holder != (me, run_id):
            scheduler().fail(
                f"published without the lease: {run_id} by {me}; {day} is held by {holder}"
            )

    @contextlib.contextmanager
    def judged(self) -> Iterator[Callable[[Mapping[str, str]], None]]:
        """Judges the days that the body is told are at work, by run: each was so meanwhile."""
        before, left = self._taken(), len(self._left)

        def check(found: Mapping[str, str]) -> None:
            if wrong := {*found.values()} - before - {*self._left[left:]} - self._taken():
                scheduler().fail(f"nobody's day: {sorted(wrong)} is said to be at work: {found}")

        yield check

    def _taken(self) -> set[str]:
        children = {day for day, (child, _) in self.children.items() if not child.has_ended}
        return {*(day for day, number in self._asking.items() if number), *children}
