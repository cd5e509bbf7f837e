"""What must hold in every night, checked where it happens."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.keys import key_text
from jobs.run.key_columns import TEXT
from jobs.run.prefetch_task import PLACE
from jobs.run.request_metrics import RequestMetricsCollector
from tests.simulation.declared import LEDGER, LOOKUPS, MARKED, Row
from tests.simulation.disk import Storage
from tests.simulation.night_at_work import scheduler
from tests.simulation.nights import Night
from tests.simulation.scheduler import Process
from tests.simulation.vendor import Charge, Request, Vendor

ANSWERED = ("ok", "miss")
HEARD_WITHIN = 0.1  # s
DRIVERLESS = 5.0  # s for which a task may go on without its driver
STAGELESS = 1.0  # s for which a task may go on after Spark gave its stage up
UNHEARD = 20.5  # s for which a task may go on without a word from its driver


def text_of(key: tuple[Any, ...]) -> str:
    return key_text(key, hidden=False)


def run_of(process: Process) -> str:
    """The run that a driver or a worker belongs to."""
    return process.name.split(".")[0]


class Rules:
    """Watches the ledger, the vendor and the rows of one night, and reports each broken promise as a failure.

    A power cut may lose parts that were not synced, and a failing disk may have stored what it refused: the rules then
    allow a second charge, but never a wrong value.
    """

    def __init__(self, night: Night, vendor: Vendor, storage: Storage) -> None:
        self._night, self._vendor, self._storage = night, vendor, storage
        self._stored_at: dict[tuple[str, str], float] = {}
        self._stored_by: set[tuple[str, str, str]] = set()
        self._marked: set[tuple[str, str]] = set()
        self._began: dict[Process, float] = {}
        self.last_power_cut = -1.0
        self.disk_failed = False
        self.copies = False  # a task ran twice at once
        self.older_values = False  # an answer of before a refresh may be right
        vendor.on_request, vendor.on_charge = self.check_request, self.check_charge

    # -- what the product tells ----------------------------------------------------------------------------------------
    def task_begins(self, worker: Process) -> None:
        self._began[worker] = scheduler().now

    def stored(self, lookup: str, answers: Sequence[StoredAnswer] | pa.Table) -> None:
        """The product was told that these records are stored."""
        pairs = (
            zip(answers["key"].to_pylist(), answers["outcome"].to_pylist(), strict=True)
            if isinstance(answers, pa.Table)
            else ((answer.key, answer.outcome) for answer in answers)
        )
        run = run_of(scheduler().me().process)
        for key, outcome in pairs:
            if outcome in ANSWERED:
                self._stored_by.add((run, lookup, key))
                if self._vendor.charges(lookup, tuple(json.loads(key))):  # else refreshed or forgotten on its way
                    self._stored_at.setdefault((lookup, key), scheduler().now)
            elif outcome == "expired":  # refreshed, or in doubt after an answer that came twice
                self.unwanted(lookup, *json.loads(key))
            elif outcome == "asked":
                self._marked.add((lookup, key))

    def power_was_cut(self) -> None:
        self.last_power_cut = scheduler().now
        self._stored_at.clear()

    def unwanted(self, lookup: str, key: str) -> None:
        """The key is being forgotten or refreshed: its answer may be there or not, and a further charge is right."""
        self._stored_at.pop((lookup, text_of((key,))), None)
        self._vendor.void(lookup, (key,))

    # -- calls ---------------------------------------------------------------------------------------------------------
    def check_request(self, request: Request) -> None:
        """No call for what was stored when its task began; no key asked twice; limits hold at the vendor."""
        lookup, key, night = request.lookup, request.key, scheduler()
        self._check_in_flight(request)
        self._check_permission(request)
        stored_at, began = self._stored_at.get((lookup, text_of(key))), self._began.get(request.process, 0.0)
        if stored_at is not None and stored_at < began:
            begun = f"{request.process}, begun {began:.4f}"
            night.fail(f"stored and asked again: {lookup} {key}, stored {stored_at:.4f}, by {begun}")
        if lookup in MARKED:
            if (lookup, text_of(key)) not in self._marked:
                night.fail(f"asked without a mark: {lookup} {key} by {request.process}")
            return
        if request.idempotency_key is not None and self._night.honours_keys:
            return
        for charge in self._vendor.charges(lookup, key):
            if not self._may_repeat(charge, request, stored_at):
                night.fail(
                    f"asked twice: {lookup} {key} by {request.process}; charged {charge.charged_at:.4f} for "
                    f"{charge.process}, answered {charge.due_at:.4f}, stored {stored_at}"
                )

    def _check_permission(self, request: Request) -> None:
        """No call while the service wants none, none without a driver, and none for a stage that is over."""
        night, worker, vendor = scheduler(), request.process, self._vendor
        place = worker, request.lookup
        since, until = vendor.throttled_at.get(place, night.now), vendor.closed_until.get(place, 0.0)
        if since + HEARD_WITHIN < night.now < until:
            night.fail(f"asked while throttled: {request.lookup} {request.key} by {worker}")
        news = night.network.cut_until + HEARD_WITHIN
        driver = worker.driver
        if driver is not None and driver.is_dead and night.now > max(driver.died_at + DRIVERLESS, news):
            night.fail(f"asked without a driver: {request.lookup} {request.key} by {worker}")
        heard_at = night.network.heard.get(worker, night.now)
        if night.now > heard_at + UNHEARD and request.lookup not in MARKED:
            night.fail(f"asked by a task that is cut off: {request.lookup} {request.key} by {worker}")
        if worker.unwanted_since is not None and night.now > max(worker.unwanted_since + STAGELESS, news):
            night.fail(f"asked after its stage: {request.lookup} {request.key} by {worker}")

    def _may_repeat(self, charge: Charge, request: Request, stored_at: float | None) -> bool:
        lost_in_flight = charge.process.is_dead and stored_at is None
        timed_out = charge.due_at - charge.sent_at > _shortest_timeout()
        lost_by_the_disk = self.disk_failed or self.last_power_cut >= charge.charged_at
        of_a_copy = self.copies and run_of(charge.process) == run_of(request.process)
        return lost_in_flight or timed_out or lost_by_the_disk or of_a_copy or charge.process is request.process

    def check_charge(self, charge: Charge) -> None:
        """No second charge where it must not be."""
        is_once = charge.lookup in MARKED or (charge.lookup == "stock" and self._night.honours_keys)
        before = self._vendor.charges(charge.lookup, charge.key) if is_once else []
        if before:
            scheduler().fail(
                f"charged twice: {charge.lookup} {charge.key} by {charge.process}; first {before[0].charged_at:.4f} "
                f"for {before[0].process}"
            )

    def _check_in_flight(self, request: Request) -> None:
        lookup, run = request.lookup, run_of(request.process)
        others = (one for one in self._vendor.waiting.values() if one.lookup == lookup and not one.process.is_dead)
        in_flight, allowed = sum(run_of(one.process) == run for one in others), LOOKUPS[lookup].concurrency
        if in_flight > allowed and not self.copies:
            scheduler().fail(f"{in_flight} calls of {lookup} at once by {run}, where {allowed} are allowed")

    def check_bill(self, run: str, workers: Sequence[Process], counted: RequestMetricsCollector) -> None:
        """The run knows each request that the vendor took, unless a task died with its counts."""
        results = counted._results  # of the attempts that brought one
        if len(results) != len(workers):
            return
        for lookup in self._night.lookups:
            received = sum(self._vendor.received[worker, lookup] for worker in workers)
            sent = sum(one.requests[lookup].sent.total() for one in results if lookup in one.requests)
            if sent != received:
                scheduler().fail(f"{run} counts {sent} requests of {lookup}, and the vendor took {received}")

    # -- rows ----------------------------------------------------------------------------------------------------------
    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches that leave a task: each called answer in them is stored."""
        run = run_of(scheduler().me().process)
        for batch in batches:
            for place, lookup in enumerate(self._night.lookups):
                for key in _called(batch, place, lookup):
                    if (run, lookup, key) not in self._stored_by:
                        scheduler().fail(f"left its task before it was stored: {lookup} {key}")
            yield batch

    def check_day(self, run: str, rows: Sequence[Row], files: Sequence[str], *, is_quiet: bool) -> None:
        """Each row once, in order, with the value of a charged call."""
        night = scheduler()
        found = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).to_pylist()
        if sorted(row["id"] for row in found) != [row.number for row in rows]:
            night.fail(f"{run}: {len(found)} rows instead of {len(rows)}, or one twice")
            return
        if self._night.mode == "ordered":
            for part in range(self._night.tasks):
                order = [row["_input_seq"] for row in found if row["_partition"] == part]
                if order != sorted(order):
                    night.fail(f"{run}: task {part} is out of order: {order}")
        for row in found:
            for lookup in self._night.lookups:
                self._check_value(run, row, lookup, rows[row["id"]].keys[lookup], is_quiet=is_quiet)

    def _check_value(self, run: str, row: dict[str, Any], lookup: str, key: str | None, *, is_quiet: bool) -> None:
        night, status = scheduler(), row[f"_{lookup}_status"]
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
        if status in ANSWERED and not any(one.lookup == lookup and one.key == (key,) for one in self._vendor.invoice):
            night.fail(f"{run}: {lookup} {key} has an answer and was never charged")
        tried = [attempt for attempt in row[f"_{lookup}_attempts"] or () if not attempt["throttled"]]
        if len(tried) > 1 + LOOKUPS[lookup].retry.retries:
            night.fail(f"{run}: {lookup} {key} was tried {len(tried)} times")
        in_doubt = lookup in MARKED and status in ("unknown", "error", "timeout")
        if is_quiet and status not in ANSWERED and not in_doubt:
            night.fail(f"{run}: {lookup} {key} is {status} without a fault: {row[f'_{lookup}_error']}")

    # -- files ---------------------------------------------------------------------------------------------------------
    def check_forgotten(self, lookup: str, keys: Sequence[str]) -> None:
        """No file of the ledger contains a forgotten key."""
        texts = {text_of((key,)) for key in keys}
        for path, file in self._storage.files.items():
            if path.startswith(f"{LEDGER}/{lookup}/") and (found := _keys_in(path, file.data, texts)):
                scheduler().fail(f"forgotten and still there: {sorted(found)[:3]} in {path}")


