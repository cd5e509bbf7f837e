"""What runs the tasks of a run: Spark, or this process.

An engine gives the stages that run tasks, and the driver's coordinator. Everything below a task is
the same code on each engine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import TYPE_CHECKING, Protocol

from jobs.errors import DeclarationError
from jobs.run import spark_coordinator
from jobs.run.coordinator import DriverCoordinator
from jobs.run.local_master import ATTEMPTS, LOOPBACK, attempts_of
from jobs.run.spark_facts import setting
from jobs.run.spark_session import interpreted, session_beside
from jobs.run.stages import ProcessStage, SparkStage, Stage

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from jobs.task.link_protocol import DriverAddress

ENGINE = "TIDEGATE_ENGINE"  # variable of the environment
SPARK, LOCAL = "spark", "local"


class Engine(Protocol):
    """Runs the tasks of a run."""

    @property
    def name(self) -> str:
        """The run's name, as holders of leases see it."""

    @property
    def coordinator(self) -> DriverCoordinator:
        """The driver's side of the tasks' links."""

    def stage(self, address: DriverAddress, *, here: bool) -> Stage:
        """A stage whose tasks register at this address. here: They run in this process."""

    def interpreted(self, *, rows: int, repeated: bool) -> AbstractContextManager[None]:
        """For the body, plan for few rows where that is cheaper."""


class SparkEngine:
    """Runs tasks on Spark: on this machine, or on a cluster."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def name(self) -> str:
        return setting(self.spark, "spark.app.name")

    @property
    def coordinator(self) -> DriverCoordinator:
        return spark_coordinator.coordinator_of(self.spark)

    def stage(self, address: DriverAddress, *, here: bool) -> Stage:
        if not here:
            return SparkStage(self.spark)
        return _stage_here(self, address, attempts_of(setting(self.spark, "spark.master")))

    def interpreted(self, *, rows: int, repeated: bool) -> AbstractContextManager[None]:
        return interpreted(self.spark, rows=rows, repeated=repeated)


class LocalEngine:
    """Runs the tasks of a run in this process, one after the other, without Java."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def coordinator(self) -> DriverCoordinator:
        return _local_coordinator()

    def stage(self, address: DriverAddress, *, here: bool) -> Stage:  # noqa: ARG002  # they always do
        return _stage_here(self, address, ATTEMPTS)

    def interpreted(self, *, rows: int, repeated: bool) -> AbstractContextManager[None]:  # noqa: ARG002  # as Spark's
        return contextlib.nullcontext()


def beside(engine: Engine) -> Engine:
    """Another engine of the application, for another thread."""
    return SparkEngine(session_beside(engine.spark)) if isinstance(engine, SparkEngine) else engine


def chosen_engine(option: str | None = None) -> str:
    """The engine that an option of a command, or else the environment, chooses.

    Raises:
        DeclarationError: There is no such engine.
    """
    chosen = option or os.environ.get(ENGINE) or SPARK
    if chosen not in (SPARK, LOCAL):
        raise DeclarationError(f"{ENGINE} is {chosen!r}; it must be {SPARK} or {LOCAL}.")
    return chosen


def _stage_here(engine: Engine, address: DriverAddress, attempts: int) -> Stage:
    return ProcessStage(attempts, lambda: engine.coordinator.has_failed(address))


_opening = threading.Lock()


def _local_coordinator() -> DriverCoordinator:
    with _opening:
        return _opened_coordinator()


@functools.cache
def _opened_coordinator() -> DriverCoordinator:
    # a task of this process ends with it: no stage can end before its tasks
    return DriverCoordinator(LOOPBACK, LOOPBACK, lambda _stage: True)
