"""The coordinator of this driver process: a single one, like its SparkContext or Connect server."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.coordinator.link_server import ANY_PORT, link_ports
from jobs.run.engines.local_master import LOOPBACK
from jobs.run.engines.spark_facts import hosts_for_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_coordinator: DriverCoordinator | None = None
_opening = threading.Lock()


def open_coordinator(spark: SparkSession) -> DriverCoordinator:
    """Return this driver's coordinator, opened at first use; on loopback for local tasks."""
    global _coordinator  # noqa: PLW0603  # enrich(df) has no other way to it
    with _opening:
        if _coordinator is None:
            host, bind_host = hosts_for_tasks(spark)
            ports = ANY_PORT if host == LOOPBACK else link_ports()
            _coordinator = DriverCoordinator(
                host, bind_host, _is_active, cancel=_cancel, ports=ports
            )
        return _coordinator


def _is_active(stage: int) -> bool:
    """Return whether Spark works on this stage. False if Spark does not answer because it is
    ending, and over Spark Connect, which knows no stages: there the end of this process ends the
    tasks' calls.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001  # the driver's context, from another thread
    try:
        return context is not None and stage in context.statusTracker().getActiveStageIds()
    except Exception:  # noqa: BLE001  # Py4J raises many: the JVM has been killed, or its context is stopped
        return False


def _cancel(stage: int, reason: str) -> None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001
    # as in _is_active; Spark then retries the task, which fails at its hello
    with suppress(Exception):
        if context is not None:
            context._jsc.sc().cancelStage(stage, reason)  # noqa: SLF001  # PySpark has no public call
