"""What a task needs to know of the ledger and of the calls it may make: plain data that travels to the executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.ledger.declared import Ttl


@dataclass(frozen=True)
class LedgerPlan:
    """The ledger of one lookup, for one run.

    The driver makes one per lookup and fills in `index` (jobs/ledger/hits.py): the answers that the ledger holds for
    the keys of this run. A task adds what earlier attempts of its own partition stored in this run.
    """

    root: str  # absolute folder or URL
    lookup: str
    fingerprint: str  # of the request: jobs/ledger/requests.py
    run_id: str  # names this run's parts: parts/<run_id>/<partition>-<attempt>-<seq>.parquet
    ttl: Ttl  # already FOR_EVER where the run ignores it
    flush_rows: int
    flush_seconds: float
    hidden: bool = False  # key texts are hashed: a key reads a pii column
    idempotent: bool = True  # False: a mark is stored before each call; a mark without an answer means unknown
    # Path of the index file as an executor opens it; a bare file name is one that SparkContext.addFile brought.
    index: str | None = None
    # The same for the file of jobs/ledger/distinct.py: what became of each key that was asked once for the whole job.
    asked_once: str | None = None


@dataclass(frozen=True)
class CallCap:
    """What a run may spend on calls, each attempt counted; a task that has spent its part stops the run.

    parts: per partition, by number. weights: per lookup, what one attempt costs (1 for calls, a price for money).
    """

    said: str  # as the user wrote it, for the sentence: "max_calls 500"
    parts: tuple[float, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AskedKey:
    """What became of a key that was asked once for the whole job; its answer, if it has one, stands in the index.

    The audit of its call stands at one row, the first of the input with this key; the others say source "shared".
    """

    outcome: str
    error: str | None
    attempts: tuple[tuple[int, int, bool], ...]  # start, end (µs since the epoch), throttled
    latency_ms: float | None
    paused_ms: float | None
    source_file: str | None  # of the row where the audit stands
    source_row: int | None


class AskedKeys(Protocol):
    """The file `asked_once` as a task reads it, memory-mapped: `AskedOnce.open(path)` in jobs/ledger/distinct.py."""

    def find_many(self, texts: Sequence[str | None]) -> list[AskedKey | None]: ...
