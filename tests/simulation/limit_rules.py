"""What must hold at the vendor of limits that runs share, and of the bills that they count
themselves.
"""

import pathlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from jobs.clients.billing_meter import Usage, metered
from jobs.declare.limits.budgets import MONEY, PARTS
from jobs.declare.lookup import Key
from tests.simulation import limits_store
from tests.simulation.declared import CONCURRENCY, UNITS, lookup_of
from tests.simulation.night_at_work import scheduler
from tests.simulation.nights import Night
from tests.simulation.processes import Process
from tests.simulation.vendor import Charge, Request, Vendor

LONGEST_CALL = 20.0  # s: after it the vendor's work on the call of a killed run counts no more
HEARD_BY_ALL = 2.5  # s until all runs know of a pause
HEARD_IN_RUN = 1.0  # s until all tasks of a run know of a pause
CENT = PARTS // 100
EPS = 1e-6


class LimitRules:
    """Counts at the vendor, and reports what is above a limit as a failure.

    A power cut starts the machine again, and with it the clock of the limits: only what was spent
    counts after it.
    """

    def __init__(self, night: Night, vendor: Vendor) -> None:
        self._night, self._vendor = night, vendor
        # by lookup, and by run where runs do not meet
        self._arrivals: dict[tuple[str, str], deque[float]] = {}
        self._tokens: deque[tuple[float, int]] = deque()
        self._called_since: dict[Process, float] = {}  # by task: its first call
        self._restarted = -1.0
        # cents by lookup, and by the day on which the run began that spent them (docs/limits.md)
        self.spent: Counter[tuple[str, str]] = Counter()

    @property
    def over_runs(self) -> bool:
        return self._night.limits not in ("off", "alone")

    def power_was_cut(self) -> None:
        self._restarted = scheduler().now
        self._arrivals.clear()
        self._tokens.clear()

    # -- calls in flight and pauses
    # ------------------------------------------------------------------------------------
    def check_request(self, request: Request, *, is_excused: bool) -> None:
        """is_excused: of a run that does not share its limits, while Spark runs one of its tasks
        twice.
        """
        night, lookup, run = scheduler(), request.lookup, _run_of(request.process)
        at_work = [
            charge
            for charge in self._vendor.waiting.values()
            if charge.lookup == lookup and self._is_at_work(charge)
        ]
        if not self.over_runs:
            at_work = [
                charge
                for charge in at_work
                if _run_of(charge.process) == run and not charge.process.is_dead
            ]
        allowed = CONCURRENCY[lookup]
        if len(at_work) > allowed and (self.over_runs or not is_excused):
            night.fail(
                f"{len(at_work)} calls of {lookup} at once, by {run} as well, where "
                f"{allowed} are allowed"
            )
        self._called_since.setdefault(request.process, night.now)
        self._check_pause(request)

    def _is_at_work(self, request: Request) -> bool:
        """The vendor may work on a call after its run was killed.

        A call that a second one has overtaken, or whose row has left at its time limit, is
        cancelled; its connection stays open for some seconds, to be judged (docs/lookups.md).
        """
        if request.is_overtaken:
            return False
        if not request.process.is_dead:
            return scheduler().now < request.began_at + LONGEST_CALL
        return (
            request.sent_at > self._restarted and scheduler().now < request.sent_at + LONGEST_CALL
        )

    def _check_pause(self, request: Request) -> None:
        """A service that says to wait is called by no task, once all know: tasks of other runs only
        where limits hold over runs, and a task that begins meanwhile only there. All this while
        store and network are well.
        """
        night, faults = scheduler(), self._vendor.faults.struck
        if len(request.keys[0]) > 1:  # of a coroutine that is under way
            return
        if any(
            faults[fault]
            for fault in (
                "limits' store away",
                "error of the limits' store",
                "partition of the network",
            )
        ):
            return
        run, within = _run_of(request.process), HEARD_BY_ALL if self.over_runs else HEARD_IN_RUN
        for (worker, lookup), since in self._vendor.throttled_at.items():
            is_told = _run_of(worker) == run and self._called_since[request.process] < since
            if not (self.over_runs or is_told):
                continue
            until = self._vendor.closed_until[worker, lookup]
            died = [
                process.died_at
                for process in (worker, worker.driver)
                if process is not None and process.is_dead
            ]
            told = not died or min(died) > since + within
            is_new = since > self._restarted and worker is not request.process
            if (
                lookup == request.lookup
                and is_new
                and told
                and since + within < night.now < until - EPS
            ):
                night.fail(
                    f"asked while others were throttled: {lookup} {request.keys} by "
                    f"{request.process}"
                )
                return

    # -- rates and money
    # ----------------------------------------------------------------------------------------------
    def check_arrival(self, request: Request) -> None:
        lookup, limits = request.lookup, self._night.limits
        if limits in ("rates", "alone"):
            self._check_rates(request)
        unit = self._unit(lookup)
        if unit in ("item", "request"):
            self._spend(lookup, request.process, len(request.keys) if unit == "item" else 1)

    def check_charge(self, charge: Charge) -> None:
        if charge.tokens:
            self._spend(charge.lookup, charge.process, charge.tokens)
            if self._night.limits == "rates":
                self._check_tokens(charge)

    def _spend(self, lookup: str, process: Process, cents: int) -> None:
        day = scheduler().bills[_run_of(process)].started_at[:10]
        self.spent[lookup, day] += cents
        spent, allowed = self.spent[lookup, day], self._night.budget
        if self._night.limits == "budget" and spent > allowed:
            scheduler().fail(
                f"over its budget: {lookup} cost {spent} cents on {day}, and {allowed} are allowed"
            )

    def _unit(self, lookup: str) -> str | None:
        prices = lookup_of(self._night, lookup).prices
        return prices[0].unit if prices else None

    def _check_rates(self, request: Request) -> None:
        night, lookup, rate = scheduler(), request.lookup, self._night.rate
        where = lookup, "" if self.over_runs else _run_of(request.process)
        arrivals = self._arrivals.setdefault(where, deque())
        arrivals.append(night.now)
        while arrivals[0] <= night.now - 30.0 + EPS:
            arrivals.popleft()
        last = sum(at > night.now - 1.0 + EPS for at in arrivals)
        if last > rate:
            night.fail(
                f"over its rate: {last} requests of {lookup} within a second, where {rate} "
                "are allowed"
            )
        if len(arrivals) > 12 * rate:
            night.fail(
                f"over its rate: {len(arrivals)} requests of {lookup} in 30 s, where "
                f"{12 * rate} are allowed"
            )

    def _check_tokens(self, charge: Charge) -> None:
        night, allowed = scheduler(), 20 * self._night.rate
        self._tokens.append((night.now, charge.tokens))
        while self._tokens[0][0] <= night.now - 10.0 + EPS:
            self._tokens.popleft()
        if (used := sum(many for _, many in self._tokens)) > allowed:
            night.fail(f"over its rate: {used} tokens in 10 s, where {allowed} are allowed")

    # -- bills
    # ----------------------------------------------------------------------------------------------
    def check_books(self, file: pathlib.Path) -> None:
        """What the budgets' books have as spent is never below the invoice."""
        if self._night.limits != "budget":
            return
        kept: Counter[tuple[str, str]] = Counter()
        for service, book in limits_store.books(file).items():
            names = {row["limit"] for row in book.rows(0.0) if row["limit"].startswith(MONEY)}
            lookup = next(unit for unit in UNITS if f"{unit}r" in service)
            for name in names:
                kept[lookup, name.rpartition(" on ")[2]] += book.held(name)
        for (lookup, day), cents in self.spent.items():
            held = kept[lookup, day]
            if self._unit(lookup) is not None and held < cents * CENT:
                scheduler().fail(
                    f"the budget of {lookup} has {held / CENT} cents as spent on {day}, its bill "
                    f"is {cents}"
                )

    def is_used_up(self, file: pathlib.Path) -> bool:
        """Whether some service cannot be called once more today."""
        for book in limits_store.books(file).values():
            for row in book.rows(0.0):
                least = 18 if "scorer" in str(row) else 4
                if (
                    row["limit"].startswith(MONEY)
                    and row["amount"] - book.held(row["limit"]) < least * CENT
                ):
                    return True
        return False

    def cost_of(self, workers: Sequence[Process], is_stored: Callable[[str, Key], bool]) -> int:
        """Cents for all requests of workers that brought their result, and for the answers that the
        others stored.
        """
        cost = 0
        for lookup in self._night.lookups:
            unit = self._unit(lookup)
            if unit is None:
                continue
            took = self._vendor.received if unit == "request" else self._vendor.items
            counted: set[Key] = set()
            for worker in sorted(workers, key=lambda worker: not worker.has_delivered):
                charges = [
                    charge
                    for charge in self._vendor.invoice
                    if charge.lookup == lookup
                    and charge.process is worker
                    and (
                        worker.has_delivered
                        or (is_stored(lookup, charge.key[:1]) and charge.key[:1] not in counted)
                    )
                ]
                keys = {charge.key[:1] for charge in charges}
                if unit == "token":
                    cost += sum(charge.tokens for charge in charges)
                else:
                    cost += took[worker, lookup] if worker.has_delivered else len(keys)
                # a request that repeats an earlier one by its idempotency key is counted, not charged
                counted |= keys | (
                    self._vendor.asked(worker, lookup) if worker.has_delivered else set()
                )
        return cost

    def check_bill(self, run: str, workers: Sequence[Process], folder: pathlib.Path) -> None:
        """What a run counted on disk as billed is what the vendor took: to the cent, but for calls
        at a kill.
        """
        counted: Mapping[str, Usage] = metered(folder)
        cut = sum(worker.was_cut for worker in workers)
        for lookup in self._night.lookups:
            unit = self._unit(lookup)
            if unit is None:
                continue
            mine = counted.get(lookup, Counter[int]()).total()
            if unit == "token":
                answered = [
                    charge
                    for charge in self._vendor.invoice
                    if charge.lookup == lookup and _run_of(charge.process) == run
                ]
                most = sum(charge.tokens for charge in answered)
                least = most if not cut and all(charge.arrived for charge in answered) else 0
                if not least <= mine <= most:
                    scheduler().fail(
                        f"{run} counts {mine} tokens of {lookup} as billed, the "
                        f"vendor billed {most}"
                    )
                continue
            took = self._vendor.received if unit == "request" else self._vendor.items
            bill = sum(took[worker, lookup] for worker in workers)
            lost = cut * CONCURRENCY[lookup] * (4 if unit == "item" else 1)
            if not bill <= mine <= bill + lost:
                scheduler().fail(
                    f"{run} counts {mine} {unit}s of {lookup} as billed, the vendor billed {bill}"
                )


def _run_of(process: Process) -> str:
    return process.name.split(".")[0]
