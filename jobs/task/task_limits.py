"""A task's calls in flight: its share of the run's, its part of the run's leases, and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.task.lease.lease_messages import parse_answer
from jobs.task.lease.service_lease import ServiceLease
from jobs.task.link.link_protocol import HEARTBEAT, PAUSE
from jobs.wording import one_line

if TYPE_CHECKING:
    from jobs.task.chain import Chain
    from jobs.task.link.driver_link import DriverLink
    from jobs.task.plan import PartitionPlan

# s; rows come in bursts, and calls given back between them take a while to come again
WANTED_FOR = 1.0
ASK_EVERY = 0.02  # s; between two heartbeats of a task that waits for a lease, at least


class TaskLimits:
    """Sets the sizes of a task's operators. Used on the task's loop.

    Where tasks divide the calls in flight, the driver gives a share with the first row. From then
    on a heartbeat reports what the task can still use: the whole limit while rows come, afterwards
    no more than the calls that are left. The task obeys at once what it reports to keep; the answer
    may give it more.

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
        self._asking_soon = False
        self._started = [0] * len(plan.lookups)  # calls, until the last heartbeat
        self._wanted: dict[str, tuple[float, int]] = {}  # by service: when, possible calls
        self._heartbeats = 0  # the number sent
        self._sent_at: dict[int, float] = {}  # by the loop's time: the latest heartbeats

    def set_operators(self, chain: Chain) -> None:
        """Set the operators to resize, once they are made."""
        self._chain = chain

    def _resize(self) -> None:
        """Set the operators' concurrency to this task's share and lease.

        It is at least 1: without a lease, a call starts to wait for it, and its wait requests the
        lease.
        """
        if self._chain is None:
            return
        at_most = [max(1, share if lease is None else min(share, lease.calls))
                   for share,
                   lease in zip(self.share, self._chain.leases, strict=True)]  # fmt: skip
        self._chain.resize(self._plan.lookups, at_most)

    @property
    def _leases(self) -> dict[str, ServiceLease]:
        """The leases by service; lookups of the same service share a lease."""
        leases = self._chain.leases if self._chain is not None else ()
        return {lease.service: lease for lease in leases if lease is not None}

    # -- heartbeats --------------------------------------------------------------------------------

    def ask_soon(self) -> None:
        """Send a heartbeat before the next regular heartbeat."""
        if not self._asking_soon:
            self._asking_soon = True
            asyncio.get_running_loop().call_later(ASK_EVERY, self.send_heartbeat)

    def send_heartbeat(self) -> None:
        """Report what the task uses of its limits, and what it could use."""
        self._asking_soon = False
        if self._chain is not None:
            self._report(self._chain, self._could_use(self._chain))

    def _could_use(self, chain: Chain) -> dict[str, int]:
        """Return the possible calls in flight; while rows come, the most of the last second."""
        before, self._started = self._started, chain.started()
        if self.all_rows_came.is_set():
            return chain.wants(self.share, [0] * len(before))
        began = [total - earlier for total, earlier in zip(self._started, before, strict=True)]
        now, found = asyncio.get_running_loop().time(), chain.wants(self.share, began)
        for service, many in found.items():
            at, most = self._wanted.get(service, (now, 0))
            if many >= most or now > at + WANTED_FOR:
                self._wanted[service] = now, many
        return {service: self._wanted[service][1] for service in found}

    def give_back(self) -> None:
        """Report that no call starts any more, and what is in use or spent."""
        if self._chain is not None:
            self._report(self._chain, {})

    def _report(self, chain: Chain, could_use: Mapping[str, int]) -> None:
        """Send a heartbeat, with the possible calls in flight by leased service."""
        leases = self._leases
        if not self._driver.is_connected or not (self._plan.divides or leases):
            return
        self._heartbeats += 1
        self._sent_at = {
            number: at for number, at in self._sent_at.items() if number > self._heartbeats - 20
        }
        self._sent_at[self._heartbeats] = asyncio.get_running_loop().time()
        facts: dict[str, Any] = {"number": self._heartbeats, "at": self._now_us()}
        if self._plan.divides:
            wants = (
                chain.outstanding()
                if self.all_rows_came.is_set()
                else [*map(sum, self._plan.shares)]
            )
            self.share = [*map(min, self.share, wants)]
            facts |= {"keeps": self.share, "wants": wants}
        claims = {
            service: lease.claims(could_use.get(service, 0)) for service, lease in leases.items()
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
        if number < self._heartbeats:
            return  # a later heartbeat has reported the use
        if share:
            self.share = [*share]
            self._on_share(share)
            if all(share):
                self.given.set()
        for service, lease in self._leases.items():
            if service in services:
                lease.take(parse_answer(services[service]), asked_at=self._sent_at[number])
        self._resize()

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
