"""The calls in flight that one task may have: its share of the run's, its part of the run's leases, and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.task.service_lease import ServiceLease, answer_of

if TYPE_CHECKING:
    from jobs.task.driver_link import ToDriver
    from jobs.task.operators import Chain
    from jobs.task.plan import PartitionPlan

ASK_EVERY = 0.02  # s; between two heartbeats of a task that waits for a lease, at least
LEND_EVERY = 0.02  # s; the last rows of a task are looked at so often


class TaskLimits:
    """Sets the sizes of a task's operators. Used on the task's loop.

    Args:
        plan: The task's plan.
        partition: The task's number.
        driver: Receives what the task needs, and its pauses.
        on_growth: Called with the shares, once there are more.

    Attributes:
        shares: Per lookup, the task's calls in flight.
    """

    def __init__(
        self, plan: PartitionPlan, partition: int, driver: ToDriver, on_growth: Callable[[Sequence[int]], None]
    ) -> None:
        self._plan = plan
        self._driver = driver
        self._on_growth = on_growth
        # where tasks divide what there is, the driver says more with the first row; of what others have it may keep one
        self.shares = [1 if plan.divides else shares[partition % len(shares)] for shares in plan.shares]
        self._chain: Chain | None = None
        self._asking_soon = False
        self._asked_for_leases = 0  # so often
        self._asked_at: dict[int, float] = {}  # by the loop's time: the latest ones

    def set_operators(self, chain: Chain) -> None:
        """Their operators, once they are made."""
        self._chain = chain

    @property
    def _leases(self) -> dict[str, ServiceLease]:
        """By service: lookups of one service share one."""
        leases = self._chain.leases if self._chain is not None else ()
        return {lease.service: lease for lease in leases if lease is not None}

    def widen(self, shares: Sequence[int]) -> None:
        self.shares = [*map(max, self.shares, shares)]
        self._on_growth(self.shares)
        self._fit()

    def _fit(self) -> None:
        """Set the operators' concurrency to this task's share and lease.

        One of them waits for its lease where there is none, so that it is asked for.
        """
        if self._chain is None:
            return
        at_most = [share if lease is None else min(share, max(1, lease.calls))
                   for share, lease in zip(self.shares, self._chain.leases, strict=True)]  # fmt: skip
        self._chain.resize(self._plan.lookups, at_most)

    async def lend(self, all_rows_came: asyncio.Event) -> None:
        """Say what the last rows may still need, each time that it has become half: a row that hangs needs one call.

        All that they need is said, above the share too: more may be on its way here, and what is said is kept for ever.
        """
        if not self._plan.divides or self._chain is None:
            return
        await all_rows_came.wait()
        kept: dict[int, int] = {}  # by lookup, where the share was more
        while len(kept) < len(self.shares) or max(kept.values()) > 1:
            left = self._chain.outstanding()
            has = [kept.get(place, share) for place, share in enumerate(self.shares)]
            if any(2 * max(1, now) <= then for now, then in zip(left, has, strict=True)):
                self._driver.say_needs(left)
                kept |= {place: now for place, now in enumerate(left) if now <= self.shares[place]}
            await asyncio.sleep(LEND_EVERY)

    # -- pauses --------------------------------------------------------------------------------------------------------

    def pause(self, service: str, seconds: float, down: bool) -> None:  # noqa: FBT001  # of call_soon
        """Another task was throttled for this many seconds, or found the service down."""
        if self._chain is not None and service in self._chain.by_service:
            self._chain.by_service[service].pause(seconds, down=down)
            self._note_pause(service, seconds)

    def report_pause(self, service: str, seconds: float, reason: str, down: bool) -> None:  # noqa: FBT001  # as CircuitBreaker passes it
        """This task was throttled, or found the service down."""
        self._note_pause(service, seconds)
        self._driver.say_pause(service, seconds, reason, down=down)

    def _note_pause(self, service: str, seconds: float) -> None:
        if (lease := self._leases.get(service)) is not None:
            lease.others_close(seconds)

    # -- leases over runs ----------------------------------------------------------------------------------------------

    def ask_soon(self) -> None:
        if not self._asking_soon:
            self._asking_soon = True
            asyncio.get_running_loop().call_later(ASK_EVERY, self.ask_for_leases)

    def ask_for_leases(self) -> None:
        """Send a heartbeat: the current and possible use of limits over runs."""
        self._asking_soon = False
        leases = self._leases
        if self._chain is None or not leases:
            return
        self._report_leases(leases, self._chain.wants(self.shares))

    def give_back(self) -> None:
        """No call will start any more: say so, and what is in use or spent."""
        self._report_leases(self._leases, {})

    def _report_leases(self, leases: Mapping[str, ServiceLease], wants: Mapping[str, int]) -> None:
        if not leases:
            return
        self._asked_for_leases += 1
        self._asked_at = {number: at for number, at in self._asked_at.items() if number > self._asked_for_leases - 20}
        self._asked_at[self._asked_for_leases] = asyncio.get_running_loop().time()
        claims = {service: lease.claims(wants.get(service, 0)) for service, lease in leases.items()}
        self._driver.say_leases(self._asked_for_leases, claims)

    def take_leases(self, number: int, answers: Mapping[str, Any]) -> None:
        asked_at = self._asked_at.get(number)
        if asked_at is None or number < self._asked_for_leases:
            return  # a later heartbeat has reported the use
        for service, lease in self._leases.items():
            lease.take(answer_of(answers[service]), asked_at=asked_at)
        self._fit()
