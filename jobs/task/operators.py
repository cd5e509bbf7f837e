"""A task's operators: for each lookup an operator with its client, gate, ledger and link."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from asyncio_core import AsyncWaitOperator, Gate, OutputMode, StreamElement, exponential_backoff
from jobs.clients.client import Client, Doubting, Requesting
from jobs.clients.registry import client_for
from jobs.declare.lookup import Lookup, service_identity
from jobs.limits.limits_plan import ServiceLimits
from jobs.task.chain import Link
from jobs.task.lease.call_budget import CallBudget
from jobs.task.lease.service_lease import ServiceLease
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.lookup_function import LookupFunction, needs_retry
from jobs.task.lookup.task_ledger import TaskLedger
from jobs.task.plan import PartitionPlan
from jobs.task.rows.row_elements import shared_order_key
from jobs.task.threads.call_threads import ENDS_WITHIN

# entries per call in flight: keeps a slow head from starving ordered mode (1.01 x the limit)
CAPACITY_PER_CALL = 16
FOR_EVER = 1_000_000_000  # retries; the predicate decides, as it knows which attempts count


@dataclass(frozen=True)
class Surroundings:
    """The task's resources that its operators share."""

    plan: PartitionPlan
    share: Sequence[int]  # per lookup: calls in flight of this task; 0: none yet
    ledgers: Sequence[TaskLedger | None]  # per lookup; open
    allowance: CallBudget | None
    now_us: Callable[[], int]
    attempts: AttemptCounts
    client_for: Callable[[Lookup, int], Client] = client_for
    on_pause: Callable[[str, float, str, bool], None] = lambda *_facts: None  # see CircuitBreaker
    ask_soon: Callable[[], None] = lambda: None  # for a share of what the run holds


@dataclass(frozen=True)
class Chain:
    """The operators of a task. The lists but `links` are in the order of the lookups.

    Attributes:
        links: Each carries an operator's output into the next operator.
    """

    operators: list[AsyncWaitOperator]
    callers: list[Client]
    links: list[Link]
    functions: list[LookupFunction]
    watches: list[CircuitBreaker]  # lookups of the same service share it
    by_service: dict[str, CircuitBreaker]
    leases: list[ServiceLease | None]  # lookups of the same service share it

    async def finish(self, lookups: Sequence[Lookup]) -> list[str]:
        """Wait for the end of calls and of doubts about answers.

        Calls outlive their rows with finish_after_timeout; their answers are stored. A client may
        doubt its answers late.

        Returns:
            The functions that did not end within the time of a call.
        """
        unfinished = []
        for lookup, function in zip(lookups, self.functions, strict=True):
            longest = lookup.longest_call
            try:
                async with asyncio.timeout(None if longest is None else longest + ENDS_WITHIN):
                    await function.finish()
            except TimeoutError:
                unfinished.append(f"lookup {lookup.name}: its function")
        await asyncio.gather(
            *(caller.settle() for caller in self.callers if isinstance(caller, Doubting))
        )
        return unfinished

    def outstanding(self) -> list[int]:
        """Return the most calls in flight from now on for each lookup, without further rows."""
        before, found = 0, []
        behind = [*map(len, self.links), 0]
        for place, (operator, waiting) in enumerate(zip(self.operators, behind, strict=True)):
            figures = operator.statistics()
            found.append(self._calls(place, before + figures.outstanding))
            before += figures.queued + waiting
        return found

    @cached_property
    def _requesting(self) -> list[Requesting | None]:
        """For each lookup its client, if the client bounds its requests itself.

        Cached, because a protocol's check is slow.
        """
        return [caller if isinstance(caller, Requesting) else None for caller in self.callers]

    def _calls(self, place: int, rows: int) -> int:
        """Return a lookup's most calls in flight for these rows, with requests being cancelled."""
        requesting = self._requesting[place]
        leaving = requesting.leaving() if requesting is not None else 0
        return self.functions[place].calls_of_a_row * rows + leaving

    def running(self) -> int:
        """The calls in flight, without those that wait for a lease."""
        leases = {lease for lease in self.leases if lease is not None}
        unleased = (
            one for one, lease in zip(self.operators, self.leases, strict=True) if lease is None
        )
        return sum(lease.running for lease in leases) + sum(
            one.statistics().running for one in unleased
        )

    def started(self) -> list[int]:
        """Return the number of calls that have started, for each lookup."""
        return [operator.statistics().attempts for operator in self.operators]

    def wants(self, shares: Sequence[int], began: Sequence[int]) -> dict[str, int]:
        """Return the possible calls in flight within the shares, by service with leased limits.

        A full operator hides how many rows wait, so its whole share is possible.

        Args:
            shares: Calls in flight per lookup.
            began: Recent calls per lookup, because calls that end at once are never seen in flight.
        """
        found: dict[str, int] = {}
        for place, (operator, lease, share) in enumerate(
            zip(self.operators, self.leases, shares, strict=True)
        ):
            if lease is not None:
                figures = operator.statistics()
                hides_rows = (
                    figures.queued >= figures.capacity
                    and figures.outstanding >= figures.concurrency
                )
                could = (
                    share
                    if hides_rows
                    else min(share, max(began[place], self._calls(place, figures.outstanding)))
                )
                found[lease.service] = found.get(lease.service, 0) + could
        return found

    def resize(self, lookups: Sequence[Lookup], shares: Sequence[int]) -> None:
        for operator, requesting, lookup, share in zip(
            self.operators, self._requesting, lookups, shares, strict=True
        ):
            if requesting is not None:
                requesting.allow(share)
            rows = rows_at_once(lookup, share)
            operator.resize(capacity=CAPACITY_PER_CALL * rows, concurrency=rows)


