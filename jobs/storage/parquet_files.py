"""Parquet files by path or URL, as pyarrow reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.storage import objects
from jobs.storage.stored_files import open_filesystem
from jobs.storage.urls import is_url

if TYPE_CHECKING:
    import pyarrow.dataset as ds

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SMALL = 1 << 20  # bytes of a file that is read whole from a store
ROWS_FOR_SPARK = 10_000  # rows of a batch


def parquet_source(place: str) -> str | pa.NativeFile:
    """Return an object from which pyarrow reads a Parquet file.

    A small file of a store is read whole by a single request, while pyarrow sends three or more.
    """
    if not is_url(place):
        return place
    if objects.is_found_here(place) and (data := objects.small_content(place, SMALL)) is not None:
        return pa.BufferReader(data)
    filesystem, path = open_filesystem(place)
    return filesystem.open_input_file(path)


def open_parquet(place: str, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file. On a store, columns that are read together take few requests."""
    return pq.ParquetFile(parquet_source(place), pre_buffer=is_url(place), **options)


def rows_by_number(read: Callable[[int], Iterable[pa.RecordBatch]]) -> MapInArrow:
    """Return a function for Spark's mapInArrow that reads the rows of each number in `id`."""

    def read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from read(number)

    return read_all


def rows_of_files(places: Sequence[str]) -> MapInArrow:
    """Return a function for Spark's mapInArrow that reads these files' rows by numbers in `id`."""

    def read(number: int) -> Iterator[pa.RecordBatch]:
        with open_parquet(places[number]) as file:
            yield from file.iter_batches(ROWS_FOR_SPARK)

    return rows_by_number(read)


def read_footer(place: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file."""
    return pq.read_metadata(parquet_source(place))


def read_schema(place: str) -> pa.Schema:
    """Return the columns of a Parquet file."""
    return pq.read_schema(parquet_source(place))


def parquet_dataset(places: Sequence[str]) -> ds.Dataset:
    """Return these Parquet files of a folder as a dataset; only the first is opened yet."""
    import pyarrow.dataset as ds  # loads pandas, which definitions do without

    filesystem = open_filesystem(places[0])[0]
    return ds.dataset(
        [open_filesystem(place)[1] for place in places], filesystem=filesystem, format="parquet"
    )
