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
        """Return how many of these items of a lookup may be submitted, and spend them."""
        weight = 0.0 if self.cap is None else self.cap.weights[place]
        if not weight:
            return items
        items = min(items, int(self.left / weight + ROUNDING))
        self.left = max(0.0, self.left - items * weight)
        return items

    def take_all(self, items: int, place: int) -> bool:
        """Return whether all these items of a lookup may be submitted, and spend them then."""
        taken = self.take(items, place)
        if taken < items:
            self.give_back(taken, place)
        return taken == items

    def give_back(self, items: int, place: int) -> None:
        """Count these items of a lookup, which the vendor did not take, as not spent."""
        self.left += 0.0 if self.cap is None else items * self.cap.weights[place]
