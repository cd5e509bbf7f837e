"""The Spark session of a day's run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from jobs.run.engines import local_master
from jobs.run.engines.spark_facts import count_slots, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# the master for which `tidegate run` and Dagster start the program
MASTER_VARIABLE = "TIDEGATE_STARTED_ON"
PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
OF_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # the window over the input is counted in whole batches
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # off: it uses the least and greatest values of a file, without NaN and with -0.0 below 0.0
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": "8",
}
# settings that stay as spark-submit was given them
OF_USER = ("spark.ui.enabled", "spark.python.daemon.module")
# Processes give back the memory of a batch; otherwise it grows with the rows, and in a stream with
# the batches: Arrow's allocator has a heap for each thread, and batches move between threads;
# without a bound glibc keeps ever larger blocks.
GIVING_BACK = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_TRIM_THRESHOLD_": "1048576"}
OF_APPLICATION = {  # settings that only the start of Spark can apply
    "spark.speculation": "false",  # a second copy of a task would repeat its calls
    "spark.ui.showConsoleProgress": "false",
    # records the caller of each expression: a fifth of planning
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    **{f"spark.executorEnv.{name}": value for name, value in GIVING_BACK.items()},
}


def session(name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers use another Python
    builder = SparkSession.builder.appName(f"tidegate {name}")
    settings = OF_SESSION if "SPARK_REMOTE" in os.environ else OF_SESSION | _application_settings()
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    keep_tasks(spark)
    return spark


def _application_settings() -> dict[str, str]:
    settings = dict(OF_APPLICATION)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit
        submitted = _submitted()
        settings |= local_master.start_settings(submitted.get("spark.master", ""))
        settings |= {key: submitted[key] for key in OF_USER if key in submitted}
    else:
        settings |= local_master.start_settings("local[*]")
        os.environ.update(local_master.jvm_environment("local[*]"))
    return settings


def keep_tasks(spark: SparkSession) -> None:
    """Make all reads of a day divide its files alike, because a task's keys must match its rows.

    Spark divides files by its slots at the moment, and executors may come between two reads.
    """
    if not setting(spark, PARALLELISM):
        spark.conf.set(PARALLELISM, str(count_slots(spark)))


def master_here() -> str:
    """Return the master of this program's Spark, which need not have started."""
    from pyspark import SparkContext

    if known := os.environ.get("SPARK_REMOTE") or os.environ.get(MASTER_VARIABLE):
        return known
    if (context := SparkContext._active_spark_context) is not None:  # noqa: SLF001
        return str(context.master)
    return (
        _submitted().get("spark.master", "") if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]"
    )


def _submitted() -> dict[str, str]:
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001  # starts the JVM, which knows the settings
    return dict(SparkConf().getAll())
