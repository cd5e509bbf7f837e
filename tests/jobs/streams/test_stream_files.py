"""Inputs whose rows a stream would leave out, or read though they are deleted."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.errors import DeclarationError
from jobs.streams.stream_files import check_streamable
from tests.jobs.streams.test_published_sources import DAY, MOODS

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
