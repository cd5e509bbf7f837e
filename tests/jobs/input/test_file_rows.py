"""The rows of files as tasks read them by Arrow, without Spark."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.input.day import of_files
from jobs.input.dealing import deal
from jobs.input.file_rows import ROWS_AT_ONCE, FileRows


def rows_of(path):
    day = of_files([path])
    assert day.same_in_arrow
    return FileRows(deal(day, 1), day.schema, {}, day.row_bytes)


def test_a_column_of_categories_does_not_make_batches_small(tmp_path):
    """Arrow reads it with all its categories in each batch, which are as large as thousands of
    rows.
    """
    names = pa.array(f"customer {number:06}" for number in range(20_000))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(len(names)), "name": names.dictionary_encode()}), path)
    batches = list(rows_of(path).of(0))
    assert {batch.num_rows for batch in batches} == {ROWS_AT_ONCE}
    assert pa.Table.from_batches(batches)["name"].combine_chunks() == names


def test_a_task_without_memory_does_not_blame_the_file(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1]}), path)
    rows = rows_of(path)

    def full(*_arguments, **_options):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", full)
    with pytest.raises(MemoryError, match="malloc"):
        list(rows.of(0))
