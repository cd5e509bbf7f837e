"""The rows of a day's files read by Arrow in a Spark task, value for value as Spark reads them.

Spark reads Parquet into rows and writes them as Arrow for Python, which is a quarter of the CPU of
a day whose answers are known. The driver decides which days may be read so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.arrow_values import conform
from jobs.errors import TidegateError
from jobs.input.keys.key_values import Values
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW
from jobs.storage.parquet_files import open_parquet
from jobs.storage.urls import is_url
from jobs.wording import one_line

ROWS_AT_ONCE = 1000  # as Spark's batches: the window over the input is counted in whole ones
BYTES_AT_ONCE = 4 << 20
READ_AT_ONCE = 1 << 17  # bytes of a column's pages
PROBED = 20  # rows


@dataclass(frozen=True)
class FilePart:
    """Consecutive row groups of a file.

    Attributes:
        place: Path or URL of the file.
        url: Names the file in the rows: a path as in Spark's `_metadata.file_path`, or the URL.
        file: Number of the file in the day.
        groups: Number of the first row group, and of the first row group after the part.
        row: Number of the part's first row in the file.
    """

    place: str
    url: str
    file: int
    groups: tuple[int, int]
    row: int


def _opened(place: str) -> pq.ParquetFile:
    """Open a file: pages are read as they are used on a disk, whole columns on a store."""
    return (
        open_parquet(place)
        if is_url(place)
        else pq.ParquetFile(place, pre_buffer=False, buffer_size=READ_AT_ONCE)
    )


@dataclass(frozen=True)
class FileRows:
    """The input of a run's tasks. Plain data, sent to the executors."""

    parts: tuple[tuple[FilePart, ...], ...]  # per task
    types: pa.Schema  # in which Spark reads the columns
    keys: Mapping[str, Values]  # by the column that holds a part of a key
    row_bytes: float  # on average where rows are largest

    def of(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, some at a time.

        Raises:
            TidegateError: A file cannot be read.
        """
        for part in self.parts[task]:
            try:
                yield from self._read_part(part)
            except MemoryError:  # Arrow's is an ArrowException too, and the file is sound
                raise
            except (pa.ArrowException, OSError) as error:
                cause = one_line(str(error)).rstrip(".")
                raise TidegateError(
                    f"input: {part.place} cannot be read: {cause}. Write the file again."
                ) from error

    def _read_part(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        url = pa.array([part.url] * ROWS_AT_ONCE, pa.string())
        with _opened(part.place) as file:
            by_lower_name = {name.lower(): name for name in file.schema_arrow.names}  # as Spark
            own = [by_lower_name.get(name.lower()) for name in self.types.names]
            wanted = [name for name in own if name is not None]
            row = part.row
            for number in range(*part.groups):
                read = partial(
                    file.iter_batches, row_groups=[number], columns=wanted, use_threads=False
                )
                for batch in read(self._rows_at_once(read, own)):
                    yield self._as_spark(batch, own, url, row)
                    row += batch.num_rows

    def _rows_at_once(
        self, read: Callable[[int], Iterator[pa.RecordBatch]], own: Sequence[str | None]
    ) -> int:
        """Return how many rows of a row group to read at once: fewer where rows are long.

        It probes some rows, because the footer does not know the length of texts that repeat.
        """
        row_bytes = self.row_bytes
        for few in islice(read(PROBED), 1):
            columns = self._columns(few, own).values()  # in Spark's types, without categories
            row_bytes = max(row_bytes, sum(column.nbytes for column in columns) / few.num_rows)
        return max(1, min(ROWS_AT_ONCE, int(BYTES_AT_ONCE / max(row_bytes, 1))))

    def _columns(self, batch: pa.RecordBatch, own: Sequence[str | None]) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        for name, field in zip(own, self.types, strict=True):
            if name is None:
                columns[field.name] = pa.nulls(batch.num_rows, field.type)
            else:
                columns[field.name] = conform(batch.column(name), field.type)
        return columns

    def _as_spark(
        self, batch: pa.RecordBatch, own: Sequence[str | None], url: pa.StringArray, row: int
    ) -> pa.RecordBatch:
        count, columns = batch.num_rows, self._columns(batch, own)
        keys = {name: key.evaluate(columns, count) for name, key in self.keys.items()}
        columns[SOURCE_FILE] = url.slice(0, count)
        columns[SOURCE_ROW] = pa.array(np.arange(row, row + count))
        columns |= keys
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
