"""Parquet files on a store: a small one is one request, a large one is not read whole."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.storage import objects, parquet_files
from jobs.storage.parquet_files import open_parquet, read_footer

ROWS = pa.table({"n": range(1000), "text": [f"{n:040d}" for n in range(1000)]})


@pytest.fixture
def place(s3, tmp_path):
    pq.write_table(ROWS, tmp_path / "rows.parquet", compression="none", use_dictionary=False)
    objects.upload(tmp_path / "rows.parquet", f"{s3.bucket}/a/rows 1.parquet")
    return f"{s3.bucket}/a/rows 1.parquet"


def asked(s3, work):
    before = len(s3.requests())
    work()
    return [method for method, _ in s3.requests()[before:]]


def read(place):
    with open_parquet(place) as file:
        assert file.read() == ROWS


def test_a_small_file_is_read_by_one_request(place, s3):
    assert asked(s3, lambda: read(place)) == ["GET"]
    assert asked(s3, lambda: read_footer(place)) == ["GET"]


def test_a_large_file_is_read_in_pieces(place, s3, monkeypatch):
    monkeypatch.setattr(parquet_files, "SMALL", 1000)
    read(place)
    assert read_footer(place).num_rows == ROWS.num_rows


def test_a_file_that_is_gone_is_named(place):
    with pytest.raises(FileNotFoundError, match="rows 2"):
        read(place.replace("rows 1", "rows 2"))


def test_a_file_whose_name_only_arrow_opens_is_read(place, s3, tmp_path):
    filesystem, path = parquet_files.open_filesystem(f"{s3.bucket}/a/rows\x07.parquet")
    with filesystem.open_output_stream(path) as stream:
        stream.write((tmp_path / "rows.parquet").read_bytes())
    read(f"{s3.bucket}/a/rows\x07.parquet")
