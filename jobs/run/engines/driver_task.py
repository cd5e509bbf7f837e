"""Decides whether the driver itself runs the only task of a small run, because starting a Spark
worker takes longer than processing its rows.
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
    """Return whether the plan's only task, for an input of so many rows, runs in the driver.

    A user's code may end or block the process that runs it, so it stays in a worker. On a cluster
    calls do too: perhaps only its executors can reach a service.
    """
    if plan.reads is None or len(plan.shares[0]) > 1 or rows > ROWS or is_remote(spark):
        return False
    # a function lookup opens even without a call
    of_user = (AsyncFunctionLookup, CoroutineLookup) if calls else AsyncFunctionLookup
    if any(isinstance(lookup, of_user) for lookup in plan.lookups):
        return False
    return not calls or is_local(setting(spark, "spark.master"))
