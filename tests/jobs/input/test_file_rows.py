"""The rows of files as tasks read them by Arrow, without Spark."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.commands.previewing.preview import first_rows
from jobs.input import file_rows
from jobs.input.day import of_files
from jobs.input.dealing import deal
from jobs.input.file_rows import BYTES_AT_ONCE, ROWS_AT_ONCE, FileRows
from jobs.input.row_comparison import ParquetRows
from jobs.storage import parquet_files


def rows_of(path):
    day = of_files([path])
    assert not day.only_in_spark
    return FileRows(deal(day, 1), day.schema, {}, day.row_bytes)


def test_texts_and_bytes_rewritten_by_delta_rs_are_read(tmp_path):
    """Its DELETE, UPDATE and MERGE write Arrow's views."""
    columns = {"k": pa.array(["a", "é", None]), "b": pa.array([b"a", None, b"\xff"])}
    write_deltalake(
        tmp_path, pa.table({"n": [1, 2, 3, 4], **{k: [*v, None] for k, v in columns.items()}})
    )
    DeltaTable(tmp_path).delete("n = 4")
    (path,) = map(Path, DeltaTable(tmp_path).file_uris())
    assert pq.read_schema(path).field("k").type == pa.string_view()
    rows = pa.Table.from_batches(rows_of(path).of(0))
    assert {name: rows[name].combine_chunks() for name in columns} == columns


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


def test_categories_in_structs_and_lists_are_read_over_row_groups(tmp_path):
    moods = pa.array(["calm", "glad", "calm", None]).dictionary_encode()
    columns = {
        "at": pa.StructArray.from_arrays([moods], ["mood"]),
        "all": pa.ListArray.from_arrays([0, 1, 3, 3, 4], moods),
        "note": pa.nulls(4),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    pq.write_table(pa.table({"note": ["x"]}), tmp_path / "b.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    day = of_files(files, folder=str(tmp_path / "out/_inputs/date=2026-11-19"))  # copies the first
    wanted = [
        {"at": {"mood": mood}, "all": all_, "note": None}
        for mood, all_ in zip(moods.to_pylist(), columns["all"].to_pylist(), strict=True)
    ]
    wanted.append({"at": None, "all": None, "note": "x"})
    assert first_rows(day, 9).to_pylist() == wanted
    assert ParquetRows(day.files).columns(day.schema).to_pylist() == wanted
    plain = of_files(files[:1])
    assert first_rows(plain, 9).drop_columns(["note"]).to_pylist() == [
        {"at": row["at"], "all": row["all"]} for row in wanted[:4]
    ]


def test_rows_after_a_row_group_without_rows_are_read(tmp_path):
    """pyarrow writes such a group for a table without rows."""
    towns = pa.table({"town": ["Rome", "Ulm", "Rome"]})
    with pq.ParquetWriter(tmp_path / "a.parquet", towns.schema) as writer:
        for table in (towns, towns.slice(0, 0), towns.slice(1, 1)):
            writer.write_table(table)
    rows = pa.Table.from_batches(rows_of(tmp_path / "a.parquet").of(0)).to_pydict()
    assert rows["town"] == ["Rome", "Ulm", "Rome", "Ulm"]
    assert rows["_source_row"] == [0, 1, 2, 3]


def test_long_texts_that_repeat_make_batches_small(tmp_path):
    """The footer counts them once."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(1000), "a.b": ["x" * 100_000] * 1000}), path)
    batches = list(rows_of(path).of(0))
    assert max(batch.nbytes for batch in batches) <= 1.1 * BYTES_AT_ONCE
    assert sum(batch.num_rows for batch in batches) == 1000


def test_a_file_of_a_store_is_read_once(tmp_path, monkeypatch):
    """A store bills requests, and a task waits for its bytes."""
    path = tmp_path / "a.parquet"
    rows = {"k": range(400_000), "name": [f"customer {number % 50}" for number in range(400_000)]}
    pq.write_table(pa.table(rows), path, row_group_size=200_000)
    reads = rows_of(path)
    read, opened = [], []

    class Counted(io.FileIO):
        def read(self, size=-1):
            read.append(len(data := super().read(size)))
            return data

    def source(_place):
        opened.append(Counted(path))
        return pa.PythonFile(opened[-1], mode="r")

    for module in (file_rows, parquet_files):
        monkeypatch.setattr(module, "is_url", lambda _place: True)
        monkeypatch.setattr(module, "parquet_source", source, raising=False)
    assert sum(batch.num_rows for batch in reads.of(0)) == 400_000
    for file in opened:
        file.close()
    assert sum(read) < 1.2 * path.stat().st_size


def test_a_task_without_memory_does_not_report_a_damaged_file(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1]}), path)
    rows = rows_of(path)

    def full(*_arguments, **_options):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", full)
    with pytest.raises(MemoryError, match="malloc"):
        list(rows.of(0))
