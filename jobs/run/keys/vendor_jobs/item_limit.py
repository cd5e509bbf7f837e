"""What the lookups of a run may still spend on items of jobs."""

from dataclasses import dataclass, replace
from typing import Self

from jobs.ledger.plan import ROUNDING, CallCap


@dataclass
class ItemLimit:
    """What the lookups of a run may still spend on items of jobs.

    Attributes:
        cap: Of the run; None without a cap.
        left: Of the cap, in its units.
    """

    cap: CallCap | None = None
    left: float = 0.0

    @classmethod
    def of(cls, cap: CallCap | None) -> Self:
        return cls(cap, 0.0 if cap is None else sum(cap.parts))

    def rest(self) -> CallCap | None:
        """Return what is left for calls. Jobs in doubt count as spent."""
        whole = 0.0 if self.cap is None else sum(self.cap.parts)
        if self.cap is None or self.left >= whole:
            return self.cap
        return replace(self.cap, parts=tuple(part * self.left / whole for part in self.cap.parts))

    def take(self, items: int, place: int) -> int:
        """Return how many of these items of a lookup a job may have, and spend what it costs."""
        once, each = self._prices(place)
        if each:
            items = max(0, min(items, int((self.left - once) / each + ROUNDING)))
        elif once > self.left + ROUNDING:
            items = 0
        self.left = max(0.0, self.left - self._cost(items, place))
        return items

    def _prices(self, place: int) -> tuple[float, float]:
        """Return what a job of a lookup costs, and each of its items."""
        if self.cap is None:
            return 0.0, 0.0
        once = self.cap.settled[place].get("request", 0.0) if self.cap.settled else 0.0
        return once, self.cap.weights[place] - once

    def _cost(self, items: int, place: int) -> float:
        once, each = self._prices(place)
        return once + items * each if items else 0.0

    def take_all(self, items: int, place: int) -> bool:
        """Return whether a job may have all these items of a lookup, and spend its cost then."""
        taken = self.take(items, place)
        if taken < items:
            self.give_back(taken, place)
        return taken == items

    def give_back(self, items: int, place: int) -> None:
        """Count a job with these items of a lookup, which the vendor did not take, as not spent."""
        self.left += self._cost(items, place)
