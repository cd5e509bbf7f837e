"""Times of INT96, Spark's default, are the same instants for every reader that needs no Spark."""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.commands.previewing.preview import first_rows
from jobs.input.day import of_files
from jobs.input.dealing import deal
from jobs.input.file_rows import FileRows
from jobs.input.keys.arrow_expressions import arrow_expression
from jobs.input.row_comparison import ParquetRows

UTC = pa.timestamp("us", "UTC")
# nanoseconds since 1970 hold the years 1677 to 2262
TIMES = [dt.datetime(1, 1, 1), None, dt.datetime(1582, 10, 4), dt.datetime(9999, 12, 31, 23, 59, 59, 1)]  # noqa: DTZ001  # fmt: skip
GIVEN = pa.array(TIMES, UTC)


def by_tasks(day):
    reads = FileRows(deal(day, 1), day.schema, {}, day.row_bytes)
    return pa.Table.from_batches(reads.of(0))["at"]


def by_keys(day):
    keys = {"key": arrow_expression("coalesce(at, at)", day.schema)}
    reads = FileRows(deal(day, 1), day.schema, keys, day.row_bytes)
    return pa.Table.from_batches(reads.of(0))["key"]


READERS = {
    "a task": by_tasks,
    "a preview": lambda day: first_rows(day, 9)["at"],
    "a comparison": lambda day: ParquetRows(day.files).columns(day.schema)["at"],
}


@pytest.fixture
def day(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": GIVEN}), path, use_deprecated_int96_timestamps=True)
    return of_files([path])


@pytest.mark.parametrize("reader", READERS)
def test_arrow_reads_the_instants_of_an_int96_file(day, reader):
    assert day.schema.field("at").type == UTC
    assert READERS[reader](day).to_pylist() == GIVEN.to_pylist()


def test_the_driver_reads_keys_of_an_int96_file(day):
    assert by_keys(day).to_pylist() == GIVEN.to_pylist()


def test_a_copy_with_cast_columns_keeps_the_instants_of_an_int96_file(tmp_path):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for file, texts in zip(files, (pa.nulls(4), pa.array(["text"] * 4)), strict=True):
        table = pa.table({"at": GIVEN, "nested": [[time] for time in GIVEN], "k": texts})
        pq.write_table(table, file, use_deprecated_int96_timestamps=True, store_schema=False)
    day = of_files(files, folder=str(tmp_path / "copies"))
    copied = pq.ParquetFile(day.files[0])
    assert copied.schema_arrow.field("at").type == UTC
    assert copied.read()["at"].to_pylist() == GIVEN.to_pylist()
    assert copied.read()["nested"].to_pylist() == [[time] for time in GIVEN.to_pylist()]