def _called(batch: pa.RecordBatch, place: int, lookup: str) -> Iterator[str]:
    """The keys whose answers a batch of rows, or of prefetched keys, got by a call."""
    if f"_{lookup}_source" not in batch.schema.names:
        return
    calls = zip(batch[f"_{lookup}_source"].to_pylist(), batch[f"_{lookup}_status"].to_pylist(), strict=True)
    if PLACE in batch.schema.names:
        places = batch[PLACE].to_pylist()
        keys = [text if at == place else None for text, at in zip(batch[TEXT].to_pylist(), places, strict=True)]
    elif f"_{lookup}_key" in batch.schema.names:
        keys = [text_of(tuple(key.values())) for key in batch[f"_{lookup}_key"].to_pylist()]
    else:
        return
    for key, (source, status) in zip(keys, calls, strict=True):
        if key is not None and source == "call" and status in ANSWERED:
            yield key


def _keys_in(path: str, data: bytes, texts: set[str]) -> set[str]:
    if path.endswith(".parquet"):
        try:
            return texts & set(pq.read_table(pa.BufferReader(data), columns=["key"])["key"].to_pylist())
        except pa.ArrowInvalid:
            pass
    as_json = {text: text.replace('"', '\\"') for text in texts}
    return {text for text in texts if text.encode() in data or as_json[text].encode() in data}


def _shortest_timeout() -> float:
    return min(float(lookup.timeout or 0.0) for lookup in LOOKUPS.values()) - 1.0
