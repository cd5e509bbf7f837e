"""Counts a day's metrics from its files by Arrow: a second less than by Spark for few rows."""

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
from pyarrow import fs

from jobs.declare.values.prices import cost_of, in_force, reported_units
from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.ledger.answers import ANSWERS, ENCODED
from jobs.ledger.keys import joined, key_hashes, texts_in
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.scan import read_parts
from jobs.run.engines.stages import Stage, ThreadStage
from jobs.run.keys.hits import open_folder, run_of_keys
from jobs.schema import columns as schema
from jobs.schema.records import DayMetrics, DeclaredFacts, LookupFacts, LookupMetrics
from jobs.storage.parquet_files import open_parquet
from jobs.tables.records import run_bills
from jobs.task.plan import PartitionPlan

ANSWERED = pa.array(["ok", "miss"])
FOR_EVER = np.iinfo(np.int64).max  # µs
KEYS_WAITING = 1_000_000


def count(
    files: Sequence[str],
    declared: DeclaredFacts,
    *,
    rows_in: int,
    job_s: float,
    stage: Stage | None = None,
) -> DayMetrics:
    """Counts the figures of the day whose rows are in `files`, with a task of the stage per file.

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


class _Keys:
    """Hashes of keys, each once."""

    def __init__(self) -> None:
        self._once = np.empty(0, np.uint64)
        self._more: list[npt.NDArray[np.uint64]] = []
        self._waiting = 0

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        self._more.append(hashes)
        self._waiting += len(hashes)
        # so that each hash is sorted only a few times
        if self._waiting > max(KEYS_WAITING, len(self._once)):
            self.once()

    def once(self) -> npt.NDArray[np.uint64]:
        hashes = np.concatenate([self._once, *self._more])
        # without counts it hashes: 30 times as slow
        self._once, _ = np.unique(hashes, return_counts=True)
        self._more, self._waiting = [], 0
        return self._once

    @classmethod
    def together(cls, parts: Iterable[_Keys]) -> int:
        whole = cls()
        for part in parts:
            whole.add(part.once())
        return len(whole.once())


@dataclass
class _LookupCounts:
    outcomes: Counter[str | None] = field(default_factory=Counter)
    sources: Counter[str | None] = field(default_factory=Counter)
    answered: int = 0  # by calls of these rows
    calls: Counter[int] = field(default_factory=Counter)  # rows by their number of attempts
    throttled: int = 0
    spent: int = 0  # µs of all attempts
    first: int = FOR_EVER
    last: int = 0
    oldest: int = FOR_EVER
    # ms, of answered rows that were called
    latencies: list[npt.NDArray[np.float64]] = field(default_factory=list)
    called: _Keys = field(default_factory=_Keys)
    known: _Keys = field(default_factory=_Keys)

    def add(self, rows: pa.Table, lookup: LookupFacts) -> None:
        status, source, attempts, latency, answered_at = (
            rows[column(lookup.name)].combine_chunks()
            for column in (
                schema.status, schema.source, schema.attempts, schema.latency_ms,
                schema.published_answered_at,
            )
        )  # fmt: skip
        is_answered, is_called = pc.is_in(status, value_set=ANSWERED), pc.equal(source, "call")
        counts = pc.list_value_length(attempts)
        start, end, throttled = (
            pc.struct_field(attempts.flatten(), name) for name in ("start", "end", "throttled")
        )
        self.outcomes += _by_value(status)
        self.sources += _by_value(source)
        self.calls += _by_value(counts)
        self.answered += pc.sum(pc.and_(is_answered, is_called)).as_py() or 0
        self.throttled += pc.sum(throttled).as_py() or 0
        self.spent += pc.sum(pc.subtract(end, start)).as_py() or 0
        self.first = min(self.first, pc.min(start).as_py() or FOR_EVER)
        self.last = max(self.last, pc.max(end).as_py() or 0)
        self.oldest = min(self.oldest, pc.min(_in_micros(answered_at)).as_py() or FOR_EVER)
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
        there = set(file.schema_arrow.names)
        columns = [name for name in (schema.LATE, *_columns(declared)) if name in there]
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=columns)
            counted.rows += rows.num_rows
            counted.late += pc.sum(rows[schema.LATE]).as_py() or 0
            for counts, lookup in zip(counted.lookups, declared.lookups, strict=True):
                counts.add(rows, lookup)
    return counted


def _columns(declared: DeclaredFacts) -> list[str]:
    of_lookup = (
        schema.status, schema.source, schema.attempts, schema.latency_ms,
        schema.published_answered_at, schema.key,
    )  # fmt: skip
    return [column(lookup.name) for lookup in declared.lookups for column in of_lookup]


def _hashes(keys: pa.ChunkedArray, wanted: pa.Array) -> npt.NDArray[np.uint64]:
    found = keys.combine_chunks().filter(wanted)
    if not len(found):
        return np.empty(0, np.uint64)
    parts = pa.RecordBatch.from_struct_array(found)
    values = read_key_tuples(parts, parts.schema.names, nulls=True)
    return np.unique(key_hashes(texts_in(joined(values), len(values)).to_pylist()))


def _by_value(column: pa.Array) -> Counter[Any]:
    return Counter({one["values"]: one["counts"] for one in column.value_counts().to_pylist()})


def _figures(lookup: LookupFacts, files: list[_LookupCounts]) -> LookupMetrics:
    outcomes, sources = (
        _together([one.outcomes for one in files]),
        _together([one.sources for one in files]),
    )
    calls = _together([one.calls for one in files])
    first, last = (
        min((one.first for one in files), default=0),
        max((one.last for one in files), default=0),
    )
    oldest = min((one.oldest for one in files), default=FOR_EVER)
    p50, p99 = _nearest_ranks(
        np.concatenate([np.empty(0), *(part for one in files for part in one.latencies)]),
        (0.5, 0.99),
    )
    rows_called = calls.total() - calls[0]
    known = _Keys.together(one.known for one in files)
    return LookupMetrics(
        name=lookup.name,
        outcomes={outcome: outcomes[outcome] for outcome in schema.OUTCOMES},
        calls=sum(attempts * rows for attempts, rows in calls.items()),
        retried=sum((attempts - 1) * rows for attempts, rows in calls.items() if attempts),
        wall_s=max(0, last - first) / 1e6,
        limit_s=sum(one.spent for one in files) / 1e6 / lookup.max_attempts_at_once,
        latency_p50_ms=p50,
        latency_p99_ms=p99,
        rows_called=rows_called,
        keys_called=_Keys.together(one.called for one in files) or None,
        from_ledger=sources["ledger"],
        keys_from_ledger=known,
        shared=sources["shared"],
        answered=sum(one.answered for one in files),
        # only what was saved: only the senders know what was billed, as a request may ask for many
        # keys, and a key may need many requests
        billed=replace(run_bills.billed(lookup, Counter()), saved=_saved(lookup, known))
        if lookup.prices
        else None,
        throttled=sum(one.throttled for one in files),
        oldest_answer_at=None if oldest == FOR_EVER else _moment(oldest),
    )


def _together(counts: list[Counter[Any]]) -> Counter[Any]:
    return sum(counts, Counter())


def _nearest_ranks(values: npt.NDArray[np.float64], shares: Sequence[float]) -> list[float | None]:
    """Returns the smallest value that each share of all values does not exceed, or None."""
    if not len(values):
        return [None] * len(shares)
    places = [max(0, math.ceil(share * len(values)) - 1) for share in shares]
    ordered = np.partition(values, places)
    return [float(ordered[place]) for place in places]


def _in_micros(moments: pa.Array) -> pa.Array:
    """Returns timestamps as µs since the epoch; Arrow reads files of Spark's writer in ns."""
    return moments.cast(pa.timestamp("us", moments.type.tz), safe=False).cast(pa.int64())


