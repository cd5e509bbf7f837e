"""The rows of a day's files read by Arrow in a Spark task, value for value as Spark reads them.

Spark would read Parquet into rows and write those as Arrow for Python, which takes a quarter of the
CPU of a day whose answers are known. jobs/run/rows/arrow_input.py decides which days tasks may read
themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.arrow_values import conform, conform_rows
from jobs.errors import TidegateError
from jobs.input.keys.key_values import Values, read_by
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW
from jobs.storage.parquet_files import open_parquet
from jobs.storage.urls import is_url
from jobs.wording import one_line

ROWS_AT_ONCE = 1000  # as Spark's batches: the tasks' window over the input counts whole batches
BYTES_AT_ONCE = 4 << 20  # of a batch
READ_AT_ONCE = 1 << 17  # bytes of a column's pages
PROBED = 20  # rows


@dataclass(frozen=True)
class FilePart:
    """Consecutive row groups of a file.

    Attributes:
        place: Path or URL of the file.
        url: Names the file in the rows: a path as in Spark's `_metadata.file_path`, or the URL.
        file: Number of the file in the day.
        groups: Range of its row groups: the first, and the first after the part.
        row: Number of the part's first row in the file.
    """

    place: str
    url: str
    file: int
    groups: tuple[int, int]
    row: int


@contextmanager
def naming_unread(place: str) -> Iterator[None]:
    """Turn errors of Arrow, as of a damaged file, into TidegateError with the file's name."""
    try:
        yield
    except MemoryError:  # Arrow's is an ArrowException too, and the file is sound
        raise
    except (pa.ArrowException, OSError) as error:
        cause = one_line(str(error)).rstrip(".")
        raise TidegateError(
            f"input: {place} cannot be read: {cause}. Write the file again."
        ) from error


def _open_by_pages(place: str) -> pq.ParquetFile:
    return open_parquet(place, pre_buffer=False, buffer_size=READ_AT_ONCE)


@dataclass(frozen=True)
class FileRows:
    """The input of a run's tasks. Plain data, sent to the executors."""

    parts: tuple[tuple[FilePart, ...], ...]  # per task
    types: pa.Schema  # in which Spark reads the columns
    keys: Mapping[str, Values]  # by the column that holds a part of a key
    row_bytes: float  # on average, in the row group with the largest rows

    def only(self, keys: Mapping[str, Values], more: Iterable[Values] = ()) -> Self:
        """Return the same rows with these keys alone, and the columns that they and `more` read."""
        read = read_by([*keys.values(), *more])
        fields = [field for field in self.types if field.name in read] or [*self.types][:1]
        return replace(self, types=pa.schema(fields), keys=keys)

    def of(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, some at a time.

        Raises:
            TidegateError: A file cannot be read.
        """
        for part in self.parts[task]:
            with naming_unread(part.place):
                yield from self._read_part(part)

    def _read_part(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        url = pa.array([part.url] * ROWS_AT_ONCE, pa.string())
        with ExitStack() as opened:
            # a store sends whole columns in few requests, a disk gives pages as they are used
            is_stored = is_url(part.place)
            open_file = open_parquet if is_stored else _open_by_pages
            file = opened.enter_context(open_file(part.place))

            @cache
            def pages() -> pq.ParquetFile:
                return opened.enter_context(_open_by_pages(part.place)) if is_stored else file

            by_lower_name = {name.lower(): name for name in file.schema_arrow.names}  # as Spark
            wanted = {
                by_lower_name[field.name.lower()]: field.type
                for field in self.types
                if field.name.lower() in by_lower_name
            }
            row, numbers = part.row, range(*part.groups)
            # a writer that is given no rows leaves an empty row group
            for number in (group for group in numbers if file.metadata.row_group(group).num_rows):
                at_once = self._rows_at_once(file, number, wanted, pages)
                for batch in file.iter_batches(
                    at_once, row_groups=[number], columns=list(wanted), use_threads=False
                ):
                    yield self._as_spark(batch, url, row)
                    row += batch.num_rows

    def _rows_at_once(
        self,
        file: pq.ParquetFile,
        number: int,
        wanted: Mapping[str, pa.DataType],
        pages: Callable[[], pq.ParquetFile],
    ) -> int:
        """Return how many rows of a row group to read at once: fewer where rows are long.

        The footer counts a text that repeats once, so some rows are read to learn its length.
        """
        row_bytes = self.row_bytes
        if repeating := _repeating_texts(file.metadata.row_group(number), wanted):
            few = next(
                pages().iter_batches(
                    PROBED, row_groups=[number], columns=repeating, use_threads=False
                )
            )
            texts = (conform(few.column(name), wanted[name]) for name in repeating)
            row_bytes += sum(text.nbytes for text in texts) / few.num_rows
        return max(1, min(ROWS_AT_ONCE, int(BYTES_AT_ONCE / max(row_bytes, 1))))

    def _as_spark(self, batch: pa.RecordBatch, url: pa.StringArray, row: int) -> pa.RecordBatch:
        count = batch.num_rows
        read = conform_rows(batch, self.types)
        columns: dict[str, pa.Array] = dict(zip(read.schema.names, read.columns, strict=True))
        keys = {name: key.evaluate(columns, count) for name, key in self.keys.items()}
        columns[SOURCE_FILE] = url.slice(0, count)
        columns[SOURCE_ROW] = pa.array(np.arange(row, row + count))
        columns |= keys
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _repeating_texts(group: pq.RowGroupMetaData, columns: Iterable[str]) -> list[str]:
    """Return the columns with texts that the file stores once for many rows of the row group."""
    chunks = (group.column(number) for number in range(group.num_columns))
    repeat = [
        f"{chunk.path_in_schema}."
        for chunk in chunks
        if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY"
    ]
    return [name for name in columns if any(path.startswith(f"{name}.") for path in repeat)]
