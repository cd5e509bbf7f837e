"""How many calls a task may have in flight, as the driver says, and pauses of services.

A share divides the run's own limit over its tasks; a lease divides a limit of several runs.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.task.chain import Chain
from jobs.task.lease.lease_messages import parse_answer
from jobs.task.lease.service_lease import ServiceLease
from jobs.task.link.driver_link import DriverLink
from jobs.task.link.link_protocol import HEARTBEAT, PAUSE
from jobs.task.plan import PartitionPlan
from jobs.wording import one_line

# s; rows come in bursts, and a task that gave calls back between them would wait for them
WANTED_FOR = 1.0
ASK_AFTER = 0.02  # s from a request for an early heartbeat to that heartbeat


class TaskLimits:
    """Resizes a task's operators. Used on the task's loop.

    Where tasks divide the calls in flight, the driver gives a share with the first row. From then
    on a heartbeat reports what the task can still use: the whole limit while rows come, afterwards
    no more than the calls that are left. A heartbeat that gives back calls lowers the share at
    once; only an answer raises it.

    Args:
        plan: The task's plan.
        partition: The task's number.
        driver: Receives heartbeats and pauses.
        now_us: The task's clock.
        on_share: Called with each new share.

    Attributes:
        share: Calls in flight per lookup.
        given: Set once the task has a share.
        all_rows_came: To be set once no more rows come.
    """

    def __init__(
        self,
        plan: PartitionPlan,
        partition: int,
        driver: DriverLink,
        now_us: Callable[[], int],
        on_share: Callable[[Sequence[int]], None],
    ) -> None:
        self._plan = plan
        self._driver = driver
        self._now_us = now_us
        self._on_share = on_share
        self.share = [
            0 if plan.divides else shares[partition % len(shares)] for shares in plan.shares
        ]
        self.given = asyncio.Event()
        self.all_rows_came = asyncio.Event()
        if not plan.divides:
            self.given.set()
        self._chain: Chain | None = None
        self._is_over = self._asks_soon = False
        self._started_before = [0] * len(plan.lookups)  # calls, until the last heartbeat
        # by service: the most possible calls of the last second, and when they were seen
        self._usable_lease: dict[str, tuple[int, float]] = {}
        self._sent = 0  # number of heartbeats
        self._answered = 0  # number of the latest heartbeat with an answer
        self._sent_at = 0.0  # when the latest heartbeat was sent, on the loop's clock

    def set_operators(self, chain: Chain) -> None:
        """Set the operators to resize, once they are made."""
        self._chain = chain

    def _resize(self) -> None:
        """Set the operators' concurrency to this task's share and lease.

        It is at least 1, so that a call without a lease can start to wait for the lease, which
        requests it.
        """
        if self._chain is None:
            return
        leased = [math.inf if lease is None else lease.calls for lease in self._chain.leases]
        sizes = [max(1, int(min(pair))) for pair in zip(self.share, leased, strict=True)]
        self._chain.resize(self._plan.lookups, sizes)

    @property
    def _leases(self) -> dict[str, ServiceLease]:
        """The leases by service; lookups of the same service share a lease."""
        leases = self._chain.leases if self._chain is not None else ()
        return {lease.service: lease for lease in leases if lease is not None}

    # -- heartbeats --------------------------------------------------------------------------------

    def ask_soon(self) -> None:
        """Send a heartbeat before the next regular heartbeat.

        Only once the latest one is answered, because an answer is ignored after a later heartbeat.
        """
        if not self._asks_soon:
            self._asks_soon = True
            if self._answered == self._sent:
                self._schedule_heartbeat()

    def _schedule_heartbeat(self) -> None:
        asyncio.get_running_loop().call_later(ASK_AFTER, self.send_heartbeat)

    def send_heartbeat(self) -> None:
        """Report what the task uses of its limits, and what it could use."""
        self._asks_soon = False
        if self._chain is not None:
            usable = {} if self._is_over else self._find_usable_lease(self._chain)
            self._report(self._chain, usable)

    def _find_usable_lease(self, chain: Chain) -> dict[str, int]:
        """Return the possible calls in flight; while rows come, the most of the last second."""
        before, self._started_before = self._started_before, chain.started()
        if self.all_rows_came.is_set():
            return chain.wants(self.share, [0] * len(before))
        started = [
            total - earlier for total, earlier in zip(self._started_before, before, strict=True)
        ]
        now, possible = asyncio.get_running_loop().time(), chain.wants(self.share, started)
        for service, calls in possible.items():
            highest, seen_at = self._usable_lease.get(service, (0, now))
            if calls >= highest or now > seen_at + WANTED_FOR:
                self._usable_lease[service] = calls, now
        return {service: self._usable_lease[service][0] for service in possible}

    def give_back(self) -> None:
        """Report that the task starts no more calls, so that others get what it does not use."""
        self._is_over = True  # a heartbeat that was planned before would ask for calls again
        self.send_heartbeat()

    def _report(self, chain: Chain, usable_lease: Mapping[str, int]) -> None:
        """Send a heartbeat, with the possible calls in flight by leased service."""
        leases = self._leases
        if not self._driver.is_connected or not (self._plan.divides or leases):
            return
        self._sent += 1
        self._sent_at = asyncio.get_running_loop().time()
        facts: dict[str, Any] = {"number": self._sent, "at": self._now_us()}
        if self._plan.divides:
            whole_limits = [*map(sum, self._plan.shares)]
            usable_share = chain.outstanding() if self.all_rows_came.is_set() else whole_limits
            self.share = [*map(min, self.share, usable_share)]
            facts |= {"keeps": self.share, "wants": usable_share}
        claims = {
            service: lease.claims(usable_lease.get(service, 0)) for service, lease in leases.items()
        }
        self._resize()  # what is given back is not used from now on
        self._driver.send(HEARTBEAT, **facts, services=claims)

    def take(self, number: int, share: Sequence[int], services: Mapping[str, Any]) -> None:
        """Use the driver's answer to a heartbeat.

        Args:
            number: The heartbeat's number; 0 at the task's beginning.
            share: Calls in flight per lookup; empty where tasks do not divide them.
            services: The leases by service.
        """
        if number < self._sent:
            return  # the driver sent it before a later heartbeat gave something back
        self._answered = number
        if share:
            self.share = [*share]
            self._on_share(share)
            if all(share):
                self.given.set()
        for service, lease in self._leases.items():
            if service in services:
                lease.take(parse_answer(services[service]), asked_at=self._sent_at)
        self._resize()
        if self._asks_soon:
            self._schedule_heartbeat()

    # -- pauses ------------------------------------------------------------------------------------

    def pause_all(self, seconds: float) -> None:
        """Start no call of any service for this many seconds."""
        for service in self._chain.by_service if self._chain is not None else ():
            self.pause(service, seconds, down=False)

    def pause(self, service: str, seconds: float, down: bool) -> None:  # noqa: FBT001  # of call_soon
        """Pause the service for this many seconds, as another task found it throttling or down."""
        if self._chain is not None and service in self._chain.by_service:
            self._chain.by_service[service].pause(seconds, down=down)
            self._note_pause(service, seconds)

    def report_pause(self, service: str, seconds: float, reason: str, down: bool) -> None:  # noqa: FBT001  # as CircuitBreaker passes it
        """Report that this task was throttled, or found the service down."""
        self._note_pause(service, seconds)
        self._driver.send(
            PAUSE, service=service, seconds=seconds, reason=one_line(reason), down=down
        )

    def _note_pause(self, service: str, seconds: float) -> None:
        if (lease := self._leases.get(service)) is not None:
            lease.others_close(seconds)