def _moment(micros: int) -> str:
    return dt.datetime.fromtimestamp(micros / 1e6, dt.UTC).isoformat(timespec="seconds")


def _saved(
    lookup: LookupFacts, keys: int, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
) -> str:
    if not keys or reported_units(lookup.prices):  # run_bills.with_saved
        return "0"
    prices = in_force(lookup.prices, now().date().isoformat())
    return f"{cost_of(prices, {'item': keys, 'request': -(-keys // lookup.batch_size)}):f}"


def with_stored(counted: DayMetrics, plan: PartitionPlan) -> DayMetrics:
    if not any(plan.ledgers):
        return counted
    ledgers = {
        lookup.name: ledger
        for lookup, ledger in zip(plan.lookups, plan.ledgers, strict=True)
        if ledger
    }
    files = {name: open_folder(ledger).files() for name, ledger in ledgers.items()}
    lookups = tuple(
        replace(one, stored=stored_by(ledgers[one.name], files[one.name]))
        for one in counted.lookups
    )
    size = sum(file.size or 0 for found in files.values() for file in found)
    return replace(counted, lookups=lookups, ledger_bytes=size)


def stored_by(ledger: LedgerPlan, files: Sequence[fs.FileInfo]) -> int:
    """Counts the answers and misses that the run stored. files: all of the lookup's ledger."""
    folder = open_folder(ledger)
    own = tuple(f"{run}/" for run in (ledger.run_id, run_of_keys(ledger.run_id)))
    parts = [part for part in folder.parts_among(files) if part.startswith(own)]
    tables = (table for _, table in read_parts(folder, parts, ENCODED) if table is not None)
    answers = pa.array(ANSWERS)
    return sum(
        pc.sum(pc.is_in(table["outcome"].cast(pa.string()), value_set=answers)).as_py() or 0
        for table in tables
    )
