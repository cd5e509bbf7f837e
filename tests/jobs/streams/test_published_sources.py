"""Which input files a stream leaves out because the table has their rows."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.errors import DeclarationError
from jobs.input.dealing import spark_url
from jobs.schema.columns import SOURCE_FILE
from jobs.streams.published_sources import PublishedSources
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

DAY = "2026-01-01"
MOODS = Enrichment(
    name="moods",
    input=Input(path="data/raw"),
    lookups=[MOOD],
    output=Output(path="data/published/moods"),
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose table has the rows of a file."""
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    publish({SOURCE_FILE: [spark_url(str(file("a")))]})
    return tmp_path


def publish(columns):
    days = {"date": [dt.date.fromisoformat(DAY)]}
    rows = pa.table(columns | days)
    write_deltalake(MOODS.output.path, rows, partition_by=["date"], mode="append")


def file(name):
    return Path(f"data/raw/date={DAY}/{name}.parquet").absolute()


def test_a_stream_leaves_out_files_whose_rows_are_published(project):
    assert PublishedSources(MOODS).without([file("a"), file("b")], DAY) == [file("b")]


def test_a_moved_project_stops_the_stream(project, monkeypatch):
    (project / "old").rename(project / "new")
    monkeypatch.chdir(project / "new")
    assert PublishedSources(MOODS).without([file("b")], DAY) == [file("b")]
    with pytest.raises(DeclarationError, match=r"rows of .*/old/.* moved; run the day, `tidegate"):
        PublishedSources(MOODS).without([file("a"), file("b")], DAY)


def test_rewritten_table_files_stop_the_stream(project):
    write_deltalake(
        MOODS.output.path,
        pa.table({"id": [1], "date": [dt.date.fromisoformat(DAY)]}),
        partition_by=["date"],
        mode="overwrite",
        schema_mode="overwrite",
    )
    assert len(DeltaTable(MOODS.output.path).file_uris()) == 1
    with pytest.raises(DeclarationError, match=r"another program rewrote .* `tidegate run moods"):
        PublishedSources(MOODS).without([file("b")], DAY)
