"""The days of an input on an object store are read from there, or refused in one sentence."""

import datetime as dt
import gzip
import re
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from jobs.errors import DeclarationError, NoInput
from jobs.input import staged_files
from jobs.input.day import files_in, find_input, last_day
from jobs.input.staged_files import AT_ONCE
from jobs.storage import stored_files
from jobs.storage.objects import download
from jobs.storage.stored_files import StoredFile
from tests.support.s3_server import S3Server
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

DAY, NEXT = "2026-01-01", "2026-01-02"


class LengthOf:
    async def async_invoke(self, keys):
        return [{"score": float(len(keys["k"]))}]


def reading(path, **source):
    mood = AsyncFunctionLookup(
        name="mood",
        keys={"k": "k"},
        returns="score DOUBLE",
        timeout=1.0,
        max_concurrency=2,
        function=LengthOf,
    )
    return Enrichment(
        name="moods", input=Input(path=path, **source), lookups=[mood], output=Output(path="out")
    )


def put(place, data):
    filesystem, path = stored_files.open_filesystem(place)
    with filesystem.open_output_stream(path, compression=None) as stream:
        stream.write(data)


def parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def rows_of(enrichment):
    day = find_input(enrichment, DAY)
    return [row for file in day.files for row in pq.read_table(file, partitioning=None).to_pylist()]


@pytest.fixture
def raw(s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return f"{s3.bucket}/raw"


def test_parquet_files_of_a_bucket_are_read_by_name_and_once(raw, s3):
    put(f"{raw}/date={DAY}/b.parquet", parquet([{"k": "c"}]))
    put(f"{raw}/date={DAY}/a.parquet", parquet([{"k": "a"}, {"k": "b"}]))
    put(f"{raw}/date={DAY}/_SUCCESS", b"")
    before = len(s3.requests())
    assert rows_of(reading(raw)) == [{"k": "a"}, {"k": "b"}, {"k": "c"}]
    read = sorted(
        path.rpartition("/")[2] for _, path in s3.requests()[before:] if "prefix=" not in path
    )
    assert read == ["a.parquet", "b.parquet"]  # one request each
    before = len(s3.requests())
    assert rows_of(reading(f"{raw}/")) == [{"k": "a"}, {"k": "b"}, {"k": "c"}]
    assert {method for method, _ in s3.requests()[before:]} == {"GET"}  # listings alone
    assert last_day(reading(raw).input) == DAY


def test_files_of_a_bucket_are_copied_many_at_once(raw, monkeypatch):
    """So that a thousand files take the store's latency not a thousand times."""
    for number in range(AT_ONCE):
        put(f"{raw}/date={DAY}/{number:02}.parquet", parquet([{"k": str(number)}]))
    together = threading.Barrier(AT_ONCE)

    def with_others(place, target):
        together.wait(30)
        return download(place, target)

    monkeypatch.setattr(staged_files, "download", with_others)
    assert rows_of(reading(raw)) == [{"k": str(number)} for number in range(AT_ONCE)]


def test_csv_and_json_files_of_a_bucket_get_the_declared_types(raw):
    put(f"{raw}/date={DAY}/a.csv.gz", gzip.compress(b"k,at\nx,2026-01-01T10:00:00Z\n"))
    put(f"{raw}/date={DAY}/b.jsonl", b'{"k": "y", "at": null}\n')
    at = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)
    schema = "k STRING, at TIMESTAMP"
    assert rows_of(reading(raw, format="csv", schema=schema)) == [{"k": "x", "at": at}]
    assert rows_of(reading(raw, format="json", schema=schema)) == [{"k": "y", "at": None}]


