"""Parquet files by path or URL, as pyarrow reads them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import TidegateError
from jobs.storage import objects
from jobs.storage.stored_files import open_filesystem
from jobs.storage.urls import is_url
from jobs.wording import one_line

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# runs a task on each of several parts, as the `run` of an engine's stage
RunTask = Callable[[Callable[[Any, Any], Any], Sequence[Any]], list[Any]]

END = 8  # bytes: the length of the footer and its signature, if any, and PAR1
LAST = 64 << 10  # bytes at the end of a file that are read first, as pyarrow does
SIGNATURE = 28  # bytes
SMALL = 1 << 20  # bytes of a file that is read whole from a store
SPARK_VERSION, OLD_CALENDAR, OLD_CALENDAR_OF_INT96 = (
    f"org.apache.spark.{name}".encode() for name in ("version", "legacyDateTime", "legacyINT96")
)
ROWS_FOR_SPARK = 10_000  # rows of a batch, for Spark or another slow reader


def parquet_source(place: str) -> str | pa.NativeFile:
    """Return an object from which pyarrow reads a Parquet file.

    A small file of a store is read whole by a single request, while pyarrow sends three or more.
    """
    if not is_url(place):
        return place
    if objects.is_configured(place) and (data := objects.small_content(place, SMALL)) is not None:
        return pa.BufferReader(data)
    filesystem, path = open_filesystem(place)
    return filesystem.open_input_file(path)


def open_parquet(place: str, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file. On a store, columns that are read together take few requests.

    Times in INT96 are read in microseconds, as by Spark: nanoseconds end in 2262, and years beyond
    would be read as others.
    """
    options = {"pre_buffer": is_url(place), "coerce_int96_timestamp_unit": "us"} | options
    return pq.ParquetFile(parquet_source(place), **options)


def batches_in(
    file: pq.ParquetFile, rows: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, at most so many at a time.

    Reads a row group at a time, because pyarrow refuses several of them for texts of a dictionary
    in a struct or a list, as Polars writes its categories.
    """
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], columns=columns)


def rows_by_number(read: Callable[[int], Iterable[pa.RecordBatch]]) -> MapInArrow:
    """Return a function for Spark's mapInArrow that reads the rows of each number in `id`."""

    def read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from read(number)

    return read_all


def rows_of_files(places: Sequence[str], columns: pa.Schema | None = None) -> MapInArrow:
    """Return a function for Spark's mapInArrow that reads these files' rows by numbers in `id`.

    Args:
        places: The files.
        columns: The columns, null in files that lack them; None: all of each file.
    """

    def read(number: int) -> Iterator[pa.RecordBatch]:
        with open_parquet(places[number]) as file:
            for batch in file.iter_batches(ROWS_FOR_SPARK):
                yield batch if columns is None else with_columns(batch, columns, {})

    return rows_by_number(read)


def read_footer(place: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file."""
    return pq.read_metadata(parquet_source(place))


def read_plain_footer(place: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file of others.

    Raises:
        ArrowInvalid: Columns are encrypted, and pyarrow would abort the process when it is asked
            about such a column. Their file has a signature after the footer.
    """
    source = parquet_source(place)
    with pa.OSFile(source) if isinstance(source, str) else source as file:
        start = max(0, file.size() - LAST)
        last = file.read_at(LAST, start)
        size = int.from_bytes(last[-END:-4], "little")
        # pyarrow would read the same bytes again
        footer = pq.read_metadata(file if size + END > len(last) else pa.BufferReader(last))
        if size - footer.serialized_size == SIGNATURE:
            raise pa.ArrowInvalid("columns are encrypted")
        return footer


def has_old_calendar(footer: pq.FileMetaData) -> bool:
    """Return whether the file has dates or times that may be of the Julian calendar before 1900.

    Spark 2 wrote such files, and newer versions can. Spark converts these values when it reads
    them, and Arrow does not.
    """
    noted = footer.metadata or {}
    version = [int(part) for part in re.findall(rb"\d+", noted.get(SPARK_VERSION, b"4"))]
    is_old = version < [3] or OLD_CALENDAR in noted
    is_old_in_int96 = version < [3, 1] or OLD_CALENDAR_OF_INT96 in noted
    columns = (footer.schema.column(number) for number in range(len(footer.schema)))
    return any(
        is_old_in_int96
        if column.physical_type == "INT96"
        else is_old and column.logical_type.type in ("DATE", "TIMESTAMP")
        for column in columns
    )


@contextmanager
def naming_torn_file(place: str) -> Iterator[None]:
    """Raise TidegateError, with the place, if the body finds that a run's file is lost or torn."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise TidegateError(
            f"{place} cannot be read: {one_line(str(error)).rstrip('.')}. Restore the file from a "
            "copy; without one run its day again, with the ledger's answers."
        ) from error


def read_schema(place: str) -> pa.Schema:
    """Return the columns of a run's Parquet file. Raises TidegateError if it is lost or torn."""
    with naming_torn_file(place):
        return pq.read_schema(parquet_source(place))


def read_fields(places: Iterable[str]) -> dict[str, pa.Field]:
    """Return the columns of these files by name, each with the type of the first file that has it.

    The columns of the last file come first.
    """
    fields: dict[str, pa.Field] = {}
    for place in places:
        fields = {field.name: field for field in read_schema(place)} | fields
    return fields


def stream_rows(
    places: Sequence[str],
    columns: Iterable[str] | None = None,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of Parquet files, of which a row group at most is in memory.

    A dataset reads up to a gigabyte ahead of a slow reader.

    Args:
        places: The files. A column is null in files that lack it.
        columns: Of any of the files, by default all.
        constants: Further columns, or values instead of those of the files.
    """
    fields = read_fields(places)
    values = dict.fromkeys(fields if columns is None else columns) | dict(constants or {})
    types = pa.schema(
        [
            fields[name] if value is None else pa.field(name, value.type)
            for name, value in values.items()
        ]
    ).remove_metadata()

    def read() -> Iterator[pa.RecordBatch]:
        for place in places:
            with open_parquet(place) as file:
                # None: a wanted column without a constant; 0: a column that nobody wants
                present = [name for name in file.schema_arrow.names if values.get(name, 0) is None]
                for group in range(file.num_row_groups):
                    groups = file.iter_batches(ROWS_FOR_SPARK, row_groups=[group], columns=present)
                    yield from (with_columns(batch, types, values) for batch in groups)

    return pa.RecordBatchReader.from_batches(types, read())


def with_columns(
    batch: pa.RecordBatch, types: pa.Schema, values: Mapping[str, pa.Scalar | None]
) -> pa.RecordBatch:
    """Return the rows with these columns: of the batch, of these values, or null."""
    rows = batch.num_rows
    names = set(batch.schema.names)
    columns = [
        pa.repeat(values[field.name], rows)
        if values.get(field.name) is not None
        else batch.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(rows, field.type)
        for field in types
    ]
    return pa.RecordBatch.from_arrays(columns, schema=types)
