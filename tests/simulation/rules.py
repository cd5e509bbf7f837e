"""What must hold in every night, checked where it happens."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.declare.lookup import Lookup
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.keys import key_text
from jobs.run.keys.key_texts import TEXT
from jobs.run.keys.prefetch_task import PLACE
from jobs.run.request_metrics import RequestMetricsCollector
from tests.simulation.declared import LEDGER, Row, is_marked
from tests.simulation.disk import Storage
from tests.simulation.limit_rules import LimitRules
from tests.simulation.night_at_work import scheduler
from tests.simulation.nights import Act, Night
from tests.simulation.scheduler import Process
from tests.simulation.vendor import Charge, Request, Vendor

ANSWERED = ("ok", "miss")
FILE_ERRORS = ("error before a file operation", "error after a file operation", "power cut")
HEARD_WITHIN = 0.1  # s
DRIVERLESS = 1.5  # s for which a task may go on without its driver
SLACK = 5.0  # s between a search for stored answers and the call for one that had expired
STORED_WITHIN = 1.5  # s after its answer, on a fast disk
STAGELESS = 1.0  # s for which a task may go on after Spark gave its stage up
UNHEARD = 20.5  # s for which a task may go on without a word from its driver


def text_of(key: tuple[Any, ...]) -> str:
    return key_text(key, hidden=False)


def run_of(process: Process) -> str:
    """The run that a driver or a worker belongs to."""
    return process.name.split(".")[0]


@dataclass(frozen=True)
class DeclaredRun:
    """A run as it was started. lookups: by name, as it declares them."""

    act: Act
    lookups: Mapping[str, Lookup]

    @property
    def lives(self) -> float | None:
        """Seconds for which it uses an answer; None for ever."""
        ok = next(iter(self.lookups.values())).ttl.ok
        return None if ok is None or self.act.does != "run" else ok.total_seconds()

    @property
    def refuses_odd(self) -> bool:
        return "error_when" in self.act.changed


class Rules:
    """Watches the ledger, the vendor and the rows of one night, and reports each broken promise as
    a failure.

    A power cut may lose parts that were not synced, and a failing disk may have stored what it
    refused: the rules then allow a second charge, but never a wrong value.
    """

    def __init__(self, night: Night, vendor: Vendor, storage: Storage) -> None:
        self._night, self._vendor, self._storage = night, vendor, storage
        self._stored_at: dict[tuple[str, str], float] = {}
        self._stored_by: set[tuple[str, str, str]] = set()
        self._marked: set[tuple[str, str]] = set()
        self._began: dict[Process, float] = {}
        self.last_power_cut = -1.0
        self.disk_failed = False
        self.copied: set[str] = set()  # runs of which a task ran twice at once
        self.older_values = False  # an answer of before a refresh may be right
        self.clock_was_set = False
        self._refreshed: set[tuple[str, str]] = set()
        self.runs: dict[str, DeclaredRun] = {}
        self.limits = LimitRules(night, vendor)
        vendor.on_request, vendor.on_charge = self.check_request, self.check_charge
        vendor.on_arrival = self.limits.check_arrival

    def _declared(self, process: Process) -> DeclaredRun:
        return self.runs[run_of(process)]

    # -- what the product tells
    # ----------------------------------------------------------------------------------------
    def task_begins(self, worker: Process) -> None:
        self._began[worker] = scheduler().now

    def are_stored_now(self, lookup: str, answers: Sequence[StoredAnswer] | pa.Table) -> None:
        """These records are about to be stored; a process that is killed meanwhile tells nothing of
        it.
        """
        for key, outcome in _outcomes(answers):
            if outcome == "expired":  # refreshed, or in doubt after an answer that came twice
                self.unwanted(lookup, *json.loads(key))

    def stored(self, lookup: str, answers: Sequence[StoredAnswer] | pa.Table) -> None:
        """The product was told that these records are stored."""
        run = run_of(scheduler().me().process)
        for key, outcome in _outcomes(answers):
            if outcome in ANSWERED:
                self._stored_by.add((run, lookup, key))
                # else refreshed or forgotten on its way
                if self._vendor.charges(lookup, tuple(json.loads(key))):
                    self._stored_at[lookup, key] = scheduler().now
            elif outcome == "asked":
                self._marked.add((lookup, key))

    def power_was_cut(self) -> None:
        self.last_power_cut = scheduler().now
        self._stored_at.clear()
        self.limits.power_was_cut()

    def unwanted(self, lookup: str, key: str) -> None:
        """The key is being forgotten or refreshed: its answer may be there or not, and a further
        charge is right.
        """
        self._stored_at.pop((lookup, text_of((key,))), None)
        self._refreshed.add((lookup, text_of((key,))))
        self._vendor.void(lookup, (key,))

    # -- calls
    # ----------------------------------------------------------------------------------------------
    def check_request(self, request: Request) -> None:
        """No call for what was stored when its task began; no key asked twice; limits hold at the
        vendor.
        """
        night, run = scheduler(), self._declared(request.process)
        if run.act.does == "remap":
            night.fail(f"asked by a remap: {request.lookup} {request.keys}")
        self.limits.check_request(request, is_excused=run_of(request.process) in self.copied)
        self._check_permission(request)
        for key in request.keys:
            self._check_key(request, run, key)

    def _check_key(self, request: Request, run: DeclaredRun, key: "tuple[Any, ...]") -> None:
        lookup, night, text = request.lookup, scheduler(), text_of(key[:1])
        stored_at, began = (
            self._stored_at.get((lookup, text)),
            self._began.get(request.process, 0.0),
        )
        if (
            stored_at is not None
            and stored_at < began
            and not self._is_open_again(run, lookup, key, stored_at)
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
            if not self._may_repeat(charge, request, run, stored_at):
                night.fail(
                    f"asked twice: {lookup} {key} by {request.process}; charged "
                    f"{charge.charged_at:.4f} for "
                    f"{charge.process}, answered {charge.due_at:.4f}, stored {stored_at}"
                )

    def _is_open_again(
        self, run: DeclaredRun, lookup: str, key: "tuple[Any, ...]", known_at: float
    ) -> bool:
        """Whether the declaration of this run does not count an answer that is known since then."""
        if run.refuses_odd and "odd" in (self._vendor.answer(lookup, key[:1], 0) or ()):
            return True  # error_when calls the stored answer an error, and errors are asked again
        if self.clock_was_set and (lookup, text_of(key[:1])) in self._refreshed:
            # by the clock that was set the refresh may be later than the answer (docs/ledger.md)
            return True
        if run.lives is None:
            return False
        # it has expired
        return self.clock_was_set or scheduler().now >= known_at + run.lives - SLACK

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
        is_to_wait = not is_marked(self._declared(worker).lookups[request.lookup])
        if night.now > heard_at + UNHEARD and is_to_wait and not is_further:
            night.fail(
                f"asked by a task that is cut off: {request.lookup} {request.keys} by {worker}"
            )
        if worker.unwanted_since is not None and night.now > max(
            worker.unwanted_since + STAGELESS, news
        ):
            night.fail(f"asked after its stage: {request.lookup} {request.keys} by {worker}")

    def _may_repeat(
        self, charge: Charge, request: Request, run: DeclaredRun, stored_at: float | None
    ) -> bool:
        """Why a key that was charged may be charged again."""
        # its process was killed before it could store the answer; an older answer had expired, or
        # the later one is of another run
        own = run_of(charge.process), request.lookup, text_of(charge.key[:1])
        is_stored = (
            stored_at is not None and stored_at >= charge.charged_at and own in self._stored_by
        )
        lost_in_flight = (
            charge.process.is_dead and not is_stored and not self._was_stored_in_time(charge)
        )
        # the row left at its time limit, without the answer
        timed_out = charge.due_at - charge.began_at > _timeout(run, request.lookup)
        # it failed visibly: a dropped connection, another key's answer; errors are not kept
        failed = not charge.arrived and request.sent_at >= charge.failed_at
        failed |= self._failed_halfway(charge)
        # a part that was not synced was lost with the power
        lost_by_the_disk = self.last_power_cut >= charge.charged_at
        # Spark runs a task twice at once: each copy calls for what the other has in flight
        # (docs/ledger.md), and the second deletes the claims of the first (docs/planning.md)
        of_a_copy = not self.copied.isdisjoint((run_of(charge.process), run_of(request.process)))
        # a retry, a hedge, or the second run of a coroutine whose first request was answered
        by_itself = charge.process is request.process and (
            not charge.arrived or request.lookup == "score"
        )
        by_itself |= charge.process is request.process and self._is_hedged(run, request)
        return (
            lost_in_flight or timed_out or failed or lost_by_the_disk or of_a_copy or by_itself
            or self._is_open_again(run, request.lookup, charge.key, charge.due_at)
            or self._settled_as_error(charge) or self._seemed_dead(charge, request)
        )  # fmt: skip

    def _failed_halfway(self, charge: Charge) -> bool:
        """Whether the second request of a coroutine failed, so that the first answer is lost."""
        answer = self._vendor.answer(charge.lookup, charge.key, charge.version)
        if charge.lookup != "score" or len(charge.key) > 1 or "odd" not in (answer or ()):
            return False
        more = self._vendor.charges(charge.lookup, (*charge.key, "more"))
        return not any(one.process is charge.process and one.arrived for one in more)

    def _was_stored_in_time(self, charge: Charge) -> bool:
        """Whether the process lived so long after the answer that it must have stored it."""
        night = self._night
        if (
            charge.lookup == "score"
            or not charge.arrived
            or any(self._vendor.faults.struck[one] for one in FILE_ERRORS)
        ):
            return False
        within = (
            STORED_WITHIN
            + 200 * night.latency
            + (night.flush_seconds if night.storage == "s3" else 0.0)
        )
        return charge.process.died_at - charge.due_at > within

    def _settled_as_error(self, charge: Charge) -> bool:
        """Whether its run took the answer for an error, by its error_when: it is asked again."""
        return self._declared(charge.process).refuses_odd and "odd" in (
            self._vendor.answer(charge.lookup, charge.key[:1], charge.version) or ()
        )

    def _seemed_dead(self, charge: Charge, request: "Request | Charge") -> bool:
        """A clock that is set makes claims and runs at work look dead until they are renewed
        (docs/planning.md).
        """
        return self.clock_was_set and run_of(charge.process) != run_of(request.process)

    def _was_thought_dead(self, request: Request, lookup: str, text: str) -> bool:
        """Whether another run called for the key, as the clock was set and made this run look dead:
        this run kept its keys to itself and does not ask the ledger for them again.
        """
        return self.clock_was_set and (run_of(request.process), lookup, text) not in self._stored_by

    @staticmethod
    def _is_hedged(run: DeclaredRun, request: Request) -> bool:
        return run.lookups[request.lookup].hedge_after is not None

    def check_charge(self, charge: Charge) -> None:
        """No second charge where it must not be."""
        self.limits.check_charge(charge)
        run = self._declared(charge.process)
        is_marked_now = is_marked(run.lookups[charge.lookup])
        if not is_marked_now and not (charge.lookup == "stock" and self._night.honours_keys):
            return
        for before in self._vendor.charges(charge.lookup, charge.key):
            if is_marked_now and not is_marked(
                self._declared(before.process).lookups[charge.lookup]
            ):
                continue  # its run declared that the call may be repeated, and left no mark
            if self._is_open_again(
                run, charge.lookup, charge.key, before.due_at
            ) or self._settled_as_error(before):
                continue
            if self._seemed_dead(before, charge):
                continue
            scheduler().fail(
                f"charged twice: {charge.lookup} {charge.key} by {charge.process}; first "
                f"{before.charged_at:.4f} "
                f"for {before.process}"
            )
            return

    def check_requests(
        self, run: str, workers: Sequence[Process], counted: RequestMetricsCollector
    ) -> None:
        """The run knows each request that the vendor took, unless a task died with its counts."""
        results = counted._results  # of the attempts that brought one
        if len(results) != len(workers):
            return
        for lookup in self._night.lookups:
            received = sum(self._vendor.received[worker, lookup] for worker in workers)
            sent = sum(
                one.requests[lookup].sent.total() for one in results if lookup in one.requests
            )
            if sent != received:
                scheduler().fail(
                    f"{run} counts {sent} requests of {lookup}, and the vendor took {received}"
                )

    # -- rows
    # ----------------------------------------------------------------------------------------------
    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches that leave a task: each called answer in them is stored."""
        run = run_of(scheduler().me().process)
        for batch in batches:
            for place, lookup in enumerate(self._night.lookups):
                for key in _called(batch, place, lookup):
                    if (run, lookup, key) not in self._stored_by:
                        scheduler().fail(f"left its task before it was stored: {lookup} {key}")
            yield batch

    def check_day(
        self, run: str, rows: Sequence[Row], files: Sequence[str], *, is_quiet: bool
    ) -> None:
        """Each row once, in order, with the value of a charged call."""
        night = scheduler()
        by_number = {row.number: row for row in rows}
        found = pa.concat_tables(
            [pq.read_table(file, partitioning=None) for file in files]
        ).to_pylist()
        if sorted(row["id"] for row in found) != sorted(by_number):
            night.fail(f"{run}: {len(found)} rows instead of {len(rows)}, or one twice")
            return
        if self._night.mode == "ordered":
            for part in range(self._night.tasks):
                order = [row["_input_seq"] for row in found if row["_partition"] == part]
                if order != sorted(order):
                    night.fail(f"{run}: task {part} is out of order: {order}")
        for row in found:
            for lookup in self._night.lookups:
                key, first = by_number[row["id"]].keys[lookup], self._night.chain.get(lookup)
                if first is not None and row[f"_{first}_status"] != "ok":
                    key = None  # its condition does not hold
                self._check_value(run, row, lookup, key, is_quiet=is_quiet)

    def _check_value(
        self, run: str, row: dict[str, Any], lookup: str, key: str | None, *, is_quiet: bool
    ) -> None:
        night, status, declared = scheduler(), row[f"_{lookup}_status"], self.runs[run]
        value = row[f"{lookup}_value"]
        if key is None:
            if status != "skipped":
                night.fail(f"{run}: {lookup} without a key is {status}")
            return
        newest = self._vendor.versions[lookup, (key,)]
        versions = range(newest + 1) if self.older_values or self.last_power_cut >= 0 else [newest]
        truths = [self._vendor.answer(lookup, (key,), version) for version in versions]
        if status == "ok" and value not in [truth["v"] for truth in truths if truth is not None]:
            night.fail(f"{run}: wrong value: {lookup} {key} is {value!r}, not one of {truths}")
        if status == "miss" and None not in truths:
            night.fail(f"{run}: {lookup} {key} is a miss, not {truths}")
        if status in ANSWERED and not self._vendor.was_charged(lookup, (key,)):
            night.fail(f"{run}: {lookup} {key} has an answer and was never charged")
        tried = [
            attempt for attempt in row[f"_{lookup}_attempts"] or () if not attempt["throttled"]
        ]
        if len(tried) > 1 + declared.lookups[lookup].retry.retries:
            night.fail(f"{run}: {lookup} {key} was tried {len(tried)} times")
        if (
            declared.refuses_odd
            and status == "ok"
            and any("odd" in (truth or ()) for truth in truths)
            and lookup != "score"
        ):
            night.fail(f"{run}: {lookup} {key} is ok, and error_when calls its answer an error")
        in_doubt = is_marked(declared.lookups[lookup]) and status in ("unknown", "error", "timeout")
        if is_quiet and status not in ANSWERED and not in_doubt:
            night.fail(
                f"{run}: {lookup} {key} is {status} without a fault: {row[f'_{lookup}_error']}"
            )

    # -- files
    # ----------------------------------------------------------------------------------------------
    def check_forgotten(self, lookup: str, keys: Sequence[str], *, is_compacting: bool) -> None:
        """No file of the ledger contains a forgotten key, but for the one that a compaction at work
        is writing (docs/ledger.md).
        """
        texts = {text_of((key,)) for key in keys}
        for path, file in self._storage.files.items():
            if not path.startswith(f"{LEDGER}/{lookup}/") or self._is_unfinished_part_of_a_run(
                path, file.data
            ):
                continue
            found = _keys_in(path, file.data, texts)
            if found and is_compacting and self._is_of_no_generation(path):
                is_compacting = False
            elif found:
                scheduler().fail(f"forgotten and still there: {sorted(found)[:3]} in {path}")

    def _is_of_no_generation(self, path: str) -> bool:
        """Whether a change wrote the file that is not complete: no reader knows the file."""
        folder, compacted, name = path.partition("/compacted/")
        return bool(compacted) and not any(
            name.encode() in file.data
            for other, file in self._storage.files.items()
            if other.startswith(folder) and other.endswith("/complete.json")
        )

    def _is_unfinished_part_of_a_run(self, path: str, data: bytes) -> bool:
        """Whether a registered run may be writing the part: `forget` leaves it (docs/ledger.md)."""
        folder, parts, name = path.partition("/parts/")
        run = name.partition("/")[0].removesuffix("-keys")
        if not parts or not (
            path.endswith(".draft") or (path.endswith(".parquet") and not _is_whole(data))
        ):
            return False
        return any(one.startswith(f"{folder}/runs/{run}/") for one in self._storage.files)