def test_a_file_of_a_store_that_lists_milliseconds_is_converted(raw, tmp_path):
    """As MinIO and Ceph do, which tell the time of a single file in whole seconds."""
    place = f"{raw}/date={DAY}/a.csv"
    put(place, b"k\nx\n")
    found = StoredFile.at(place)
    listed = replace(found, changed_ns=found.changed_ns // 10**9 * 10**9 + 123 * 10**6)
    declared = Input(path=raw, format="csv", schema="k STRING")
    (copy,) = staged_files.staged([listed], declared, str(tmp_path / "copies"), hidden=False)
    assert pq.read_table(copy, partitioning=None).to_pylist() == [{"k": "x"}]
    later = replace(listed, changed_ns=listed.changed_ns - 10**9)
    with pytest.raises(DeclarationError, match="changed while it was read"):
        staged_files.staged([later], declared, str(tmp_path / "copies"), hidden=False)


def test_the_live_files_of_a_delta_table_in_a_bucket_are_read_with_its_version(raw):
    rows = pa.table({"k": ["a", "b"], "date": [dt.date.fromisoformat(DAY)] * 2})
    write_deltalake(raw, rows, partition_by=["date"])
    write_deltalake(raw, rows, mode="overwrite")
    delta = reading(raw, format="delta")
    assert (find_input(delta, DAY).version, rows_of(delta)) == (1, [{"k": "a"}, {"k": "b"}])
    with pytest.raises(DeclarationError, match=r"makes s3://.*/raw part of a Delta table"):
        find_input(reading(raw), DAY)
    with pytest.raises(NoInput, match="has no rows of 2026-01-02 in version 1"):
        find_input(delta, NEXT)


def test_a_missing_day_is_without_input_and_a_folder_with_another_name_is_reported(raw):
    put(f"{raw}/date=20260102/a.parquet", parquet([{"k": "a"}]))
    with pytest.raises(
        NoInput,
        match=(
            rf"there is no {raw}/date={NEXT} for .* There is {raw}/date=20260102; the "
            r"folder"
        ),
    ):
        find_input(reading(raw), NEXT)
    assert files_in(reading(raw).input, NEXT) == []


def test_a_missing_bucket_is_reported_in_one_sentence(raw):
    for kind in ("parquet", "delta"):
        with pytest.raises(DeclarationError) as refused:
            find_input(reading("s3://no-such-bucket/raw", format=kind), DAY)
        message = str(refused.value)
        assert message.startswith("moods: input: s3://no-such-bucket/raw")
        assert re.search("bucket does not exist|NO_SUCH_BUCKET|NoSuchBucket", message)
        assert "\n" not in message


@pytest.mark.process
@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", "ACCESS_DENIED"),
        (403, "InvalidAccessKeyId", "INVALID_ACCESS_KEY_ID"),
        (503, "SlowDown", "SLOW_DOWN"),
    ],
)
def test_refused_credentials_and_a_store_that_throttles_are_named_in_one_sentence(
    monkeypatch, status, code, message
):
    with S3Server.refusing(status, code, "no") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        stored_files._filesystem.cache_clear()
        with pytest.raises(DeclarationError) as refused:
            find_input(reading("s3://bucket/raw"), DAY)
    assert str(refused.value).startswith(
        f"moods: input: s3://bucket/raw/date={DAY} cannot be listed: "
    )
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_object_that_vanished_after_the_listing_is_named(raw, monkeypatch):
    put(f"{raw}/date={DAY}/a.parquet", parquet([{"k": "a"}]))
    (file,) = files_in(reading(raw).input, DAY)
    filesystem, path = stored_files.open_filesystem(file.place)
    filesystem.delete_file(path)
    monkeypatch.setattr("jobs.input.day.find_in_folder", lambda *_: ([file], []))
    with pytest.raises(
        DeclarationError,
        match=(
            r"moods: input: s3://.*/a.parquet cannot be copied "
            r"to .*"
        ),
    ):
        find_input(reading(raw), DAY)
    assert not list(Path("out").rglob("*.draft"))


def test_an_object_that_changed_after_the_listing_is_named(raw, monkeypatch):
    put(f"{raw}/date={DAY}/a.parquet", parquet([{"k": "a"}]))
    listed = files_in(reading(raw).input, DAY)
    put(f"{raw}/date={DAY}/a.parquet", parquet([{"k": "another"}]))
    monkeypatch.setattr("jobs.input.day.find_in_folder", lambda *_: (listed, []))
    with pytest.raises(
        DeclarationError,
        match=(
            r"moods: input: s3://.*/a.parquet changed while it "
            r"was read"
        ),
    ):
        find_input(reading(raw), DAY)
    assert not list(Path("out").rglob("*.parquet"))


@pytest.mark.parametrize(
    "path",
    [
        "s3://key:secret@bucket/raw",
        "s3://bucket/raw?access_key=1",
        "s3://bucket/raw?endpoint_override=x",
    ],
)
def test_a_url_with_a_secret_or_options_is_refused(path):
    with pytest.raises(DeclarationError, match=r"input: path .*environment"):
        Input(path=path)
