"""Runs the one task of a small run in the driver itself, where to start one of Spark's workers takes longer than its
rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.input.file_rows import ROWS_AT_ONCE
from jobs.run.local_master import is_local
from jobs.run.spark_facts import is_remote, setting
from jobs.task.link_protocol import PARTITION_OF_FRAME, DriverAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.run.engines import Engine
    from jobs.task.plan import PartitionPlan

ROWS = 10_000  # at most, of an input
NO_STAGE = -1

_log = logging.getLogger("tidegate")


@dataclass(frozen=True)
class DriverTask:
    """What a task asks of its TaskContext."""

    attempt: int

    def partitionId(self) -> int:  # noqa: N802  # Spark's name for it
        return 0

    def stageId(self) -> int:  # noqa: N802
        return NO_STAGE

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt


def is_for_driver(spark: SparkSession, plan: PartitionPlan, *, rows: int, calls: bool) -> bool:
    """Whether the plan's one task, of an input of so many rows, is run by `results_here`.

    A user's code may end the process that it runs in, or block it, so that it stays in a worker. On a cluster calls
    do too: its executors may be all that reaches a service.
    """
    if plan.reads is None or len(plan.shares[0]) > 1 or rows > ROWS or is_remote(spark):
        return False
    of_user = (AsyncFunctionLookup, CoroutineLookup) if calls else AsyncFunctionLookup  # which opens without a call
    if any(isinstance(lookup, of_user) for lookup in plan.lookups):
        return False
    return not calls or is_local(setting(spark, "spark.master"))


def results_here(
    engine: Engine,
    task: Callable[[Iterator[pa.RecordBatch], DriverTask], Iterator[pa.RecordBatch]],
    rows: pa.Table,
    address: DriverAddress,
) -> list[dict[str, Any]]:
    """The rows that the task gives for `rows`, tried again as Spark would. Raises the last attempt's error.

    address: under which the task tells the coordinator of a failure that a retry would repeat.
    """
    rows = rows.append_column(PARTITION_OF_FRAME, pa.array([0] * rows.num_rows, pa.int32()))
    for attempt in range(engine.attempts):
        try:
            given = task(iter(rows.to_batches(max_chunksize=ROWS_AT_ONCE)), DriverTask(attempt))
            return [row for batch in given for row in batch.to_pylist()]
        except Exception:
            if attempt + 1 == engine.attempts or engine.coordinator.has_failed(address):
                raise
            _log.warning("the task is tried again", exc_info=True)
    raise AssertionError
