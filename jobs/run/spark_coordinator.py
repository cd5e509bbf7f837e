"""The coordinator of this driver process: one, as there is one SparkContext."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from jobs.run.coordinator import DriverCoordinator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

_coordinator: DriverCoordinator | None = None
_opening = threading.Lock()


def coordinator_of(spark: SparkSession) -> DriverCoordinator:
    """This driver's coordinator, opened when it is first wanted; on loopback where all tasks are of this machine."""
    global _coordinator  # noqa: PLW0603  # enrich(df) has no other way to it
    with _opening:
        if _coordinator is None:
            context = spark.sparkContext
            conf = context.getConf()
            host = LOOPBACK if str(context.master).startswith("local") else conf.get("spark.driver.host", LOOPBACK)
            bind_host = host if host == LOOPBACK else conf.get("spark.driver.bindAddress", host)
            _coordinator = DriverCoordinator(host, bind_host, _is_active, cancel=_cancel)
        return _coordinator


def _is_active(stage: int) -> bool:
    """Whether Spark works on this stage; False if Spark does not answer, because it is ending."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001  # the driver's own, from another thread
    try:
        return context is not None and stage in context.statusTracker().getActiveStageIds()
    except Exception:  # noqa: BLE001  # Py4J raises many: the JVM has been killed, or its context is stopped
        return False


def _cancel(stage: int, reason: str) -> None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001
    with suppress(Exception):  # as _is_active; Spark then tries the task again, which fails at its hello
        if context is not None:
            context._jsc.sc().cancelStage(stage, reason)  # noqa: SLF001  # PySpark has no word for it
