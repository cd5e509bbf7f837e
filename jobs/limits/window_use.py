"""Records what a task uses of a limit in any window of time, or for good, without waiting.

A call reserves the most that it may use, and settles what it used. The used amount stays in use
until a window has passed since the latest moment at which the service can have counted it: for a
request its answer, or the time within which requests arrive. So a holder of N of a limit never uses
more than N in any window, and all holders together never use more than the limit.
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from jobs.declare.values.prices import SENT, Unit

Each = Mapping[Unit, Fraction]  # amount of a limit per unit

PACE = 1.0  # s over which the speed of use is measured
# share of a window; s. A minimum of 0.1 s was too short: on a busy machine one request in some
# thousands took 0.14 s
ARRIVES_SHARE, ARRIVES_AT_LEAST, ARRIVES_AT_MOST = 0.05, 0.25, 1.0


def arrives_within(window: float) -> float:
    """Return the seconds after which a sent request counts as arrived without an answer."""
    return min(max(window * ARRIVES_SHARE, ARRIVES_AT_LEAST), ARRIVES_AT_MOST)


@dataclass(slots=True)
class Sent:
    """A request that left.

    Attributes:
        arrives_by: When it counts as arrived.
        amount: Used until a window after `arrives_by`; 0 once it is settled.
    """

    arrives_by: float
    amount: int


class WindowUse:
    """The use of a limit. Times are seconds by the owner's clock.

    Args:
        window: Seconds; infinite for money, which is spent for good.
        each: Amount of the limit per unit that counts.
        reserve_per_call: Amount that is reserved before each call.
    """

    def __init__(self, window: float, each: Each, reserve_per_call: int) -> None:
        self.window, self.each, self.reserve_per_call = window, each, reserve_per_call
        self.counts_sent = any(unit in SENT for unit, _ in each)
        self.is_reported = any(unit not in SENT for unit, _ in each)
        # spares the arithmetic of fractions for each request
        self._only = next(iter(each)) if [*each.values()] == [1] else None
        self._arrives = arrives_within(window)
        self._reserved = 0
        self._used = 0
        self._sent: deque[Sent] = deque()  # requests that may not have arrived yet, in order
        # times at which amounts are free again, in order
        self._ends: deque[tuple[float, int]] = deque()
        self._paced_since = 0.0
        self._paced = [0, 0]  # reserved in the last full interval, and in the current interval

    def in_use(self, now: float) -> int:
        """Return the amount that is reserved, or used within the window."""
        while self._sent and self._sent[0].arrives_by <= now:
            sent = self._sent.popleft()
            if sent.amount:
                insort(self._ends, (sent.arrives_by + self.window, sent.amount))
        while self._ends and self._ends[0][0] <= now:
            self._used -= self._ends.popleft()[1]
        return self._reserved + self._used

    def next_free(self) -> float | None:
        """Return when a part is free again without the end of a call."""
        if self._ends:
            return self._ends[0][0]
        return self._sent[0].arrives_by + self.window if self._sent else None

    def wants(self, now: float, calls: int, *, at_least: int = 0) -> int:
        """Return the use, plus what `calls` calls could use until the next heartbeats."""
        self._pace(now)
        return self.in_use(now) + (
            max(self.reserve_per_call * calls, 2 * max(self._paced), at_least) if calls else 0
        )

    def reserve(self, now: float) -> None:
        """Reserve the amount of a beginning call."""
        self._pace(now)
        self._paced[1] += self.reserve_per_call
        self._reserved += self.reserve_per_call

    def use(self, amount: int, by: float, *, of_reserved: int) -> None:
        """Note that `amount` is used by this time, and release `of_reserved`."""
        self._reserved -= of_reserved
        self._used += amount
        if amount and self.window < math.inf:
            insort(self._ends, (by + self.window, amount))

    def arrives_by(self, left: float) -> float:
        """Return when a request that left at this time counts as arrived."""
        return left + self._arrives

    def send(self, amount: int, now: float, *, of_reserved: int) -> Sent:
        """Note that a request leaves and uses `amount`, and release `of_reserved`."""
        sent = Sent(self.arrives_by(now), amount)
        self._reserved -= of_reserved
        self._used += amount
        if self.window < math.inf:
            self._sent.append(sent)
        return sent

    def arrived(self, sent: Sent, now: float) -> None:
        """Note that the service has answered the request."""
        if now < sent.arrives_by and self.window < math.inf:
            insort(self._ends, (now + self.window, sent.amount))
            sent.amount = 0

    def amount_for(self, units: Mapping[Unit, int]) -> int:
        """Return the amount that these units use; a model without a rule counts as any model."""
        if self._only is not None and self._only[1] is None:
            return sum(many for (unit, _), many in units.items() if unit == self._only[0])
        found = sum(
            many * self.each.get((unit, model), self.each.get((unit, None), 0))
            for (unit, model), many in units.items()
        )
        return math.ceil(found)

    def _pace(self, now: float) -> None:
        if now >= self._paced_since + PACE:
            self._paced = [self._paced[1] if now < self._paced_since + 2 * PACE else 0, 0]
            self._paced_since = now


class CallUse:
    """What a call uses of all limits with a window of its service, from its start to its end.

    Attributes:
        until: The call's end by the clock. No request leaves after it, as others may use the lease
            by then.
    """

    __slots__ = (
        "_billed",
        "_clock",
        "_has_reported",
        "_has_unknown_use",
        "_left",
        "_reserved",
        "_sent",
        "until",
    )

    def __init__(
        self, limits: Iterable[WindowUse], clock: Callable[[], float], until: float = math.inf
    ) -> None:
        self._clock = clock
        self.until = until
        self._reserved: dict[WindowUse, int] = {}
        self._billed: dict[Unit, int] = {}
        self._left: float | None = None  # when its latest request left
        self._has_unknown_use = False  # a request will never report what it used
        self._has_reported = False  # a bill, and no request left or ended since
        self._sent: list[tuple[WindowUse, Sent]] = []
        for limit in limits:
            limit.reserve(clock())
            self._reserved[limit] = limit.reserve_per_call

    def request_left(self, items: int, model: str | None = None) -> None:
        """Note that a request is about to leave, with `items` keys that no earlier request had.

        Raises:
            TimeoutError: The call has ended: its process was stopped meanwhile, and its timers run
                late.
        """
        now = self._clock()
        if now >= self.until:
            raise TimeoutError
        self._has_reported, self._left = False, now
        if not self._reserved:
            return
        sent = {("request", model): 1, ("item", model): items}
        for limit, reserved in self._reserved.items():
            if limit.counts_sent:
                used = limit.amount_for(sent)
                of_reserved = min(used, reserved)
                self._sent.append((limit, limit.send(used, now, of_reserved=of_reserved)))
                self._reserved[limit] = reserved - of_reserved

    def request_ended(self) -> None:
        """Note that a request of the call was answered, or failed."""
        self._has_reported = False

    def bill(self, units: Mapping[Unit, int]) -> None:
        """Note that the call reports so many units."""
        self._has_reported = True
        for unit, many in units.items():
            self._billed[unit] = self._billed.get(unit, 0) + many

    def note_unknown_use(self) -> None:
        """Note that a request will never report what it used."""
        self._has_unknown_use = True

    def end(self, *, known: bool) -> None:
        """Settle the call.

        Args:
            known: Whether its requests were answered, and it reported all that it used. A call that
                failed after its last request was billed has reported all, too; any other call may
                have used all that it reserved.
        """
        now = self._clock()
        if known:
            for limit, sent in self._sent:
                limit.arrived(sent, now)
        for limit, reserved in self._reserved.items():
            used, by = 0, now
            if limit.is_reported:
                used = limit.amount_for(self._billed)
                is_reported = known or self._has_reported
                if self._left is not None and (self._has_unknown_use or not is_reported):
                    used, by = max(used, reserved), max(now, limit.arrives_by(self._left))
            if used or reserved:
                limit.use(used, by, of_reserved=reserved)
        self._reserved = {}
