"""Evaluates a day's keys by Arrow in the driver: faster than a Spark job for few rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jobs.arrow_values import conform, is_unambiguous, one_chunk
from jobs.input.keys.arrow_expressions import KINDS
from jobs.input.keys.key_values import Values, read_by
from jobs.storage.parquet_files import has_old_calendar, open_parquet

if TYPE_CHECKING:
    from jobs.input.day import InputDay

FILE, ROW = "__key_file", "__key_row"  # place of the file in the day; place of the row in the file
MOST_ROWS = 5_000_000  # of a day, for which the driver can hold the keys
# types of keys that are equal in Arrow where they are equal in Spark, with the same text; not so
# -0.0, NaN, strings with a collation, what holds them
COMPARABLE = {*KINDS, pa.binary()}


def read_keys(day: InputDay, keys: Mapping[str, Values]) -> pa.Table | None:
    """Evaluate keys for the rows of a day.

    Args:
        day: The files, and Spark's types of their columns.
        keys: Parts of a key, by the name of their column in the result; of types without -0.0 and
            NaN.

    Returns:
        A column per part, FILE and ROW, without rows in which a part is null. None if Spark may
            read other values than Arrow, or if either cannot read the files.
    """
    names = read_by(keys.values())
    types = pa.schema([day.schema.field(name) for name in day.schema.names if name in names])
    try:
        found = [_read_file(path, place, types, keys) for place, path in enumerate(day.files)]
    except (pa.ArrowException, OSError):  # Spark will report the fault
        return None
    tables = [table for table in found if table is not None]
    return pa.concat_tables(tables) if len(tables) == len(found) else None


def _read_file(
    path: str, place: int, types: pa.Schema, keys: Mapping[str, Values]
) -> pa.Table | None:
    with open_parquet(path) as file:
        has_old_dates = has_old_calendar(file.metadata)
        by_lower_name = {name.lower(): name for name in file.schema_arrow.names}
        own = {name: by_lower_name.get(name.lower()) for name in types.names}
        read = file.read(columns=[name for name in own.values() if name is not None])
    rows = read.num_rows if read.num_columns else file.metadata.num_rows
    columns = {}
    for name, column in own.items():
        kind = types.field(name).type
        if column is None:
            columns[name] = pa.nulls(rows, kind)
        else:
            columns[name] = conform(one_chunk(read[column]), kind)
        if has_old_dates and not is_unambiguous(columns[name]):
            return None
    values = {name: key.evaluate(columns, rows) for name, key in keys.items()}
    return _numbered(pa.table(values), place).drop_null()


def _numbered(rows: pa.Table, place: int) -> pa.Table:
    numbers = {FILE: np.full(rows.num_rows, place, np.int32), ROW: np.arange(rows.num_rows)}
    for name, values in numbers.items():
        rows = rows.append_column(name, pa.array(values))
    return rows