def chain(task: Surroundings, output: Callable[[StreamElement], None]) -> Chain:
    """Make an operator per lookup, chained; the last operator sends its elements to `output`."""
    plan = task.plan
    watched: dict[str, tuple[Gate, CircuitBreaker, ServiceLease | None]] = {}
    limits = plan.limits or (None,) * len(plan.lookups)
    for lookup, of_service in zip(plan.lookups, limits, strict=True):  # a gate per service
        if (service := service_identity(lookup)) not in watched:
            gate = Gate()
            watched[service] = gate, _watch(task, lookup, gate), _lease(task, of_service, gate)
    services = [watched[service_identity(lookup)] for lookup in plan.lookups]
    by_service = {service: watch for service, (_, watch, _) in watched.items()}
    made = Chain(
        [],
        [],
        [],
        [],
        [watch for _, watch, _ in services],
        by_service,
        [lease for *_, lease in services],
    )
    for place, lookup in reversed(list(enumerate(plan.lookups))):
        operator, asking, caller = _operator(task, place, watched[service_identity(lookup)], output)
        made.operators.insert(0, operator)
        made.callers.insert(0, caller)
        made.functions.insert(0, asking)
        if place > 0:
            made.links.insert(0, Link(operator, made.links[0] if made.links else None))
            output = made.links[0].put
    for asking, (_, _, lease) in zip(made.functions, services, strict=True):
        if lease is not None and made.leases.count(lease) == 1:
            asking.count_calls(lease)
    return made


def _watch(task: Surroundings, lookup: Lookup, gate: Gate) -> CircuitBreaker:
    called = f"{lookup.service_name} at {lookup.address}" if lookup.address else lookup.service_name
    batch_size = max(
        other.batch_size for other in task.plan.lookups if other.service_key == lookup.service_key
    )
    on_pause = partial(task.on_pause, service_identity(lookup))
    return CircuitBreaker(
        lookup.outage_rule, called, gate, task.now_us, batch_size=batch_size, on_pause=on_pause
    )


def _lease(task: Surroundings, limits: ServiceLimits | None, gate: Gate) -> ServiceLease | None:
    return None if limits is None else ServiceLease(limits, gate, task.ask_soon)


def _operator(
    task: Surroundings,
    place: int,
    service: tuple[Gate, CircuitBreaker, ServiceLease | None],
    output: Callable[[StreamElement], None],
) -> tuple[AsyncWaitOperator, LookupFunction, Client]:
    lookup, share = task.plan.lookups[place], max(1, task.share[place])
    gate, watch, lease = service
    caller, ledger = _caller(task, place), task.ledgers[place]
    asking = LookupFunction(
        lookup,
        caller,
        place=place,
        gate=gate,
        watch=watch,
        now_us=task.now_us,
        attempts=task.attempts,
        ledger=ledger,
        distinct=any(task.plan.distinct_keys[place : place + 1]),
        allowance=task.allowance,
        lease=lease,
    )
    rows = rows_at_once(lookup, share)
    if isinstance(caller, Doubting):
        caller.tell_doubt(asking.doubt)
    retry = lookup.retry
    operator = AsyncWaitOperator(
        asking,
        output,
        mode=OutputMode(task.plan.mode),
        timeout=lookup.timeout,
        capacity=CAPACITY_PER_CALL * rows,
        concurrency=rows,
        gate=gate,
        key=shared_order_key if task.plan.mode == "key_ordered" else None,
        retry_strategy=exponential_backoff(
            max_retries=FOR_EVER,
            initial_delay=retry.initial_delay,
            max_delay=retry.max_delay,
            multiplier=retry.multiplier,
            jitter=retry.jitter,
            on_exception=needs_retry,
        ),
    )
    asking.yield_slot, asking.statistics, asking.rows = (
        operator.yield_slot, operator.statistics, operator.snapshot_state,
    )  # fmt: skip
    return operator, asking, caller


def _caller(task: Surroundings, place: int) -> Client:
    """Make a client with connections for its largest possible share."""
    plan, share = task.plan, max(1, task.share[place])
    caller = task.client_for(
        plan.lookups[place], sum(plan.shares[place]) if plan.divides else share
    )
    if isinstance(caller, Requesting):
        caller.allow(share)
    return caller


def rows_at_once(lookup: Lookup, share: int) -> int:
    """Return the rows in requests or waiting: of a full share of requests, and of another."""
    return share if lookup.batch_size == 1 else (share + 1) * lookup.batch_size