def _outcomes(answers: Sequence[StoredAnswer] | pa.Table) -> Iterator[tuple[str, str]]:
    """Keys with their outcomes."""
    if isinstance(answers, pa.Table):
        yield from zip(answers["key"].to_pylist(), answers["outcome"].to_pylist(), strict=True)
    else:
        yield from ((answer.key, answer.outcome) for answer in answers)


def _called(batch: pa.RecordBatch, place: int, lookup: str) -> Iterator[str]:
    """The keys whose answers a batch of rows, or of prefetched keys, got by a call."""
    if f"_{lookup}_source" not in batch.schema.names:
        return
    calls = zip(
        batch[f"_{lookup}_source"].to_pylist(), batch[f"_{lookup}_status"].to_pylist(), strict=True
    )
    if PLACE in batch.schema.names:
        places = batch[PLACE].to_pylist()
        keys = [
            text if at == place else None
            for text, at in zip(batch[TEXT].to_pylist(), places, strict=True)
        ]
    elif f"_{lookup}_key" in batch.schema.names:
        keys = [text_of(tuple(key.values())) for key in batch[f"_{lookup}_key"].to_pylist()]
    else:
        return
    for key, (source, status) in zip(keys, calls, strict=True):
        if key is not None and source == "call" and status in ANSWERED:
            yield key


def _is_whole(data: bytes) -> bool:
    return data.endswith(b"PAR1") and data.startswith(b"PAR1")


def _keys_in(path: str, data: bytes, texts: set[str]) -> set[str]:
    if path.endswith(".parquet"):
        try:
            return texts & set(
                pq.read_table(pa.BufferReader(data), columns=["key"])["key"].to_pylist()
            )
        except pa.ArrowInvalid:
            pass
    as_json = {text: text.replace('"', '\\"') for text in texts}
    return {text for text in texts if text.encode() in data or as_json[text].encode() in data}


def _timeout(run: DeclaredRun, lookup: str) -> float:
    return float(run.lookups[lookup].timeout or 0.0) - 1.0
