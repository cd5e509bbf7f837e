"""The tasks of a stage as Spark runs them: functions for mapInArrow.

The driver's modules do not define them, because a task would load them, with libraries that
executors do not have.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from jobs.task.link.driver_link import TaskFacts

Task = Callable[[Any, TaskFacts], Any]  # what a task makes of its part
SparkTask = Callable[..., Iterator[pa.RecordBatch]]

# a task's result: a single row
RESULT = StructType([StructField("part", IntegerType()), StructField("result", BinaryType())])


def over_parts(task: Task, parts: Sequence[Any]) -> SparkTask:
    """Return a function for a frame with indexes of `parts` in its column `id`."""

    def run(
        batches: Iterator[pa.RecordBatch], facts: TaskFacts | None = None
    ) -> Iterator[pa.RecordBatch]:
        facts = facts or _task_facts()
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield _result(number, task(parts[number], facts))

    return run


def over_rows(task: Task) -> SparkTask:
    """Return a function for a frame; the task gets the iterator of a partition's batches."""

    def run(
        batches: Iterator[pa.RecordBatch], facts: TaskFacts | None = None
    ) -> Iterator[pa.RecordBatch]:
        facts = facts or _task_facts()
        yield _result(facts.partitionId(), task(batches, facts))

    return run


def _task_facts() -> TaskFacts:
    task = TaskContext.get()
    assert task is not None  # it is set in a task
    return task


def read_result(row: Any) -> Any:
    """Return what the task returned, from its row of RESULT."""
    return pickle.loads(row["result"])  # noqa: S301  # ours


def _result(part: int, result: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"part": pa.array([part], pa.int32()), "result": [pickle.dumps(result)]}
    )
