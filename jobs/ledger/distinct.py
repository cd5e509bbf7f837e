"""The distinct-key plan: each key that the ledger does not know is asked once for the whole job, before the rows.

An ordinary task shares calls within its own partition only. Here the keys of all partitions are asked first, each
once, by the same operators with the same limits; then every row finds its answer, and the audit of a call stands at
one row of its key.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from jobs import schema
from jobs.bridge.partition import PartitionPlan
from jobs.enrich import carry_out
from jobs.ledger.asked_once import write_asked_once
from jobs.ledger.claims import Claims
from jobs.ledger.day_keys import TASK, TEXT
from jobs.ledger.hits import Hits, file_of_run, run_of_keys, with_index, with_own_answers

if TYPE_CHECKING:
    from jobs.ledger.task_plan import CallCap, LedgerPlan
    from jobs.lookups import Lookup
    from jobs.sent_requests import SentRequests

ROWS_PER_KEY = 2  # fewer, and sharing within each task saves nearly as much without a phase of its own
MODES = ("unordered", "ordered")
PLACE = "__key_place"  # int: of the lookup in the plan
BY_ROW = "row"
OUTCOME = (schema.status, schema.source, schema.error, schema.attempts, schema.latency_ms, schema.paused_ms)


def may_ask_keys_first(lookup: Lookup, mode: str) -> bool:
    """Whether the declared mode and cache allow it at all."""
    return mode in MODES and lookup.cache is not None


def asks_keys_first(lookup: Lookup, mode: str, tasks: int, hits: Hits, others: Sequence[str]) -> bool:
    """The rule: the mode is unordered or ordered, calls may be shared (a cache), keys are missing, and either keys
    repeat (at least 2 rows for each) in more than one task, or other runs ask the same service meanwhile.
    """
    repeated = tasks > 1 and hits.rows >= ROWS_PER_KEY * hits.keys
    return may_ask_keys_first(lookup, mode) and hits.missing > 0 and (repeated or bool(others))


def said_of(hits: Hits) -> str:
    """For the run's record."""
    return f"distinct keys: {hits.keys:,} of {hits.rows:,} rows"


@dataclass(frozen=True)
class PlanOfKeys(PartitionPlan):
    """What a task of the first phase needs to know: also who else asks the same keys meanwhile."""

    sharing: dict[int, LedgerPlan] = field(default_factory=dict)  # by the lookup's place in the run
    others: dict[int, tuple[str, ...]] = field(default_factory=dict)  # runs that lived when this one began
    seed: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Keys in, one row for each that was asked or is in the ledger out."""
        from pyspark import TaskContext

        task = TaskContext.get()
        number = task.partitionId() if task else 0
        claims = Claims(self.sharing, self.others, number, text=TEXT, place=PLACE, seed=self.seed)
        try:
            for batch in super().__call__(claims.take(batches)):
                claims.finished(batch)
                yield batch
        finally:
            claims.end()


def ask_keys(
    plan: PartitionPlan,
    hits: dict[int, Hits],
    others: dict[int, list[str]],
    *,
    seed: int,
    scratch: Path,
    sent: SentRequests | None = None,
) -> PartitionPlan:
    """Ask every missing key once, all lookups side by side; the plan for the rows, which calls for none of them again.

    hits, others: by the lookup's place in the plan. seed: of this run, which asks in an order of its own. scratch: a
    folder that does not exist yet, for what became of the keys; gone at the end. sent: told of the requests.
    Raises what the tasks raise: RunStopped, RowFailed, LedgerError. What was answered until then is in the ledger.
    """
    places = sorted(hits)
    tasks = len(plan.shares[0])
    try:
        asking = _plan_of_keys(plan, places)
        asking = replace(
            asking,
            sharing={place: hits[place].plan for place in places},
            others={place: tuple(others[place]) for place in places},
            seed=seed,
        )
        frame = _frame(hits, tasks=tasks)
        wanted = [TEXT, PLACE, *schema.SOURCE_IDENTITY, schema.PARTITION]
        wanted += [column(plan.lookups[place].name) for place in places for column in OUTCOME]
        carry_out(frame, asking, sent).select(*wanted).write.parquet(str(scratch))
        asked = pq.read_table(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    ledgers = list(plan.ledgers)
    for place in places:
        ledgers[place] = _with_outcomes(hits[place], asked, plan.lookups[place].name, place)
    return replace(plan, ledgers=tuple(ledgers), cap=_left(plan, places, asked))


def _plan_of_keys(plan: PartitionPlan, places: Sequence[int]) -> PlanOfKeys:
    """The plan of the first phase: rows are keys, and each is asked at one of the lookups."""
    layout = replace(
        plan.layout,
        carried=(TEXT, PLACE, *schema.SOURCE_IDENTITY),
        keys=tuple(plan.layout.keys[place] for place in places),
        order_key=(),
        event_time=None,
        lookups=tuple(plan.layout.lookups[place] for place in places),
        answers=tuple(plan.layout.answers[place] for place in places),
        key_names=tuple(plan.layout.key_names[place] for place in places),
    )
    cap = plan.cap and replace(plan.cap, weights=tuple(plan.cap.weights[place] for place in places))
    changed = replace(
        plan,
        # a row has the key of one lookup only: at the others it is null, whatever they say of null keys
        lookups=tuple(replace(plan.lookups[place], on_null_key="skip") for place in places),
        shares=tuple(plan.shares[place] for place in places),
        ledgers=tuple(_of_phase(plan.ledgers[place]) for place in places),
        mode="unordered",
        unit="keys",
        layout=layout,
        cap=cap,
    )
    return PlanOfKeys(**{one.name: getattr(changed, one.name) for one in fields(changed)})


def _of_phase(ledger: LedgerPlan | None) -> LedgerPlan:
    """Parts under a name of their own: a task of the rows takes those under its own for a dead attempt's."""
    assert ledger is not None
    return replace(ledger, run_id=run_of_keys(ledger.run_id))


