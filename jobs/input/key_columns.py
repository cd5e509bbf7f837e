"""Reads key columns of a day's files by Arrow in the driver, which is faster than a Spark job for few rows."""

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
    """Read these columns of all rows, with FILE and ROW, without rows that have a null.

    Args:
        day: The files, and Spark's types of their columns.
        columns: Names in the spelling of `day`, of types without -0.0 and NaN.

    Returns:
        The table, or None if Spark may read different values from Arrow, or one of them cannot read the files.
    """
    types = pa.schema([(column, day.schema.field(column).type) for column in columns])
    try:
        rows = pa.concat_tables(_of_file(path, place, types) for place, path in enumerate(day.files))
    except (pa.ArrowException, OSError):  # Spark will report the fault
        return None
    return rows if all(_is_unambiguous(rows[column]) for column in columns) else None


def _of_file(path: Path, place: int, types: pa.Schema) -> pa.Table:
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        by_lower_name = {name.lower(): name for name in file.schema_arrow.names}
        own = {name: by_lower_name.get(name.lower()) for name in types.names}
        if None in own.values():  # null in all rows of a file
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
