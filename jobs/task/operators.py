"""A task's operators: for each lookup an operator with its client, gate, ledger and link."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from asyncio_core import AsyncWaitOperator, Gate, OutputMode, StreamElement, exponential_backoff
from jobs.clients.batcher import batching_in
from jobs.clients.client import Ask, Client
from jobs.clients.http.session_client import SessionClient
from jobs.clients.registry import client_for
from jobs.clients.request_counter import counts_of
from jobs.declare.lookup import Lookup, service_identity
from jobs.limits.limits_plan import ServiceLimits
from jobs.task.chain import CAPACITY_PER_CALL, Chain, Link, rows_at_once
from jobs.task.lease.call_budget import CallBudget
from jobs.task.lease.service_lease import ServiceLease
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.hedging import Hedging, noted
from jobs.task.lookup.lookup_function import LookupFunction, needs_retry
from jobs.task.lookup.marked_calls import Marks
from jobs.task.lookup.repairs import Repairs
from jobs.task.lookup.replies import report_throttling
from jobs.task.lookup.task_ledger import TaskLedger
from jobs.task.plan import PartitionPlan
from jobs.task.rows.row_elements import shared_order_key

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
    ask_soon: Callable[[], None] = lambda: None  # asks the driver for a part of the leases


def chain(task: Surroundings, output: Callable[[StreamElement], None]) -> Chain:
    """Make an operator per lookup, chained; the last operator sends its elements to `output`."""
    plan = task.plan
    limits = plan.limits or (None,) * len(plan.lookups)
    watched: dict[str, ServiceGuard] = {}
    for lookup, of_service in zip(plan.lookups, limits, strict=True):  # a gate per service
        if (service := service_identity(lookup)) not in watched:
            watched[service] = _guard(task, lookup, of_service)
    guards = [watched[service_identity(lookup)] for lookup in plan.lookups]
    made = Chain(
        operators=[],
        callers=[],
        links=[],
        functions=[],
        watches=[guard.watch for guard in guards],
        by_service={service: guard.watch for service, guard in watched.items()},
        leases=[guard.lease for guard in guards],
    )
    for place, guard in reversed(list(enumerate(guards))):
        operator, asking, caller = _operator(task, place, guard, output)
        made.operators.insert(0, operator)
        made.callers.insert(0, caller)
        made.functions.insert(0, asking)
        if place > 0:
            made.links.insert(0, Link(operator, made.links[0] if made.links else None))
            output = made.links[0].put
    return made


@dataclass(frozen=True)
class ServiceGuard:
    """What keeps a task's calls of a service back; lookups of the same service share it."""

    gate: Gate
    watch: CircuitBreaker
    lease: ServiceLease | None


def _guard(task: Surroundings, lookup: Lookup, limits: ServiceLimits | None) -> ServiceGuard:
    gate = Gate()
    lease = None if limits is None else ServiceLease(limits, gate, task.ask_soon)
    return ServiceGuard(gate, _watch(task, lookup, gate), lease)


def _watch(task: Surroundings, lookup: Lookup, gate: Gate) -> CircuitBreaker:
    called = f"{lookup.service_name} at {lookup.address}" if lookup.address else lookup.service_name
    batch_size = max(
        other.batch_size for other in task.plan.lookups if other.service_key == lookup.service_key
    )
    on_pause = partial(task.on_pause, service_identity(lookup))
    return CircuitBreaker(
        lookup.outage_rule, called, gate, task.now_us, batch_size=batch_size, on_pause=on_pause
    )


