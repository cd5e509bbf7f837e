"""The keys of a day's rows in the driver's memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T  # noqa: N812

from jobs.run.keys.key_texts import ROWS, TASK, TEXT, is_whole, table_texts
from jobs.run.rows.local_rows import LocalRows
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW, arrow_schema

_DRAWN = "__key_drawn"
LINE_BITS = 32  # the lower bits of a draw are the line that drew it
_LOCATION = {TASK: T.IntegerType(), SOURCE_FILE: T.StringType(), SOURCE_ROW: T.LongType()}


@dataclass(frozen=True)
class KeyRows:
    """The keys of the rows that have a key.

    Attributes:
        rows: `names`, and the place of each row, _LOCATION.
    """

    prepared: DataFrame | LocalRows
    names: tuple[str, ...]
    rows: pa.Table

    @property
    def repeats(self) -> bool:
        """Whether a key is that of several rows."""
        distinct = self.rows.group_by(list(self.names)).aggregate([])
        return len(distinct) < len(self.rows)

    def texts(self, *, hidden: bool) -> pa.ChunkedArray:
        """Return the text of each row's key. hidden: digests."""
        return table_texts(self.rows, self.names, hidden=hidden)

    def distinct(self, *, hidden: bool, seed: int) -> DriverKeys:
        """Return each key once, with a row of it drawn by `seed`."""
        lines = np.arange(self.rows.num_rows)
        drawn = np.random.default_rng(seed).integers(0, 1 << 31, len(lines)) << LINE_BITS | lines
        grouped = (
            self.rows.select(self.names)
            .append_column(_DRAWN, pa.array(drawn))
            .group_by(list(self.names))
        )
        counted = grouped.aggregate([(_DRAWN, "min"), (_DRAWN, "count")])
        least = counted[f"{_DRAWN}_min"].to_numpy() & (1 << LINE_BITS) - 1
        keys = self.rows.take(pa.array(least)).combine_chunks()
        keys = keys.append_column(ROWS, counted[f"{_DRAWN}_count"])
        keys = keys.append_column(TEXT, table_texts(keys, self.names, hidden=hidden))
        return DriverKeys(self.prepared, self.names, keys)


def collect_rows(prepared: DataFrame, names: Sequence[str], task: Column) -> KeyRows:
    """Read keys by a Spark job, without a shuffle or a Python worker. task: of each row."""
    location = (task.alias(TASK), SOURCE_FILE, SOURCE_ROW)
    return KeyRows(
        prepared, tuple(names), prepared.where(is_whole(names)).select(*names, *location).toArrow()
    )


@dataclass(frozen=True)
class DriverKeys:
    """Distinct keys in the driver's memory, without the rows that have them.

    Attributes:
        wanted: As `KeyRows.rows`, with TEXT and ROWS.
    """

    prepared: DataFrame | LocalRows
    names: tuple[str, ...]
    wanted: pa.Table

    @functools.cached_property
    def types(self) -> T.StructType:
        """Types of the columns of `table` and `frame`."""
        types = {name: self.prepared.schema[name].dataType for name in self.names}
        types |= {ROWS: T.LongType(), TEXT: T.StringType()} | _LOCATION
        return T.StructType([T.StructField(name, kind) for name, kind in types.items()])

    def table(self, keys: pa.Table) -> pa.Table:
        """Return lines of `wanted` as Arrow gets them from Spark."""
        return keys.select(self.types.names).cast(arrow_schema(self.types))

    def frame(self, keys: pa.Table, missing: pa.Table) -> DataFrame:  # noqa: ARG002  # as SparkKeys'
        """Return lines of `wanted` as Spark has them."""
        assert not isinstance(self.prepared, LocalRows)  # their keys go as a table
        return self.prepared.sparkSession.createDataFrame(self.table(keys), self.types)

    def drop(self) -> None:
        """Do nothing: only the driver keeps these keys."""
