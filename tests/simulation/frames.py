"""The rows of a run as Spark has them, and what reads them in the driver."""

import functools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812  # Spark's own name for it

from jobs.run.keys import driver_keys
from jobs.run.keys.key_texts import TASK
from jobs.schema import columns as schema
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
    """A DataFrame: rows that Spark has divided into parts. table: the same rows, with their part in
    TASK.
    """

    sparkSession: Spark  # noqa: N815  # Spark's names
    table: pa.Table
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
    """The rows of each task, in the driver (jobs/run/keys/chained_rows.py)."""
    for task, batches in enumerate(prepared.parts):
        for batch in batches:
            yield task, batch


class FrameKeys:
    """The keys of a frame's rows, in the driver (jobs/run/keys/day_keys.py)."""

    def __init__(
        self,
        prepared: Frame,
        names: Sequence[str],
        lookup: Any,
        _day: Any,
        _parts: Any,
        chained: driver_keys.KeyRows | None,
    ) -> None:
        self._prepared, self.names, self.lookup = prepared, tuple(names), lookup
        self._chained = chained

    @functools.cached_property
    def _rows(self) -> driver_keys.KeyRows:
        if self._chained is not None:
            return self._chained
        table = self._prepared.table
        table = table.filter(
            functools.reduce(pc.and_, (pc.is_valid(table[name]) for name in self.names))
        )
        location = [TASK, schema.SOURCE_FILE, schema.SOURCE_ROW]
        return driver_keys.KeyRows(
            self._prepared, self.names, table.select([*self.names, *location])
        )  # type: ignore[arg-type]

    @property
    def repeats(self) -> bool:
        return self._rows.repeats

    def texts(self, *, hidden: bool) -> pa.ChunkedArray:
        return self._rows.texts(hidden=hidden)

    def distinct(self, *, hidden: bool, seed: int) -> driver_keys.DriverKeys:
        return self._rows.distinct(hidden=hidden, seed=seed)
