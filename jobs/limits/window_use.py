"""Records what a task uses of a limit in any window of time, or for good, without waiting.

A call reserves the most that it may use, and settles what it used. The used amount stays in use
until a window has passed since the latest moment at which the service can have counted it: for a
request its answer, or the time within which requests arrive. So a holder of N of a limit never uses
more than N in any window, and all holders together never use more than the limit.
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

SENT = ("request", "item")  # units that are counted when they are sent
ONE = Fraction(1)

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
        unit: The counted unit.
        reserve_per_call: Amount that is reserved before each call.
        each: Amount of the limit per unit.
    """

    def __init__(
        self, window: float, unit: str, reserve_per_call: int, each: Fraction = ONE
    ) -> None:
        self.window, self.unit, self.reserve_per_call, self.each = (
            window,
            unit,
            reserve_per_call,
            each,
        )
        self._is_one = each == ONE  # spares the arithmetic of fractions for each request
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

    @property
    def is_one_request(self) -> bool:
        """Whether each call uses a single unit for a while, its request."""
        return (
            self.unit == "request"
            and self.reserve_per_call == 1
            and self._is_one
            and self.window < math.inf
        )

    def wants(self, now: float, calls: int, *, at_least: int = 0) -> int:
        """Return the use, plus what `calls` calls could use until the next heartbeats."""
        self._pace(now)
        return self.in_use(now) + (
            max(self.reserve_per_call * calls, 2 * max(self._paced), at_least) if calls else 0
        )

    def reserve(self, now: float, calls: int = 1) -> None:
        """Reserve the amount of `calls` beginning calls."""
        self._pace(now)
        self._paced[1] += self.reserve_per_call * calls
        self._reserved += self.reserve_per_call * calls

    def use(self, amount: int, now: float, *, of_reserved: int) -> None:
        """Note that `amount` is used by now, and release `of_reserved`."""
        self._reserved -= of_reserved
        self._used += amount
        if amount and self.window < math.inf:
            self._ends.append((now + self.window, amount))

    def send(self, amount: int, now: float, *, of_reserved: int) -> Sent:
        """Note that a request leaves and uses `amount`, and release `of_reserved`."""
        sent = Sent(now + self._arrives, amount)
        self._reserved -= of_reserved
        self._used += amount
        if self.window < math.inf:
            self._sent.append(sent)
        return sent

    def arrived(self, sent: Sent, now: float) -> None:
        """Note that the service has answered the request."""
        if now < sent.arrives_by and self.window < math.inf:
            self._ends.append((now + self.window, sent.amount))
            sent.amount = 0

    def amount_for(self, units: int) -> int:
        return units if self._is_one else math.ceil(units * self.each)

    def _pace(self, now: float) -> None:
        if now >= self._paced_since + PACE:
            self._paced = [self._paced[1] if now < self._paced_since + 2 * PACE else 0, 0]
            self._paced_since = now


class CallUse:
    """What a call uses of all limits with a window of its service, from its start to its end.

    Args:
        limits: The limits.
        clock: Seconds.
        until: The call's end by the clock. No request leaves after it, as others may use the lease
            by then.
    """

    __slots__ = ("_billed", "_clock", "_has_told", "_reserved", "_sent", "_until")

    def __init__(
        self, limits: Iterable[WindowUse], clock: Callable[[], float], until: float = math.inf
    ) -> None:
        self._clock = clock
        self._until = until
        self._reserved: dict[WindowUse, int] = {}
        self._billed: dict[str, int] | None = None
        self._has_told = False  # it reported a bill; no request left or ended since
        self._sent: list[tuple[WindowUse, Sent]] = []
        now = clock()
        for limit in limits:
            limit.reserve(now)
            self._reserved[limit] = limit.reserve_per_call

    def request_left(self, items: int) -> None:
        """Note that a request is about to leave, with `items` keys that no earlier request had.

        Raises:
            TimeoutError: The call has ended: its process was stopped meanwhile, and its timers run
                late.
        """
        now = self._clock()
        if now >= self._until:
            raise TimeoutError
        self._has_told = False
        for limit, reserved in self._reserved.items():
            if limit.unit in SENT:
                used = limit.amount_for(1 if limit.unit == "request" else items)
                of_reserved = min(used, reserved)
                self._sent.append((limit, limit.send(used, now, of_reserved=of_reserved)))
                self._reserved[limit] = reserved - of_reserved

    def request_ended(self) -> None:
        """Note that a request of the call was answered, or failed."""
        self._has_told = False

    def bill(self, unit: str, many: int) -> None:
        """Note that the call reports so many units."""
        self._has_told = True
        self._billed = self._billed or {}
        self._billed[unit] = self._billed.get(unit, 0) + many

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
            used = 0
            if limit.unit not in SENT:
                billed = limit.amount_for(self._billed.get(limit.unit, 0)) if self._billed else 0
                used = billed if known or self._has_told else max(billed, reserved)
            if used or reserved:
                limit.use(used, now, of_reserved=reserved)
        self._reserved = {}
