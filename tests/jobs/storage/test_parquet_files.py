"""Parquet files on a store: a small one is one request, a large one is not read whole."""

import random
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.storage import objects, parquet_files
from jobs.storage.parquet_files import open_parquet, read_footer, read_plain_footer, stream_rows

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
    assert asked(s3, lambda: read_plain_footer(place)) == ["GET"]


def test_a_large_file_is_read_in_pieces(place, s3, monkeypatch):
    monkeypatch.setattr(parquet_files, "SMALL", 1000)
    read(place)
    assert read_footer(place).num_rows == ROWS.num_rows


def test_the_plain_footer_of_a_large_file_costs_no_more_requests_than_its_footer(
    place, s3, monkeypatch
):
    monkeypatch.setattr(parquet_files, "SMALL", 1000)
    asked_for = asked(s3, lambda: read_footer(place))
    assert asked(s3, lambda: read_plain_footer(place)) == asked_for
    monkeypatch.setattr(parquet_files, "LAST", 100)  # the footer is longer
    assert read_plain_footer(place).num_rows == ROWS.num_rows


def test_a_file_that_is_gone_is_named(place):
    with pytest.raises(FileNotFoundError, match="rows 2"):
        read(place.replace("rows 1", "rows 2"))


def test_a_file_with_special_characters_in_its_name_is_read(place, s3, tmp_path):
    filesystem, path = parquet_files.open_filesystem(f"{s3.bucket}/a/rows\x07.parquet")
    with filesystem.open_output_stream(path) as stream:
        stream.write((tmp_path / "rows.parquet").read_bytes())
    read(f"{s3.bucket}/a/rows\x07.parquet")


@pytest.mark.parametrize("seed", range(10))
def test_streamed_rows_are_those_of_the_files_in_order(tmp_path, seed):
    dice = random.Random(seed)
    tables, places = [], []
    for number in range(dice.randint(1, 4)):
        rows = ROWS.slice(dice.randrange(1000), dice.choice([0, 1, 700, 1000]))
        lacks_text = number and dice.random() < 0.3
        places.append(str(tmp_path / f"{number}.parquet"))
        given = rows.drop_columns(["text"]) if lacks_text else rows
        pq.write_table(given, places[-1], row_group_size=dice.choice([1, 100, 1000]))
        none = pa.nulls(rows.num_rows, pa.string())
        tables.append(rows.set_column(1, "text", none) if lacks_text else rows)
    columns = dice.choice([None, [], ["n"], ["text", "n"]])
    constants = dice.choice([{}, {"day": pa.scalar("d")}, {"n": pa.scalar(7)}])
    if columns == []:  # Arrow keeps no number of rows without a column
        constants = {"day": pa.scalar("d")}
    expected = pa.concat_tables(tables).select(ROWS.column_names if columns is None else columns)
    for name, value in constants.items():
        values = pa.repeat(value, expected.num_rows)
        there = expected.schema.get_field_index(name)
        if there >= 0:
            expected = expected.set_column(there, name, values)
        else:
            expected = expected.append_column(name, values)
    assert stream_rows(places, columns, constants).read_all() == expected


def test_streamed_rows_are_not_read_ahead(tmp_path):
    """A dataset reads 16 batches of four files ahead of a slow reader."""
    rows = pa.table({"n": pa.array(range(100_000), pa.int64())})
    places = [str(tmp_path / f"{number}.parquet") for number in range(4)]
    for place in places:
        pq.write_table(rows, place, row_group_size=10_000, use_dictionary=False)
    before, most = pa.total_allocated_bytes(), 0
    for _ in stream_rows(places):
        time.sleep(0.001)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 6 * 10_000 * 8
