"""The key prefetch in a task: executors import this module, which imports nothing of the driver."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.run.keys.claims.claims import Claims
from jobs.run.keys.claims.task_keys import SharedLookup
from jobs.run.keys.key_texts import TEXT
from jobs.task.link.driver_link import TaskFacts
from jobs.task.plan import PartitionPlan
from jobs.task.runner import run_partition

PLACE = "__key_place"  # int: of the lookup in the plan


@dataclass(frozen=True)
class SharedKeys:
    """The lookups with a ledger, by their place in the plan of the rows.

    Attributes:
        alone: No other run was registered when this run began, so that later runs leave it its
            keys.
    """

    lookups: dict[int, SharedLookup]
    alone: bool
    seed: int


def run_prefetch(
    shared: SharedKeys,
    plan: PartitionPlan,
    batches: Iterator[pa.RecordBatch],
    task: TaskFacts | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run in mapInArrow: take keys, yield called and stored keys. task: None for Spark's."""
    from pyspark import TaskContext

    task = task or TaskContext.get()
    number, attempt = (task.partitionId(), task.attemptNumber()) if task else (0, 0)
    if not shared.lookups or (shared.alone and not attempt):
        yield from run_partition(plan, batches, task)
        return
    claims = Claims(shared.lookups, number, attempt, text=TEXT, place=PLACE, seed=shared.seed)
    try:
        for batch in run_partition(plan, claims.take(batches), task):
            claims.finished(batch)
            yield batch
    finally:
        claims.end()
