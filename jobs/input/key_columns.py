"""The key columns of a day's files, read by Arrow in the driver: for a day of few rows a Spark job takes longer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from jobs.input.day import InputDay

FILE, ROW = "__key_file", "__key_row"  # place of the file in the day; place of the row in the file
UNAMBIGUOUS_FROM = dt.datetime(1900, 1, 1)  # noqa: DTZ001  # before it, times depend on the calendar of who wrote them


def read_key_columns(day: InputDay, columns: Sequence[str]) -> pa.Table | None:
    """Read these columns of all rows, and FILE and ROW; rows with a null are left out.

    Args:
        day: its files, and the types that Spark reads in them.
        columns: names as `day` has them, of types without -0.0 and NaN.

    Returns:
        None where Spark may read other values than Arrow does, or one of the two cannot read the files.
    """
    types = pa.schema([(column, day.schema.field(column).type) for column in columns])
    try:
        rows = pa.concat_tables(_of_file(path, place, types) for place, path in enumerate(day.files))
    except (pa.ArrowException, OSError):  # Spark says what is wrong with them
        return None
    return rows if all(_is_unambiguous(rows[column]) for column in columns) else None


def _of_file(path: Path, place: int, types: pa.Schema) -> pa.Table:
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        by_lower_name = {name.lower(): name for name in file.schema_arrow.names}
        own = {name: by_lower_name.get(name.lower()) for name in types.names}
        if None in own.values():  # null in all of its rows
            return _numbered(types.empty_table(), place)
        rows = file.read(columns=list(own.values()))
        found = pa.table([rows[name] for name in own.values()], types.names).cast(types)
        return _numbered(found, place).drop_null()


def _numbered(rows: pa.Table, place: int) -> pa.Table:
    numbers = {FILE: np.full(rows.num_rows, place, np.int32), ROW: np.arange(rows.num_rows)}
    for name, values in numbers.items():
        rows = rows.append_column(name, pa.array(values))
    return rows


def _is_unambiguous(values: pa.ChunkedArray) -> bool:
    kind = values.type
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) or not len(values):
        return True
    first = pa.scalar(UNAMBIGUOUS_FROM, pa.timestamp("us")).cast(kind)
    return bool(pc.greater_equal(pc.min(values), first).as_py())
