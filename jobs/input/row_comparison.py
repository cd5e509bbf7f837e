"""Compares rows of Parquet files with other rows by Arrow in the driver, by their ids.

A column at a time is in memory, in addition to the columns that identify a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs import arrow_values
from jobs.arrow_values import conform_rows, one_chunk, readable_rows
from jobs.storage.parquet_files import batches_in, open_parquet, read_footer

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

ROWS_AT_ONCE = 1 << 20  # values that are compared at once
_ONE, _OTHER = "__row_of_one", "__row_of_other"


@dataclass(frozen=True)
class ParquetRows:
    """The rows of files, given by path or place, in their order.

    A column that a file lacks is null in its rows.
    """

    files: tuple[str, ...]

    def columns(self, types: pa.Schema) -> pa.Table:
        """Return these columns, whatever their case in the files.

        Raises:
            ArrowException: Values do not fit.
        """
        return pa.concat_tables([types.empty_table(), *(_read(file, types) for file in self.files)])

    def chosen(self, types: pa.Schema, wanted: Flags) -> Iterator[pa.Table]:
        for file, of_file in self.by_file(wanted):
            if of_file.any():
                yield _read(file, types, of_file)

    def by_file(self, flags: Flags) -> Iterator[tuple[str, Flags]]:
        start = 0
        for file, rows in self._rows.items():
            yield file, flags[start : start + rows]
            start += rows

    @property
    def num_rows(self) -> int:
        return sum(self._rows.values())

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {file: read_footer(file).num_rows for file in self.files}


def _read(file: str, types: pa.Schema, wanted: Flags | None = None) -> pa.Table:
    with open_parquet(file) as opened:
        read = {name.lower() for name in types.names}
        stored = [name for name in opened.schema_arrow.names if name.lower() in read]
        start, batches = 0, []
        for batch in batches_in(opened, ROWS_AT_ONCE, stored):
            rows = conform_rows(batch, types)
            if wanted is not None:
                rows = rows.filter(pa.array(wanted[start : start + batch.num_rows]))
            batches.append(rows)
            start += batch.num_rows
    return pa.Table.from_batches(batches, types)


def repeated(ids: pa.Table) -> dict[str, Any] | None:
    """Return the first id that several rows have; None if all ids differ."""
    counted = ids.group_by(ids.column_names).aggregate([([], "count_all")])
    several = counted.filter(pc.greater(counted["count_all"], 1))
    first = readable_rows(several.select(ids.column_names).slice(0, 1))
    return first[0] if first else None


def matching(one: pa.Table, other: pa.Table) -> tuple[Places, Places]:
    """Return the numbers of rows with equal ids in both tables, in the order of `one`.

    Ids must differ within each table.
    """
    names = one.column_names
    numbered = one.append_column(_ONE, pa.array(np.arange(one.num_rows)))
    others = other.append_column(_OTHER, pa.array(np.arange(other.num_rows)))
    pairs = (
        numbered.join(others, keys=names, join_type="inner").select([_ONE, _OTHER]).sort_by(_ONE)
    )
    return pairs[_ONE].to_numpy(), pairs[_OTHER].to_numpy()


def differ(one: pa.ChunkedArray, places: Places, other: pa.ChunkedArray, others: Places) -> Flags:
    """Return where the values of two columns of the same type differ, at these places."""
    parts = [np.empty(0, np.bool_)]
    for start in range(0, len(places), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        pair = one.take(pa.array(places[some])), other.take(pa.array(others[some]))
        parts.append(arrow_values.differ(*map(one_chunk, pair)))
    return np.concatenate(parts)
