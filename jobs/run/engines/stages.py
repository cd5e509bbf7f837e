"""Stages: a stage runs a task on each of several parts, on Spark or in this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.task.stage_tasks import Task

NO_STAGE = -1

_log = logging.getLogger("tidegate")


class Stage(Protocol):
    """Runs a task on each part."""

    def run(self, task: Task, parts: Sequence[Any] | DataFrame) -> list[Any]:
        """Run `task` on each part, several at a time if the engine can.

        Args:
            task: Gets a part, its number and the attempt's number. It is sent to the process that
                runs it, and may run more than once.
            parts: Values that are sent with the task; or a DataFrame, on Spark only: each task then
                iterates over the batches of a partition.

        Returns:
            The task's results in the order of the parts: small values, which are sent back.

        Raises:
            Exception: What the last attempt at a part raised; Spark's errors wrap it.
        """


@dataclass(frozen=True)
class SparkStage:
    """Runs a Spark task for each part."""

    spark: SparkSession

    def run(self, task: Task, parts: Sequence[Any] | DataFrame) -> list[Any]:
        from jobs.task.stage_tasks import RESULT, over_parts, over_rows, read_result  # take pyspark

        if isinstance(parts, Sequence):
            count = len(parts)
            if not count:
                return []
            given = self.spark.range(0, count, 1, count).mapInArrow(over_parts(task, parts), RESULT)
        else:
            given = parts.mapInArrow(over_rows(task), RESULT)
        rows = [row.asDict() for row in given.collect()]
        return [read_result(row) for row in sorted(rows, key=lambda row: row["part"])]


@dataclass(frozen=True)
class ProcessTask:
    """The TaskContext of a task in this process."""

    part: int
    attempt: int

    def partitionId(self) -> int:  # noqa: N802  # Spark's name for it
        return self.part

    def stageId(self) -> int:  # noqa: N802
        return NO_STAGE

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt

    def taskAttemptId(self) -> int:  # noqa: N802
        return self.attempt


@dataclass(frozen=True)
class ProcessStage:
    """Runs the tasks in this process, one after the other.

    Attributes:
        attempts: How often a part is tried, as Spark would.
        is_lost: Returns whether a further attempt would fail too, as a task has reported to the
            coordinator.
    """

    attempts: int
    is_lost: Callable[[], bool]

    def run(self, task: Task, parts: Sequence[Any] | DataFrame) -> list[Any]:
        assert isinstance(parts, Sequence)  # only Spark reads a frame
        return [self._attempt(task, part, number) for number, part in enumerate(parts)]

    def _attempt(self, task: Task, part: Any, number: int) -> Any:
        for attempt in range(self.attempts):
            try:
                return task(part, ProcessTask(number, attempt))
            except Exception:
                if attempt + 1 == self.attempts or self.is_lost():
                    raise
                _log.warning("the task is tried again", exc_info=True)
        raise AssertionError


@dataclass(frozen=True)
class ThreadStage:
    """Runs tasks that read files in threads of this process, each once."""

    at_once: int = min(8, os.cpu_count() or 1)

    def run(self, task: Task, parts: Sequence[Any] | DataFrame) -> list[Any]:
        assert isinstance(parts, Sequence)  # only Spark reads a frame
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(
                pool.map(
                    lambda number: task(parts[number], ProcessTask(number, 0)), range(len(parts))
                )
            )
