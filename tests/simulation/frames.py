"""The rows of a run as Spark has them, and what reads them in the driver."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class RowsOfParts:
    """Rows of each task that are in no file, as a plan's `reads` gives them to the driver."""

    parts: Sequence[Sequence[pa.RecordBatch]]
    keys: Mapping[str, Any] = field(default_factory=dict)

    def only(self, _keys: Any, _more: Any) -> RowsOfParts:
        return self

    def of(self, task: int) -> Iterable[pa.RecordBatch]:
        return self.parts[task]
