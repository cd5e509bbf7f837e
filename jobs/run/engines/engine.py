"""The engines that run the tasks of a run: Spark, or this process.

An engine provides the stages that run tasks, and the driver's coordinator. Everything below a task
is the same code on each engine.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from jobs.errors import DeclarationError
from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.engines import spark_coordinator
from jobs.run.engines.local_master import ATTEMPTS, LOOPBACK, allowed_task_attempts, is_local
from jobs.run.engines.spark_facts import count_slots, is_remote, setting
from jobs.run.engines.spark_session import master_here
from jobs.run.engines.stages import ProcessStage, SparkStage, Stage, ThreadStage
from jobs.storage.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from jobs.task.link.link_protocol import DriverAddress

ENGINE = "TIDEGATE_ENGINE"  # variable of the environment
SPARK, LOCAL = "spark", "local"
ROWS_IN_DRIVER = 250_000  # up to which the driver reads the files: workers would cost more


class SparkEngine:
    """Runs tasks on Spark: on this machine, or on a cluster."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def name(self) -> str:
        """The run's name, as holders of leases see it."""
        return setting(self.spark, "spark.app.name")

    @property
    def is_elsewhere(self) -> bool:
        """Whether tasks run on other machines than the driver."""
        return is_remote(self.spark) or not is_local(setting(self.spark, "spark.master"))

    @property
    def coordinator(self) -> DriverCoordinator:
        """The driver's side of the tasks' links."""
        return spark_coordinator.open_coordinator(self.spark)

    @property
    def slots(self) -> int:
        """The tasks that run at once."""
        return count_slots(self.spark)

    def file_stage(self, files: Sequence[str], rows: int = 0) -> Stage:
        """Return a stage over a run's files. Spark's tasks read files on a store, and files with
        more rows than ROWS_IN_DRIVER together; the driver reads the others.
        """
        on_store = self.is_elsewhere and any(map(is_url, files))
        return SparkStage(self.spark) if on_store or rows > ROWS_IN_DRIVER else ThreadStage()

    def stage(self, address: DriverAddress | None = None, *, here: bool = False) -> Stage:
        """Return a stage whose tasks register at an address, or at none; `here` if they run in this
        process.
        """
        if not here:
            return SparkStage(self.spark)
        return _stage_here(
            self, address, allowed_task_attempts(setting(self.spark, "spark.master"))
        )


class LocalEngine:
    """Runs the tasks of a run in this process, one after the other, without Java."""

    is_elsewhere = False
    slots = 1
    spark = None

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def coordinator(self) -> DriverCoordinator:
        """The driver's side of the tasks' links: one for this process."""
        global _coordinator  # noqa: PLW0603
        with _opening:
            if _coordinator is None or not _coordinator.is_here:
                # a task of this process ends with it: no stage can end before its tasks
                _coordinator = DriverCoordinator(LOOPBACK, LOOPBACK, lambda _stage: True)
            return _coordinator

    def file_stage(self, files: Sequence[str], rows: int = 0) -> Stage:  # noqa: ARG002  # as Spark's
        return ThreadStage()

    def stage(self, address: DriverAddress | None = None, *, here: bool = True) -> Stage:  # noqa: ARG002  # it is here
        return _stage_here(self, address, ATTEMPTS)


Engine = SparkEngine | LocalEngine  # runs the tasks of a run


def chosen_engine(option: str | None) -> str:
    """Return the engine that an option of a command, or else the environment, chooses.

    Raises:
        DeclarationError: The engine does not exist.
    """
    chosen = option or os.environ.get(ENGINE) or SPARK
    if chosen not in (SPARK, LOCAL):
        raise DeclarationError(f"{ENGINE} is {chosen!r}; it must be {SPARK} or {LOCAL}.")
    return chosen


def _stage_here(engine: Engine, address: DriverAddress | None, attempts: int) -> Stage:
    return ProcessStage(
        attempts, lambda: address is not None and engine.coordinator.has_failed(address)
    )


def is_elsewhere(option: str | None) -> bool:
    """Return whether the tasks of a run that this program begins will run on other machines."""
    return chosen_engine(option) == SPARK and not is_local(master_here())


_coordinator: DriverCoordinator | None = None
_opening = threading.Lock()
