"""What must hold in every night, checked where it happens: what is called, and what is charged."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from jobs.errors import ServiceDown
from jobs.ledger.answers import StoredAnswer
from jobs.task.output_files import TaskResult
from tests.simulation.declared import is_marked
from tests.simulation.limit_rules import LimitRules
from tests.simulation.night_at_work import scheduler
from tests.simulation.night_facts import ANSWERED, DeclaredRun, NightFacts, run_of, text_of
from tests.simulation.nights import Act, Night
from tests.simulation.processes import Process
from tests.simulation.repeats import Repeats
from tests.simulation.row_rules import RowRules
from tests.simulation.vendor import Charge, Request, Vendor

HEARD_WITHIN = 0.1  # s
DRIVERLESS = 1.5  # s for which a task may go on without its driver
STAGELESS = 1.0  # s for which a task may go on after Spark gave its stage up
UNHEARD = 20.5  # s for which a task may go on without a word from its driver


class Rules:
    """Watches the ledger, the vendor and the rows of one night, and reports each broken promise as
    a failure.

    A power cut may lose parts that were not synced, and a failing disk may have stored what it
    refused: the rules then allow a second charge, but never a wrong value.
    """

    def __init__(self, night: Night, vendor: Vendor) -> None:
        self._night, self._vendor = night, vendor
        self.facts = self._facts = NightFacts(night, vendor)
        self._repeats = Repeats(self._facts)
        self._marked: dict[tuple[str, str], dict[Process, int]] = {}  # when, in µs
        self._expired: dict[tuple[str, str], int] = {}  # until when, in µs
        self._began: dict[Process, float] = {}
        self.limits = LimitRules(night, vendor)
        self.rows = RowRules(self._facts)
        self.watched = self.rows.watched
        vendor.on_request, vendor.on_charge = self.check_request, self.check_charge
        vendor.on_arrival = self.limits.check_arrival

    # -- what the product tells
    # ----------------------------------------------------------------------------------------
    def task_begins(self, worker: Process) -> None:
        self._began[worker] = scheduler().now

    def are_stored_now(self, lookup: str, answers: Sequence[StoredAnswer] | pa.Table) -> None:
        """These records are about to be stored; a process that is killed meanwhile tells nothing of
        it.
        """
        for key, outcome, at in _outcomes(answers):
            if outcome == "expired":  # refreshed, or in doubt after an answer that came twice
                self.unwanted(lookup, *json.loads(key))
                self._expired[lookup, key] = max(at, self._expired.get((lookup, key), 0))

    def stored(self, lookup: str, answers: Sequence[StoredAnswer] | pa.Table) -> None:
        """The product was told that these records are stored."""
        run = run_of(scheduler().me().process)
        for key, outcome, at in _outcomes(answers):
            if outcome in ANSWERED:
                self._facts.stored_by.add((run, lookup, key))
                # else refreshed or forgotten on its way
                if self._vendor.charges(lookup, tuple(json.loads(key))):
                    self._facts.stored_at[lookup, key] = scheduler().now
            elif outcome == "asked":
                self._marked.setdefault((lookup, key), {})[scheduler().me().process] = at

    def power_was_cut(self) -> None:
        self._facts.last_power_cut = scheduler().now
        self._facts.stored_at.clear()
        self.limits.power_was_cut()

    def unwanted(self, lookup: str, key: str) -> None:
        """The key is being forgotten or refreshed: its answer may be there or not, and a further
        charge is right.
        """
        self._facts.stored_at.pop((lookup, text_of((key,))), None)
        self._facts.refreshed.add((lookup, text_of((key,))))
        for asked in ((key,), (key, "more")):  # a coroutine may make a second request for its key
            self._vendor.void(lookup, asked)

    # -- calls
    # ----------------------------------------------------------------------------------------------
    def check_request(self, request: Request) -> None:
        """No call for what was stored when its task began; no key asked twice; limits hold at the
        vendor.
        """
        night, run = scheduler(), self._facts.declared(request.process)
        if run.act.does == "remap":
            night.fail(f"asked by a remap: {request.lookup} {request.keys}")
        self.limits.check_request(request, is_excused=run_of(request.process) in self._facts.copied)
        self._check_permission(request)
        for key in request.keys:
            self._check_key(request, run, key)

    def _check_key(self, request: Request, run: DeclaredRun, key: "tuple[Any, ...]") -> None:
        lookup, night, text = request.lookup, scheduler(), text_of(key[:1])
        stored_at, began = (
            self._facts.stored_at.get((lookup, text)),
            self._began.get(request.process, 0.0),
        )
        if (
            stored_at is not None
            and stored_at < began
            and not self._facts.is_open_again(run, lookup, key, stored_at)
            and not self._was_thought_dead(request, lookup, text)
        ):
            begun = f"{request.process}, begun {began:.4f}"
            night.fail(
                f"stored and asked again: {lookup} {key}, stored {stored_at:.4f}, by {begun}"
            )
        if is_marked(run.lookups[lookup]):
            if (lookup, text) not in self._marked:
                night.fail(f"asked without a mark: {lookup} {key} by {request.process}")
            return
        if request.idempotency_key is not None and self._night.honours_keys:
            return
        for charge in self._vendor.charges(lookup, key):
            if not self._repeats.are_right(charge, request, run, stored_at):
                night.fail(
                    f"asked twice: {lookup} {key} by {request.process}; charged "
                    f"{charge.charged_at:.4f} for "
                    f"{charge.process}, answered {charge.due_at:.4f}, stored {stored_at}"
                )

    def _check_permission(self, request: Request) -> None:
        """No call while the service wants none, none without a driver, and none for a stage that is
        over.
        """
        night, worker, vendor = scheduler(), request.process, self._vendor
        place = worker, request.lookup
        since, until = (
            vendor.throttled_at.get(place, night.now),
            vendor.closed_until.get(place, 0.0),
        )
        is_further = len(request.keys[0]) > 1  # of a coroutine that is under way
        if since + HEARD_WITHIN < night.now < until and not is_further:
            night.fail(f"asked while throttled: {request.lookup} {request.keys} by {worker}")
        news = night.network.cut_until + HEARD_WITHIN
        driver = worker.driver
        if (
            driver is not None
            and driver.is_dead
            and night.now > max(driver.died_at + DRIVERLESS, news)
        ):
            night.fail(f"asked without a driver: {request.lookup} {request.keys} by {worker}")
        heard_at = night.network.heard.get(worker, night.now)
        is_to_wait = not is_marked(self._facts.declared(worker).lookups[request.lookup])
        if night.now > heard_at + UNHEARD and is_to_wait and not is_further:
            night.fail(
                f"asked by a task that is cut off: {request.lookup} {request.keys} by {worker}"
            )
        # one that did not reach its driver when it began goes on until Spark kills it
        is_linked = worker in night.network.heard
        if (
            is_linked
            and worker.unwanted_since is not None
            and night.now > max(worker.unwanted_since + STAGELESS, news)
        ):
            night.fail(f"asked after its stage: {request.lookup} {request.keys} by {worker}")

    def _was_thought_dead(self, request: Request, lookup: str, text: str) -> bool:
        """Whether another run called for the key, as the clock was set and made this run look dead:
        this run kept its keys to itself and does not ask the ledger for them again.
        """
        return (
            self._facts.clock_was_set
            and (run_of(request.process), lookup, text) not in self._facts.stored_by
        )

    def check_charge(self, charge: Charge) -> None:
        """No second charge where it must not be."""
        self.limits.check_charge(charge)
        run = self._facts.declared(charge.process)
        is_marked_now = is_marked(run.lookups[charge.lookup])
        if not is_marked_now and not (charge.lookup == "stock" and self._night.honours_keys):
            return
        for before in self._vendor.charges(charge.lookup, charge.key):
            if is_marked_now and not is_marked(
                self._facts.declared(before.process).lookups[charge.lookup]
            ):
                continue  # its run declared that the call may be repeated, and left no mark
            if self._facts.is_open_again(
                run, charge.lookup, charge.key, before.due_at
            ) or self._facts.settled_as_error(before):
                continue
            if self._facts.seemed_dead(before, charge) or self._was_refreshed(before):
                continue
            scheduler().fail(
                f"charged twice: {charge.lookup} {charge.key} by {charge.process}; first "
                f"{before.charged_at:.4f} for {before.process}"
            )
            return

    def _was_refreshed(self, charge: Charge) -> bool:
        """Whether the key was refreshed after the call's mark was made, perhaps before the mark was
        written and the call left: the ledger then has no mark of it any more.
        """
        place = charge.lookup, text_of(charge.key[:1])
        marked_at = self._marked.get(place, {}).get(charge.process)
        return marked_at is not None and marked_at <= self._expired.get(place, 0)

    def check_cap(self, run: str, workers: Sequence[Process]) -> None:
        """A run costs at most its cap, but for attempts that a task took with it as it failed:
        of those the next one knows the stored answers (docs/ledger.md).
        """
        act = self._facts.runs[run].act
        if not act.cap or run in self._facts.copied:
            return
        spent = self.limits.cost_of(
            workers, lambda lookup, key: (run, lookup, text_of(key)) in self._facts.stored_by
        )
        if spent > act.cap:
            scheduler().fail(f"{run} cost {spent} cents, and its cap is {act.cap}")

    def check_failure(self, error: Exception, act: Act) -> None:
        """A vendor that is down does not stop a run that has another one."""
        is_its = isinstance(error, ServiceDown) and f"{self._night.lookups[0]}r" in str(error)
        if is_its and self._night.spills and not act.cap:
            scheduler().fail(f"stopped by a vendor that another one follows: {error}")

    def check_requests(
        self, run: str, workers: Sequence[Process], results: Sequence[TaskResult]
    ) -> None:
        """The run knows each request that the vendor took, unless a task died with its counts."""
        if len(results) != len(workers):
            return
        for lookup in self._night.lookups:
            received = sum(self._vendor.received[worker, lookup] for worker in workers)
            sent = sum(
                result.requests[lookup].sent.total()
                for result in results
                if lookup in result.requests
            )
            if sent != received:
                scheduler().fail(
                    f"{run} counts {sent} requests of {lookup}, and the vendor took {received}"
                )


def _outcomes(answers: Sequence[StoredAnswer] | pa.Table) -> Iterator[tuple[str, str, int]]:
    """Keys with their outcomes, and when, in µs since the epoch."""
    if isinstance(answers, pa.Table):
        at = answers["answered_at"].cast(pa.int64())
        columns = answers["key"], answers["outcome"], at
        yield from zip(*(column.to_pylist() for column in columns), strict=True)
    else:
        yield from ((answer.key, answer.outcome, answer.answered_at) for answer in answers)
