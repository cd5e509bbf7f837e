"""What a task needs to know, as plain data that travels to the executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.declare.lookup import Lookup
    from jobs.ledger.plan import CallCap, LedgerPlan
    from jobs.limits.limits_plan import ServiceLimits
    from jobs.task.arrow_batches import BatchLayout
    from jobs.task.asked_once import AskedFile
    from jobs.task.driver_link import DriverAddress


@dataclass(frozen=True)
class PartitionPlan:
    """What a task needs to know; plain data that travels to the executors."""

    lookups: tuple[Lookup, ...]
    shares: tuple[tuple[int, ...], ...]  # per lookup: calls in flight of each partition, by number
    mode: str
    layout: BatchLayout
    progress: int | None  # number of the driver's listener to it
    ledgers: tuple[LedgerPlan | None, ...] = ()  # per lookup; none at all: nothing is stored
    asked_first: tuple[AskedFile | None, ...] = ()  # per lookup: its keys that were asked before the rows
    may_call: bool = True  # False: a key without an answer leaves as not_asked
    cap: CallCap | None = None
    driver: DriverAddress | None = None  # where a task asks before it works
    limits: tuple[ServiceLimits | None, ...] = ()  # per lookup, those that hold over runs; none: within this run only
    unit: str = "rows"  # for people: what goes through, "keys" while they are asked before the rows

    @property
    def divides(self) -> bool:
        """Whether a task may get more calls in flight as others end."""
        return self.driver is not None and self.driver.divides
