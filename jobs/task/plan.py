"""The plan of a task: plain data for the executors."""

from dataclasses import dataclass

from jobs.clients.billing_meter import Meters
from jobs.declare.limits.budgets import Budget
from jobs.declare.lookup import Lookup
from jobs.input.file_rows import FileRows
from jobs.ledger.plan import CallCap, LedgerPlan
from jobs.limits.limits_plan import ServiceLimits
from jobs.task.link.link_protocol import DriverAddress
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.rows.asked_once import AskedFile


@dataclass(frozen=True)
class PartitionPlan:
    lookups: tuple[Lookup, ...]
    shares: tuple[tuple[int, ...], ...]  # per lookup: calls in flight of each partition, by number
    mode: str
    layout: BatchLayout
    progress: int | None  # number of the driver's listener to the progress
    ledgers: tuple[LedgerPlan | None, ...] = ()  # per lookup; empty: nothing is stored
    personal: tuple[bool, ...] = ()  # per lookup: errors may repeat a personal key
    asked_first: tuple[AskedFile | None, ...] = ()  # per lookup: its prefetched keys
    distinct_keys: tuple[bool, ...] = ()  # per lookup: no two rows of the day have the same key
    may_call: bool = True  # False: a key without an answer leaves as not_asked
    given_up: tuple[int, ...] = ()  # places of lookups that are down: the same for their keys
    cap: CallCap | None = None
    driver: DriverAddress | None = None  # where a task registers before it works
    limits: tuple[ServiceLimits | None, ...] = ()  # per lookup, over runs; empty: only in this run
    budgets: tuple[tuple[str, Budget], ...] = ()  # of its enrichment, with its name
    reads: FileRows | None = None  # None: the rows come from Spark
    meters: Meters | None = None  # of its bill; None where nothing has a price
    unit: str = "rows"  # for display: "keys" during a prefetch

    @property
    def divides(self) -> bool:
        """Whether a task may get more calls in flight when others end."""
        return self.driver is not None and self.driver.divides

    @property
    def bounds_cost(self) -> bool:
        """Whether calls may end because a cap or a budget is used up."""
        return self.cap is not None or any(
            limits.budgets for limits in self.limits if limits is not None
        )
