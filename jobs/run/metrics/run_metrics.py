"""Counts a day's metrics from its files by Arrow, which saves a second of Spark on small days."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import counts_by_value
from jobs.declare.values.prices import cost_of, in_force, reported_units
from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.ledger.answers import ANSWERS, ENCODED
from jobs.ledger.keys import key_hashes, texts_in_bulk
from jobs.ledger.plan import LedgerPlan, run_of_keys
from jobs.ledger.scan import read_parts
from jobs.run.engines.stages import Stage, ThreadStage
from jobs.schema import columns as schema
from jobs.schema.records import DayMetrics, DeclaredFacts, LookupFacts, LookupMetrics
from jobs.storage.parquet_files import open_parquet
from jobs.tables.records import run_bills
from jobs.task.plan import PartitionPlan

ANSWERED = pa.array(["ok", "miss"])
# of a lookup
COLUMNS = (
    schema.status,
    schema.source,
    schema.attempts,
    schema.latency_ms,
    schema.published_answered_at,
)
NEVER = np.iinfo(np.int64).max  # µs
HASHES_AT_ONCE = 1_000_000  # kept before they are merged


def count(
    files: Sequence[str],
    declared: DeclaredFacts,
    *,
    rows_in: int,
    job_s: float,
    stage: Stage | None = None,
) -> DayMetrics:
    """Count the figures of the day whose rows are in `files`, with a task of the stage per file.

    Memory: 8 bytes for each answered call, and at most 32 for each distinct key in each file that
    has it; tasks also hold a row group of some files.
    """
    counted = (stage or ThreadStage()).run(lambda file, _facts: _count_file(file, declared), files)
    return DayMetrics(
        rows_in=rows_in,
        rows_out=sum(of_file.rows for of_file in counted),
        rows_late=sum(of_file.late for of_file in counted),
        lookups=tuple(
            _figures(lookup, [of_file.lookups[place] for of_file in counted])
            for place, lookup in enumerate(declared.lookups)
        ),
        job_s=round(job_s, 3),
    )


class _DistinctHashes:
    """Hashes of keys, each once."""

    def __init__(self) -> None:
        self._merged = np.empty(0, np.uint64)
        self._added: list[npt.NDArray[np.uint64]] = []
        self._waiting = 0

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        self._added.append(hashes)
        self._waiting += len(hashes)
        # so that each hash is sorted only a few times
        if self._waiting > max(HASHES_AT_ONCE, len(self._merged)):
            self.merged()

    def merged(self) -> npt.NDArray[np.uint64]:
        hashes = np.concatenate([self._merged, *self._added])
        # return_counts makes np.unique sort; its hash table takes 30 times as long
        self._merged, _ = np.unique(hashes, return_counts=True)
        self._added, self._waiting = [], 0
        return self._merged

    @classmethod
    def count(cls, parts: Iterable[_DistinctHashes]) -> int:
        whole = cls()
        for part in parts:
            whole.add(part.merged())
        return len(whole.merged())


@dataclass
class _LookupCounts:
    outcomes: Counter[str | None] = field(default_factory=Counter)
    sources: Counter[str | None] = field(default_factory=Counter)
    answered: int = 0  # by calls of these rows
    rows_by_attempts: Counter[int] = field(default_factory=Counter)
    throttled: int = 0
    attempts_us: int = 0
    first_start: int = NEVER
    last_end: int = 0
    oldest_answer: int = NEVER
    # ms, of answered rows that were called: without a call there is no latency
    latencies: list[npt.NDArray[np.float64]] = field(default_factory=list)
    called: _DistinctHashes = field(default_factory=_DistinctHashes)
    known: _DistinctHashes = field(default_factory=_DistinctHashes)

    def add(self, rows: pa.Table, lookup: LookupFacts) -> None:
        status, source, attempts, latency, answered_at = (
            rows[column(lookup.name)].combine_chunks() for column in COLUMNS
        )
        is_answered, is_called = pc.is_in(status, value_set=ANSWERED), pc.equal(source, "call")
        counts = pc.list_value_length(attempts)
        start, end, throttled = (
            pc.struct_field(attempts.flatten(), name) for name in ("start", "end", "throttled")
        )
        self.outcomes += counts_by_value(status)
        self.sources += counts_by_value(source)
        self.rows_by_attempts += counts_by_value(counts)
        self.answered += pc.sum(pc.and_(is_answered, is_called)).as_py() or 0
        self.throttled += pc.sum(throttled).as_py() or 0
        self.attempts_us += pc.sum(pc.subtract(end, start)).as_py() or 0
        self.first_start = min(self.first_start, pc.min(start).as_py() or NEVER)
        self.last_end = max(self.last_end, pc.max(end).as_py() or 0)
        oldest = pc.min(_in_micros(answered_at)).as_py() or NEVER
        self.oldest_answer = min(self.oldest_answer, oldest)
        self.latencies.append(latency.filter(is_answered).drop_null().to_numpy())
        if (key := schema.key(lookup.name)) in rows.column_names:
            if lookup.asks_once:
                self.called.add(_hashes(rows[key], pc.greater(counts, 0)))
            if lookup.prices:
                self.known.add(_hashes(rows[key], pc.equal(source, "ledger")))


@dataclass
class _FileCounts:
    lookups: list[_LookupCounts]
    rows: int = 0
    late: int = 0


def _count_file(path: str, declared: DeclaredFacts) -> _FileCounts:
    counted = _FileCounts([_LookupCounts() for _ in declared.lookups])
    with open_parquet(path) as file:
        present = set(file.schema_arrow.names)
        columns = [name for name in (schema.LATE, *_columns(declared)) if name in present]
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=columns)
            counted.rows += rows.num_rows
            counted.late += pc.sum(rows[schema.LATE]).as_py() or 0
            for counts, lookup in zip(counted.lookups, declared.lookups, strict=True):
                counts.add(rows, lookup)
    return counted


def _columns(declared: DeclaredFacts) -> list[str]:
    columns = (*COLUMNS, schema.key)
    return [column(lookup.name) for lookup in declared.lookups for column in columns]


def _hashes(keys: pa.ChunkedArray, wanted: pa.Array) -> npt.NDArray[np.uint64]:
    found = keys.combine_chunks().filter(wanted)
    if not len(found):
        return np.empty(0, np.uint64)
    parts = pa.RecordBatch.from_struct_array(found)
    values = read_key_tuples(parts, parts.schema.names, nulls=True)
    return np.unique(key_hashes(texts_in_bulk(values)))


def _figures(lookup: LookupFacts, files: list[_LookupCounts]) -> LookupMetrics:
    outcomes = _sum([file.outcomes for file in files])
    sources = _sum([file.sources for file in files])
    rows_by_attempts = _sum([file.rows_by_attempts for file in files])
    first = min((file.first_start for file in files), default=0)
    last = max((file.last_end for file in files), default=0)
    oldest = min((file.oldest_answer for file in files), default=NEVER)
    p50, p99 = _nearest_ranks(
        np.concatenate([np.empty(0), *(part for file in files for part in file.latencies)]),
        (0.5, 0.99),
    )
    rows_called = rows_by_attempts.total() - rows_by_attempts[0]
    known = _DistinctHashes.count(file.known for file in files)
    return LookupMetrics(
        name=lookup.name,
        outcomes={outcome: outcomes[outcome] for outcome in schema.OUTCOMES},
        calls=sum(attempts * rows for attempts, rows in rows_by_attempts.items()),
        retried=sum(
            (attempts - 1) * rows for attempts, rows in rows_by_attempts.items() if attempts
        ),
        wall_s=max(0, last - first) / 1e6,
        limit_s=sum(file.attempts_us for file in files) / 1e6 / lookup.max_attempts_at_once,
        latency_p50_ms=p50,
        latency_p99_ms=p99,
        rows_called=rows_called,
        keys_called=_DistinctHashes.count(file.called for file in files) or None,
        from_ledger=sources["ledger"],
        keys_from_ledger=known,
        shared=sources["shared"],
        answered=sum(file.answered for file in files),
        # the cost stays 0 here: only the tasks' meters know what was sent (run_bills.with_bill)
        billed=replace(run_bills.billed(lookup, Counter()), saved=_saved(lookup, known))
        if lookup.prices
        else None,
        throttled=sum(file.throttled for file in files),
        oldest_answer_at=None if oldest == NEVER else _moment(oldest),
    )


def unanswered(figures: DayMetrics, declared: DeclaredFacts) -> tuple[str, ...]:
    """Return a sentence for each lookup without an answer in any row, by an address or a key that
    may be wrong; none for a vendor that follows another, which may never be needed.
    """
    spare = {vendor for choice in declared.choices for vendor in choice.vendors[1:]}
    found = []
    for lookup in figures.lookups:
        rows, skipped = sum(lookup.outcomes.values()), lookup.outcomes["skipped"]
        if not rows or lookup.name in spare:
            continue
        if skipped == rows:
            reason = "a key of each is null or its condition does not hold"
            found.append(f"{lookup.name} skipped all rows: {reason}")
        elif skipped + lookup.outcomes["miss"] == rows:
            reason = "is the address right, and the request?"
            found.append(f"{lookup.name} has no answer, each row that asked is a miss: {reason}")
    return tuple(found)


def _sum(counts: list[Counter[Any]]) -> Counter[Any]:
    return sum(counts, Counter())


def _nearest_ranks(values: npt.NDArray[np.float64], shares: Sequence[float]) -> list[float | None]:
    """Return the smallest value that each share of all values does not exceed, or None."""
    if not len(values):
        return [None] * len(shares)
    places = [max(0, math.ceil(share * len(values)) - 1) for share in shares]
    ordered = np.partition(values, places)
    return [float(ordered[place]) for place in places]


def _in_micros(moments: pa.Array) -> pa.Array:
    """Return timestamps as µs since the epoch; Arrow reads files of Spark's writer in ns."""
    return moments.cast(pa.timestamp("us", moments.type.tz), safe=False).cast(pa.int64())