def _operator(
    task: Surroundings, place: int, guard: ServiceGuard, output: Callable[[StreamElement], None]
) -> tuple[AsyncWaitOperator, LookupFunction, Client]:
    lookup, share = task.plan.lookups[place], max(1, task.share[place])
    caller = _caller(task, place)
    batching = batching_in(caller)
    if batching is not None and guard.lease is None:  # a lease waits for a pause's end
        batching.send_by(guard.watch.unless_paused)
    asking = _function(task, place, guard, caller)
    rows = rows_at_once(lookup, share)
    if isinstance(caller, SessionClient):
        caller.tell_doubt(asking.doubt)
        caller.note_used_up(guard.watch.used_up)
    retry = lookup.retry
    operator: AsyncWaitOperator = AsyncWaitOperator(
        asking,
        output,
        mode=OutputMode(task.plan.mode),
        timeout=lookup.timeout,
        capacity=CAPACITY_PER_CALL * rows,
        concurrency=rows,
        gate=guard.gate,
        key=shared_order_key if task.plan.mode == "key_ordered" else None,
        retry_strategy=exponential_backoff(
            max_retries=FOR_EVER,
            initial_delay=retry.initial_delay,
            max_delay=retry.max_delay,
            multiplier=retry.multiplier,
            jitter=retry.jitter,
            on_exception=needs_retry,
        ),
        runtime_context=lambda: operator,
    )
    return operator, asking, caller


def _function(
    task: Surroundings, place: int, guard: ServiceGuard, caller: Client
) -> LookupFunction:
    """Make the function of a lookup; its calls pass repair, hedge, and the task's limits."""
    lookup, ledger = task.plan.lookups[place], task.ledgers[place]
    counts, hidden = counts_of(lookup.name), any(task.plan.personal[place : place + 1])
    repairs = hedging = None
    if lookup.repair:
        from jobs.clients.http.http_client import HttpClient  # aiohttp

        assert isinstance(caller, HttpClient)
        repairs = Repairs(caller, ledger, guard.watch, on_repair=counts.repairs, now_us=task.now_us)
    ask: Ask = caller.call if repairs is None else repairs.send
    hedge_after = lookup.hedge_after if task.allowance is None else None  # not under a cap
    if hedge_after is not None:
        ask = partial(noted, ask)
    ask = _within_limits(task, place, guard, caller, ask)
    if hedge_after is not None:
        hedging = Hedging(
            ask,
            hedge_after,
            gate=guard.gate,
            lease=guard.lease,
            on_second=counts.repeats,
            on_throttled=partial(report_throttling, guard.watch, hidden=hidden),
        )
        ask = hedging.call
    return LookupFunction(
        lookup,
        caller,
        ask if repairs is None else partial(repairs.call, ask),
        place=place,
        gate=guard.gate,
        watch=guard.watch,
        now_us=task.now_us,
        attempts=task.attempts,
        hidden=hidden,
        ledger=ledger,
        distinct=any(task.plan.distinct_keys[place : place + 1]),
        is_called=place not in task.plan.given_up,
        hedging=hedging,
    )


def _within_limits(
    task: Surroundings, place: int, guard: ServiceGuard, caller: Client, ask: Ask
) -> Ask:
    """Return the call with its mark, lease and budget; a batch has one mark and one lease."""
    lookup, ledger, allowance = task.plan.lookups[place], task.ledgers[place], task.allowance
    batching = batching_in(caller)
    if ledger is not None and not lookup.repeatable:
        marks = Marks(ledger, guard.watch, denial_settles=lookup.denial_settles)
        if batching is None:
            ask = partial(marks.before_call, ask)
        else:
            batching.send_by(marks.before_batch)
    if allowance is not None:
        ask = partial(allowance.charge, place, guard.watch.refuse_in_pause, ask)
    if guard.lease is not None:
        if batching is None:
            ask = partial(guard.lease.within, ask)
        else:
            batching.send_by(guard.lease.within)
    return ask if allowance is None else partial(allowance.until_used_up, guard.gate, ask)


def _caller(task: Surroundings, place: int) -> Client:
    """Make a client with connections for its largest possible share."""
    plan, share = task.plan, max(1, task.share[place])
    caller = task.client_for(
        plan.lookups[place], sum(plan.shares[place]) if plan.divides else share
    )
    if (batching := batching_in(caller)) is not None:
        batching.allow(share)
    return caller
