"""The rows of a run as Spark has them, and what reads them in the driver."""

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812  # Spark's own name for it

from jobs.task import stage_tasks
from tests.simulation.spark import Spark, Task

ROWS_PER_BATCH = 16


@dataclass(frozen=True)
class TableStage:
    """A stage over a table in the driver (jobs/run/engines/stages.py), which Spark's tasks
    divide.
    """

    spark: Spark

    def run(self, task: Any, parts: Sequence[pa.Table]) -> list[Any]:
        pieces = [piece for table in parts for piece in self.spark.divided(table)]
        numbers = [[pa.record_batch({"id": [number]})] for number in range(len(pieces))]
        rows = self.spark.run_stage(stage_tasks.over_parts(task, pieces), numbers)
        return [stage_tasks.read_result(row) for row in rows]


@dataclass(frozen=True)
class Frame:
    """A DataFrame: rows that Spark has divided into parts."""

    sparkSession: Spark  # noqa: N815  # Spark's names
    schema: T.StructType
    parts: Sequence[Sequence[pa.RecordBatch]]

    def mapInArrow(self, task: Task, gives: Any) -> Any:  # noqa: N802
        def collect() -> list[Any]:
            rows = self.sparkSession.run_stage(task, self.parts)
            return [types.SimpleNamespace(asDict=lambda row=row: row) for row in rows]

        return types.SimpleNamespace(collect=collect)


def batches_of_frame(
    _plan: Any, _places: Any, prepared: Frame
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each task, in the driver (jobs/run/keys/key_rows.py)."""
    for task, batches in enumerate(prepared.parts):
        for batch in batches:
            yield task, batch