def _moment(micros: int) -> str:
    return dt.datetime.fromtimestamp(micros / 1e6, dt.UTC).isoformat(timespec="seconds")


def _saved(
    lookup: LookupFacts, keys: int, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
) -> str:
    if not keys or reported_units(lookup.prices):  # priced later, by run_bills.with_saved
        return "0"
    prices = in_force(lookup.prices, now().date().isoformat())
    return f"{cost_of(prices, {'item': keys, 'request': -(-keys // lookup.batch_size)}):f}"


def with_stored(counted: DayMetrics, plan: PartitionPlan) -> DayMetrics:
    """Return the metrics with what the run stored in its ledgers."""
    if not any(plan.ledgers):
        return counted
    stored = {
        lookup.name: stored_by(ledger)
        for lookup, ledger in zip(plan.lookups, plan.ledgers, strict=True)
        if ledger
    }
    lookups = tuple(replace(lookup, stored=stored[lookup.name]) for lookup in counted.lookups)
    return replace(counted, lookups=lookups)


def stored_by(ledger: LedgerPlan) -> int:
    """Count the answers and misses that the run stored."""
    folder, run_ids = ledger.open_folder(), (ledger.run_id, run_of_keys(ledger.run_id))
    parts = [part for run in run_ids for part in folder.parts(run)]
    tables = (table for _, table in read_parts(folder, parts, ENCODED))
    answers = pa.array(ANSWERS)
    return sum(
        pc.sum(pc.is_in(table["outcome"].cast(pa.string()), value_set=answers)).as_py() or 0
        for table in tables
    )
