"""What must hold in every night, checked where it happens."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.keys import key_text
from jobs.run.key_columns import TEXT
from jobs.run.prefetch_task import PLACE
from tests.simulation.declared import IN_FLIGHT, LEDGER, LOOKUPS, Row
from tests.simulation.disk import Storage
from tests.simulation.night_at_work import scheduler
from tests.simulation.scheduler import Process
from tests.simulation.vendor import Charge, Request, Vendor

ANSWERED = ("ok", "miss")
NOT_REPEATABLE = {lookup.name for lookup in LOOKUPS if not lookup.repeatable}


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

    def __init__(self, vendor: Vendor, storage: Storage, tasks: int, mode: str) -> None:
        self._vendor, self._storage, self._tasks, self._mode = vendor, storage, tasks, mode
        self._stored_at: dict[tuple[str, str], float] = {}
        self._stored_by: set[tuple[str, str, str]] = set()
        self._marked: set[tuple[str, str]] = set()
        self._began: dict[Process, float] = {}
        self.last_power_cut = -1.0
        self.disk_failed = False
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
                self._stored_at.setdefault((lookup, key), scheduler().now)
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
        stored_at, began = self._stored_at.get((lookup, text_of(key))), self._began.get(request.process, 0.0)
        if stored_at is not None and stored_at < began:
            begun = f"{request.process}, begun {began:.4f}"
            night.fail(f"stored and asked again: {lookup} {key}, stored {stored_at:.4f}, by {begun}")
        if lookup in NOT_REPEATABLE:
            if (lookup, text_of(key)) not in self._marked:
                night.fail(f"asked without a mark: {lookup} {key} by {request.process}")
            return
        for charge in self._vendor.charges(lookup, key):
            if not self._may_repeat(charge, request, stored_at):
                night.fail(
                    f"asked twice: {lookup} {key} by {request.process}; charged {charge.charged_at:.4f} for "
                    f"{charge.process}, answered {charge.due_at:.4f}, stored {stored_at}"
                )

    def _may_repeat(self, charge: Charge, request: Request, stored_at: float | None) -> bool:
        lost_in_flight = charge.process.is_dead and stored_at is None
        timed_out = charge.due_at - charge.sent_at > _shortest_timeout()
        lost_by_the_disk = self.disk_failed or self.last_power_cut >= charge.charged_at
        return lost_in_flight or timed_out or lost_by_the_disk or charge.process is request.process

    def check_charge(self, charge: Charge) -> None:
        """No second charge where it must not be."""
        before = self._vendor.charges(charge.lookup, charge.key) if charge.lookup in NOT_REPEATABLE else []
        if before:
            scheduler().fail(
                f"charged twice: {charge.lookup} {charge.key} by {charge.process}; first {before[0].charged_at:.4f} "
                f"for {before[0].process}"
            )

    def check_in_flight(self, run: str, lookup: str, in_flight: int) -> None:
        if in_flight > IN_FLIGHT[lookup]:
            scheduler().fail(f"{in_flight} calls of {lookup} at once by {run}, where {IN_FLIGHT[lookup]} are allowed")

    # -- rows ----------------------------------------------------------------------------------------------------------
    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches that leave a task: each called answer in them is stored."""
        run = run_of(scheduler().me().process)
        for batch in batches:
            for place, lookup in enumerate(LOOKUPS):
                for key in _called(batch, place, lookup.name):
                    if (run, lookup.name, key) not in self._stored_by:
                        scheduler().fail(f"left its task before it was stored: {lookup.name} {key}")
            yield batch

    def check_day(self, run: str, rows: Sequence[Row], files: Sequence[str], *, is_quiet: bool) -> None:
        """Each row once, in order, with the value of a charged call."""
        night = scheduler()
        found = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).to_pylist()
        if sorted(row["id"] for row in found) != [row.number for row in rows]:
            night.fail(f"{run}: {len(found)} rows instead of {len(rows)}, or one twice")
            return
        if self._mode == "ordered":
            for part in range(self._tasks):
                order = [row["_input_seq"] for row in found if row["_partition"] == part]
                if order != sorted(order):
                    night.fail(f"{run}: task {part} is out of order: {order}")
        for row in found:
            for lookup in LOOKUPS:
                self._check_value(run, row, lookup.name, rows[row["id"]].key(lookup.name), is_quiet=is_quiet)

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
        in_doubt = lookup in NOT_REPEATABLE and status in ("unknown", "error", "timeout")
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
    return min(float(lookup.timeout or 0.0) for lookup in LOOKUPS) - 1.0