def _frame(hits: dict[int, Hits], *, tasks: int) -> DataFrame:
    """All keys, each in the partition of the row that will show its call: so the calls of a task stay within its
    share of calls in flight also where the audit shows them.
    """
    types = {
        field.name: field.dataType for one in hits.values() for field in one.frame.schema if field.name in one.names
    }
    frames = []
    for place, one in hits.items():
        keys = [
            F.col(name) if name in one.names else F.lit(None).cast(kind).alias(name) for name, kind in types.items()
        ]
        frames.append(one.frame.select(TEXT, F.lit(place).alias(PLACE), *schema.SOURCE_IDENTITY, TASK, *keys))
    together = reduce(DataFrame.unionByName, frames)
    return together.repartitionById(tasks, F.col(TASK)).drop(TASK)


def _with_outcomes(hits: Hits, asked: pa.Table, name: str, place: int) -> LedgerPlan:
    """The ledger's plan for the rows: what the ledger knows now, and what became of the keys that were asked."""
    own = asked.filter(pc.equal(asked[PLACE], place))
    called = pc.not_equal(pc.fill_null(own[schema.source(name)], "call"), "ledger")
    own = own.filter(called)
    plan = with_index(hits.plan, with_own_answers(hits))
    if not own.num_rows:
        return plan
    path = file_of_run(plan, "asked.arrow")
    columns = {
        "key": TEXT,
        "outcome": schema.status(name),
        "error": schema.error(name),
        "attempts": schema.attempts(name),
        "latency_ms": schema.latency_ms(name),
        "paused_ms": schema.paused_ms(name),
        "source_file": schema.SOURCE_FILE,
        "source_row": schema.SOURCE_ROW,
    }
    write_asked_once(path, pa.table({to: own[column] for to, column in columns.items()}))
    return replace(plan, asked_once=path)


def _left(plan: PartitionPlan, places: Sequence[int], asked: pa.Table) -> CallCap | None:
    """What each task may still spend once the keys were asked."""
    if plan.cap is None:
        return None
    left = list(plan.cap.parts)
    tasks = asked[schema.PARTITION].to_numpy()
    for place in places:
        calls = pc.list_value_length(asked[schema.attempts(plan.lookups[place].name)]).to_numpy()
        for task in range(len(left)):
            left[task] -= plan.cap.weights[place] * float(calls[tasks == task].sum())
    return replace(plan.cap, parts=tuple(max(0.0, part) for part in left))
