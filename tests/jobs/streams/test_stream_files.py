"""What a stream makes of the files of its input: as a run of their day does."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from jobs.errors import DeclarationError
from jobs.streams.micro_batches import open_source
from jobs.streams.stream_files import check_streamable
from jobs.tables.delta.type_check import check_types, published_columns, published_table
from tests.jobs.streams.test_published_sources import DAY, MOODS, publish

FOLDER = f"data/raw/date={DAY}"


def by_hours():
    Path(FOLDER, "hour=05").mkdir(parents=True)
    Path(FOLDER, "hour=05", "a.parquet").touch()


def linked():
    Path(FOLDER).mkdir(parents=True)
    Path(FOLDER, "a.parquet").symlink_to("gone")


def of_a_table():
    rows = pa.table({"id": [1], "date": [DAY]})
    write_deltalake("data/raw", rows, partition_by=["date"])


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (by_hours, "hour=05 holds .*a.parquet, and a run reads the files in"),
        (linked, "a.parquet is a link to gone, which is not there"),
        (of_a_table, "part of a Delta table, whose files also hold deleted rows"),
    ],
    ids=["deeper", "link", "table"],
)
def test_a_stream_refuses_the_folders_that_a_run_of_their_day_refuses(
    tmp_path, monkeypatch, fill, message
):
    monkeypatch.chdir(tmp_path)
    check_streamable(MOODS)
    fill()
    with pytest.raises(DeclarationError, match=message):
        check_streamable(MOODS)


def test_a_batch_is_read_with_the_types_of_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    publish({"id": pa.array([1], pa.int64())})
    for folder in (FOLDER, "checkpoint/offsets", "checkpoint/sources/0"):
        Path(folder).mkdir(parents=True)
    file = Path(FOLDER, "a.parquet").absolute()
    pq.write_table(pa.table({"id": pa.array([2], pa.int32())}), file)
    entry = json.dumps({"path": f"file://{file}", "timestamp": 0, "batchId": 0})
    Path("checkpoint/sources/0/0").write_text(f"v1\n{entry}")
    Path("checkpoint/offsets/0").write_text('v1\n{}\n{"logOffset": 0}')
    batch = open_source(MOODS, Path("checkpoint")).batch(0)
    rows = batch.rows_of([file], published_columns(published_table(MOODS)))
    assert rows.schema.field("id").type == pa.int64()
    check_types(MOODS, rows)
