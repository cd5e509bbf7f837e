"""Decides whether the driver itself runs the one task of a small run, because starting a worker of Spark takes longer
than its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.run.engines.local_master import is_local
from jobs.run.engines.spark_facts import is_remote, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.task.plan import PartitionPlan

ROWS = 10_000  # at most, of an input


def is_for_driver(spark: SparkSession, plan: PartitionPlan, *, rows: int, calls: bool) -> bool:
    """Whether the plan's one task, of an input of so many rows, runs in the driver.

    A user's code may end the process that it runs in, or block it, so that it stays in a worker. On a cluster calls
    do too: its executors may be all that reaches a service.
    """
    if plan.reads is None or len(plan.shares[0]) > 1 or rows > ROWS or is_remote(spark):
        return False
    of_user = (AsyncFunctionLookup, CoroutineLookup) if calls else AsyncFunctionLookup  # which opens without a call
    if any(isinstance(lookup, of_user) for lookup in plan.lookups):
        return False
    return not calls or is_local(setting(spark, "spark.master"))
