"""This driver's leases over runs: a keeper per service, on a separate thread."""

import asyncio
import atexit
import datetime as dt
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

from jobs.declare.limits.budgets import PARTS, Budget, most_parts, parts_of
from jobs.declare.lookup import Lookup, service_identity
from jobs.declare.values.prices import Money, in_force
from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import BudgetExhausted, DeclarationError, RunStopped
from jobs.limits.lease_book import NOTHING_KNOWN, Limit
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import CALLS, Reserved, ServiceLimits
from jobs.limits.store import BookCorrupt, LimitStore, StoreLost
from jobs.limits.store_url import LIMITS_URL, in_store, limits_url, open_store
from jobs.run.settling import owner_of_run, settle
from jobs.schema.records import RunBill
from jobs.tables.records import run_bills

TOKEN_BYTES = 8
FOLLOW_AGAIN = 0.5  # s after the connection for changes of gates was lost


class RunLeases:
    """All leases of a driver process.

    Args:
        store: The shared store; used only on this object's loop.
        name: The run's display name.
        url: The store's address.
        token: Makes unique tokens.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        store: LimitStore,
        name: str,
        url: str = "",
        *,
        token: Callable[[int], str] = secrets.token_hex,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._name, self.url = name, url
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{token(TOKEN_BYTES)}"
        self._clock = clock
        # by service and run; the run is empty unless its budgets are settled
        self._keepers: dict[tuple[str, str], LeaseKeeper] = {}
        self._lock = threading.Lock()
        self._beats: dict[tuple[str, str], asyncio.Task[None]] = {}  # of the keepers
        self._following: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tidegate-leases", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raise as `check_store` does if the store is unreachable, because no call could start."""
        asyncio.run_coroutine_threadsafe(_look(self._store), self._loop).result()
        with self._lock:
            if self._following is None:
                self._following = self._start(self._follow())

    def close(self) -> None:
        """Give back what the run holds, except what its calls may still use."""
        if not self.is_here:
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def is_here(self) -> bool:
        """Whether its thread runs: not after `close`, nor in a fork of this process."""
        return self._thread.is_alive()

    @property
    def is_in_use(self) -> bool:
        """Whether a run is at work, or is to be settled by its bill."""
        places = [*self._keepers.items()]
        return any(run or keeper.has_jobs for (_, run), keeper in places)

    async def _end(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for place in [*self._keepers]:
            await self._end_keeper(place)
        await self._store.close()

    def keepers(
        self, declared: Iterable[ServiceLimits], run_id: str = ""
    ) -> dict[str, LeaseKeeper]:
        """Return the keeper of each service, renewed from now on while tasks want some of it.

        Each has the limits until its `release`.

        Args:
            declared: The limits of services.
            run_id: A run that has a bill. If a service has budgets, the run is a separate owner
                until `end_run`, so that it can be settled by its bill.
        """
        found = {}
        for limits in declared:
            run = run_id if limits.budgets else ""
            place = (limits.service, run)
            owner = owner_of_run(self._owner, run) if run else self._owner
            with self._lock:
                keeper = self._keepers.get(place)
                if keeper is None:
                    keeper = LeaseKeeper(limits, owner, self._name, self._store, self._clock)
                    self._beats[place] = self._start(keeper.run())
                    self._keepers[place] = keeper
                keeper.declare(limits)
            found[limits.service] = keeper
        return found

    def end_run(self, bill: RunBill) -> bool:
        """End the leases of a run whose calls have ended: its budgets count what its bill says.

        Returns:
            Whether the run holds nothing any more. Otherwise it is settled once its leases have
            expired.
        """
        return asyncio.run_coroutine_threadsafe(self._end_run(bill), self._loop).result()

    async def _end_run(self, bill: RunBill) -> bool:
        is_settled = True
        for service, run in [place for place in [*self._keepers] if place[1] == bill.run_id]:
            spent = run_bills.spent(bill, service)
            budgets = self._keepers[service, run].declared.budgets
            is_settled &= await self._end_keeper(
                (service, run), {} if spent is None else dict.fromkeys(budgets, spent)
            )
        with suppress(StoreLost):
            await settle(self._store)  # killed runs, whose leases may have expired meanwhile
        return is_settled

    async def _end_keeper(
        self, place: tuple[str, str], spent: Mapping[str, int] = NOTHING_KNOWN
    ) -> bool:
        beats = self._beats.pop(place)
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)
        return await self._keepers.pop(place).end(spent)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task on the loop of the leases."""

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(work)

        return asyncio.run_coroutine_threadsafe(begin(), self._loop).result()

    async def _follow(self) -> None:
        """Send the next heartbeat at once after any run closes or opens a gate."""
        while True:
            try:
                async for service in self._store.changes():
                    for (name, _), keeper in [*self._keepers.items()]:
                        if name == service:
                            keeper.hurry()
            except Exception:  # noqa: BLE001  # also an error of a database driver: the next look may succeed
                await asyncio.sleep(FOLLOW_AGAIN)


async def _look(store: LimitStore) -> None:
    try:
        await store.check()
        await settle(store)
    except BookCorrupt as corrupt:
        raise DeclarationError(f"{corrupt}.") from corrupt
    except StoreLost as lost:
        raise RunStopped(
            f"{lost}, and no call may start without it. Mend that, or set {LIMITS_URL} to another "
            "store, or to off."
        ) from lost


def check_limits(lookups: Sequence[Lookup], budgets: Sequence[tuple[str, Budget]]) -> None:
    """Refuse what a run would refuse about the limits of its services.

    Raises:
        DeclarationError: As `leased_limits` does; or the environment names an invalid or a corrupt
            store.
        RunStopped: The store cannot be reached.
    """
    paid_jobs = [
        lookup
        for lookup in lookups
        if isinstance(lookup, JobLookup) and (lookup.budgets or (budgets and lookup.prices))
    ]
    for lookup in paid_jobs:
        _require_store(lookup, over_runs=bool(limits_url()))
    if (any(leased_limits(lookups, budgets)) or paid_jobs) and (url := limits_url()):
        asyncio.run(in_store(url, _look))


def refuse_small_budgets(lookups: Sequence[Lookup], budgets: Sequence[tuple[str, Budget]]) -> None:
    """Refuse a budget that pays for no call.

    Raises:
        BudgetExhausted: There is such a budget.
        DeclarationError: As `leased_limits` does.
    """
    for limits in filter(None, leased_limits(lookups, budgets)):
        for name in limits.budgets:
            if limits.least(name) > limits.limits[name].amount:
                raise BudgetExhausted(f"{limits.reserved[name].budget} pays for none. Raise it.")


def leased_limits(
    lookups: Sequence[Lookup],
    budgets: Sequence[tuple[str, Budget]] = (),
    *,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> tuple[ServiceLimits | None, ...]:
    """Return per lookup the limits of its service that the run leases to its tasks, or ().

    If no store joins the runs, these are rates, and the calls in flight if their number is
    adaptive. CallShares alone divides the other limits, and those of a service whose calls have no
    time limit, unless the user named a store.

    Args:
        lookups: Of an enrichment.
        budgets: Of the enrichment, with its name.
        now: Only its day counts.

    Raises:
        DeclarationError: A lookup has no time limit, so that its calls could outlive any lease; or
            it has a budget, and no store to keep it.
    """
    over_runs, is_named, today = bool(limits_url()), bool(os.environ.get(LIMITS_URL)), now().date()
    by_service: dict[str, list[Lookup]] = {}
    for lookup in lookups:
        if not isinstance(lookup, JobLookup):  # rows submit no job
            by_service.setdefault(service_identity(lookup), []).append(lookup)
    limits = {
        service: _read_service_limits(asking, budgets, over_runs, today)
        for service, asking in by_service.items()
        if any(
            lookup.rates or lookup.adaptive or lookup.budgets or (budgets and lookup.prices)
            for lookup in asking
        )
        or (over_runs and (is_named or all(lookup.longest_call is not None for lookup in asking)))
    }
    if not limits:
        return ()
    return tuple(limits.get(service_identity(lookup)) for lookup in lookups)


def _read_service_limits(
    lookups: Sequence[Lookup],
    enrichment_budgets: Sequence[tuple[str, Budget]],
    over_runs: bool,  # noqa: FBT001
    today: dt.date,
) -> ServiceLimits:
    """Return the limits of the service of these lookups, with the budgets of their enrichment."""
    first = lookups[0]
    budgets = [("", budget) for budget in first.budgets] + [
        *(enrichment_budgets if any(lookup.prices for lookup in lookups) else ())
    ]
    if budgets:
        _require_store(first, over_runs=over_runs)
    longest = max(map(_longest_call, lookups))
    limits = {CALLS: Limit(first.concurrency)} if over_runs or first.adaptive else {}
    limits |= {rate.name: Limit(rate.amount, rate.seconds) for rate in first.rates}
    reserved = {
        rate.name: Reserved({(rate.unit, None): Fraction(1)}, rate.reserve_per_call)
        for rate in first.rates
    }
    prices = [(in_force(lookup.prices, today.isoformat()), lookup.batch_size) for lookup in lookups]
    each = {(price.unit, price.model): parts_of(price) for found, _ in prices for price in found}
    most = max(most_parts(found, items) for found, items in prices)
    alone = max(most_parts(found, 1) for found, _ in prices)
    for enrichment, budget in budgets if each else ():  # otherwise no price is in force yet
        name, whose = budget.name(today, enrichment), enrichment or first.service_name
        limits[name] = Limit(budget.parts, math.inf)
        subject = f"the budget of {whose}, {budget.amount} per {budget.per},"
        reserve = budget.reserve_per_call or most
        if reserve > budget.parts:
            cost = Money(Decimal(reserve) / PARTS, budget.money.currency)
            is_batch = alone < most and not budget.reserve_per_call
            unit = "a full batch (max_items)" if is_batch else "a call"
            subject += f" below the {cost} that {unit} may cost,"
        reserved[name] = Reserved(each, reserve, subject)
    at_least = None if first.adaptive is None else first.adaptive.at_least
    return ServiceLimits(service_identity(first), limits, longest, reserved, at_least)


def _longest_call(lookup: Lookup) -> float:
    """Return the time limit of its calls, in s. Raises DeclarationError if it has none."""
    if lookup.longest_call is not None:
        return lookup.longest_call
    if lookup.rates:
        why = "with a rate"
    else:
        why = "with adaptive" if lookup.adaptive else "with limits over runs"
    raise DeclarationError(
        f"lookup {lookup.name}: it has no timeout and no attempt_timeout, and {why} no call may "
        "outlive its run's lease; declare one of them."
    )


def _require_store(lookup: Lookup, *, over_runs: bool) -> None:
    if not over_runs:
        raise DeclarationError(
            f"lookup {lookup.name}: a budget applies to its calls, which runs share in a store, "
            f"but {LIMITS_URL} is off; unset it. To limit one run only: --max-cost."
        )


def build_keepers(
    limits: Sequence[ServiceLimits | None],
    name: str,
    *,
    run_id: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, LeaseKeeper]:
    """Return the keepers of these limits by service.

    Args:
        limits: The limits of each lookup's service; None for a service without limits.
        name: The name of the run, for people.
        run_id: The id of the run if it has a bill, else empty.
        clock: Seconds, monotonic.

    Raises:
        DeclarationError: The environment names an invalid store.
        RunStopped: The store cannot be reached.
    """
    # each service once, however many lookups call it, because a run's end releases it once
    declared = {limit.service: limit for limit in limits if limit is not None}.values()
    if not declared:
        return {}
    if limits_url():
        return run_leases(name).keepers(declared, run_id)
    return _keepers_alone(declared, clock)


def end_run(bill: RunBill) -> bool:
    """End a run as RunLeases.end_run does; a run without leases is already settled."""
    return _leases is None or not _leases.is_here or _leases.end_run(bill)


# by service, kept over this driver's runs, because a run may begin in the window of the run before
_alone: dict[str, LeaseKeeper] = {}


def _keepers_alone(
    declared: Iterable[ServiceLimits], clock: Callable[[], float]
) -> dict[str, LeaseKeeper]:
    found = {}
    with _opening:
        for limits in declared:
            if (keeper := _alone.get(limits.service)) is None:
                keeper = _alone[limits.service] = LeaseKeeper(limits, "", "", None, clock)
            keeper.declare(limits)
            found[limits.service] = keeper
    return found


_leases: RunLeases | None = None
_opening = threading.Lock()


def run_leases(name: str) -> RunLeases:
    """Return this driver's leases, opened at first use, with the name of the first run.

    They are in the store that the environment names now, unless a run has leases in another.

    Raises:
        DeclarationError: The environment names an invalid store.
        RunStopped: The store cannot be reached.
    """
    global _leases  # noqa: PLW0603  # a process has a single store of limits
    with _opening:
        url = limits_url()
        if _leases is not None and _leases.url != url and not _leases.is_in_use:
            _leases.close()
        if _leases is None or not _leases.is_here:
            _leases = RunLeases(open_store(url), name, url)
            atexit.register(_leases.close)
    _leases.check()
    return _leases
