"""A lease's limits in a window of time: rates, and budgets over runs."""

import math
from collections.abc import Collection

from jobs.limits.lease_holder import LeaseHolder
from jobs.limits.limits_plan import ServiceLimits
from jobs.limits.window_use import WindowUse

# a task asks at once for 1/FIRST of a rate, as growing to a high limit takes time
FIRST = 1000
GIVEN_BACK_WITHIN = 2.5  # s for others to give back money that they reserved and do not use


class WindowLimits:
    """What a task uses of its parts of these limits.

    Attributes:
        uses: By limit.
    """

    def __init__(self, limits: ServiceLimits, holder: LeaseHolder) -> None:
        self.uses = {
            name: WindowUse(limits.limits[name].window, limit.each, limit.reserve_per_call)
            for name, limit in limits.reserved.items()
        }
        self._holder, self._budgets = holder, limits.budgets
        self._first = {
            name: 0 if limit.budget else limits.limits[name].amount // FIRST
            for name, limit in limits.reserved.items()
        }

    def have_room(self, now: float) -> bool:
        """Return whether another call fits into every limit."""
        for name, use in self.uses.items():  # written out, because it runs for each call
            if use.in_use(now) + use.reserve_per_call > self._holder.may_use(name, now):
                return False
        return True

    def lack_rate(self, now: float) -> bool:
        """Return whether a rate lacks room for another call, not only a budget."""
        return any(
            use.in_use(now) + use.reserve_per_call > self._holder.may_use(name, now)
            for name, use in self.uses.items()
            if name not in self._budgets
        )

    def room(self, now: float) -> float:
        """Return how many calls fit into every limit."""
        rooms = (
            (self._holder.may_use(name, now) - use.in_use(now)) // max(1, use.reserve_per_call)
            for name, use in self.uses.items()
        )
        return min(rooms, default=math.inf)

    def next_free(self) -> float | None:
        """Return when a part of a limit is free again without the end of a call."""
        ends = (use.next_free() for use in self.uses.values())
        return min((end for end in ends if end is not None), default=None)

    def in_use(self, now: float) -> dict[str, int]:
        return {name: use.in_use(now) for name, use in self.uses.items()}

    def wants(self, now: float, calls: int) -> dict[str, int]:
        """Return by limit what this many calls could use."""
        return {
            name: use.wants(now, calls, at_least=self._first[name])
            for name, use in self.uses.items()
        }

    def full(self, now: float) -> set[str]:
        """Return the limits without room for another call, whatever other runs give back."""
        return {
            name
            for name, use in self.uses.items()
            if use.in_use(now) + use.reserve_per_call > self._holder.might_have(name)
        }


class SpentBudgets:
    """Budgets over runs of a service, which end a run once one is used up.

    Attributes:
        used_up: The budget that is used up, as the user wrote it; empty as long as none is.
    """

    def __init__(self, limits: ServiceLimits) -> None:
        self._budgets = {
            name: limit.budget for name, limit in limits.reserved.items() if limit.budget
        }
        self._since: float | None = None
        self.used_up = ""

    def note(self, full: Collection[str], now: float) -> None:
        """Note which limits lack room while no call runs and one waits.

        A budget is used up if it lacks room for a while, and no run could give any back.
        """
        spent = [budget for name, budget in self._budgets.items() if name in full]
        if not spent:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= GIVEN_BACK_WITHIN:
            self.used_up = spent[0]
