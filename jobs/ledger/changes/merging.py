"""Merges sorted files of answers into sorted tables of bounded size with the newest records."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.ledger.answers import LARGEST, SCHEMA, taken
from jobs.ledger.resolution import newest_rows, superseded


def in_order(rows: pa.Table, now_us: int, *, are_all: bool = False) -> pa.Table:
    """Return the newest row of each key and outcome, sorted by key.

    Args:
        rows: Records.
        now_us: µs since the epoch.
        are_all: Whether these are all records of their keys; then rows that no longer affect their
            key are left out.
    """
    keys = rows["key"].combine_chunks()
    ranks = pc.rank(keys, tiebreaker="dense").to_numpy().astype(np.int64) - 1
    newest = newest_rows(ranks, rows, now_us)
    rows, ranks = taken(rows, newest), ranks[newest]
    if not are_all or not len(ranks):
        return rows
    return rows.filter(pa.array(~superseded(ranks, rows, int(ranks.max()) + 1, now_us)))


class SortedFile:
    """A file sorted by key, read forward by row group."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self._next = 0
        self._rest = SCHEMA.empty_table()
        # smallest, largest, rows, bytes
        self.groups = [self._bounds(number) for number in range(file.metadata.num_row_groups)]

    def _bounds(self, number: int) -> tuple[str, str, int, int]:
        group = self._file.metadata.row_group(number)
        statistics = group.column(0).statistics
        if statistics.has_min_max:
            return statistics.min, statistics.max, group.num_rows, group.total_byte_size
        # keys over 4 KB have no statistics
        keys = self._file.read_row_group(number, columns=["key"])["key"]
        return keys[0].as_py(), keys[-1].as_py(), group.num_rows, group.total_byte_size

    def up_to(self, bound: str | None) -> pa.Table:
        """Return the next rows up to the key `bound`, or all rows."""
        first = self._next
        while self._next < len(self.groups) and (
            bound is None or self.groups[self._next][0] <= bound
        ):
            self._next += 1
        more = self._file.read_row_groups(range(first, self._next), columns=SCHEMA.names)
        rows = pa.concat_tables([self._rest, more.cast(SCHEMA)])
        count = rows.num_rows
        if bound is not None:
            count = pc.sum(pc.less_equal(rows["key"], bound)).as_py() or 0
        self._rest = rows.slice(count)
        return rows.slice(0, count)


def merged(files: Sequence[SortedFile], rows_per_table: int, *, now_us: int) -> Iterator[pa.Table]:
    """Yield consecutive tables sorted by key, with the records that affect their key.

    A table has about `rows_per_table` rows or LARGEST bytes.
    """
    for bound in itertools.chain(_bounds(files, rows_per_table), [None]):
        rows = pa.concat_tables([SCHEMA.empty_table(), *(file.up_to(bound) for file in files)])
        table = in_order(rows, now_us, are_all=True)
        if table.num_rows:
            yield table


def _bounds(files: Sequence[SortedFile], rows_per_table: int) -> list[str]:
    """Return keys that end tables, so that no table far exceeds the given rows or LARGEST bytes."""
    ends = sorted((largest, rows, size) for file in files for _, largest, rows, size in file.groups)
    bounds, rows_so_far, bytes_so_far = [], 0, 0
    for largest, rows, size in ends:
        rows_so_far, bytes_so_far = rows_so_far + rows, bytes_so_far + size
        if rows_so_far >= rows_per_table or bytes_so_far >= LARGEST:
            bounds.append(largest)
            rows_so_far = bytes_so_far = 0
    return bounds
