"""The key prefetch inside a task. Executors import this module, so it loads nothing that only the driver has."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.ledger.plan import LedgerPlan
from jobs.run.claims import Claims
from jobs.run.key_columns import HASH, TEXT
from jobs.task.driver_link import TaskFacts
from jobs.task.plan import PartitionPlan
from jobs.task.runner import run_partition

PLACE = "__key_place"  # int: of the lookup in the plan


@dataclass(frozen=True)
class SharedKeys:
    """Concurrent runs with the same keys; each by the lookup's place. others: runs that lived when this one began."""

    sharing: dict[int, LedgerPlan]
    others: dict[int, tuple[str, ...]]
    types: dict[int, str]
    seed: int


def run_prefetch(
    shared: SharedKeys, plan: PartitionPlan, batches: Iterator[pa.RecordBatch], task: TaskFacts | None = None
) -> Iterator[pa.RecordBatch]:
    """The function for mapInArrow: keys in; a row for each called or stored key out. task: None: Spark's."""
    from pyspark import TaskContext

    if not shared.sharing:
        yield from run_partition(plan, batches, task)
        return
    task = task or TaskContext.get()
    number = task.partitionId() if task else 0
    claims = Claims(
        shared.sharing, shared.others, number, text=TEXT, place=PLACE, hashed=HASH, types=shared.types, seed=shared.seed
    )
    try:
        for batch in run_partition(plan, claims.take(batches), task):
            claims.finished(batch)
            yield batch
    finally:
        claims.end()
