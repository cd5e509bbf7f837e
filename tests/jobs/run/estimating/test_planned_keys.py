"""The keys that `plan` counts are those that Spark would count, whether or not Spark is started for
them.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import TidegateError
from jobs.input.day import find_input
from jobs.run.estimating import planned_keys
from jobs.run.estimating.planned_keys import PlannedKeys
from tidegate import Cache, Enrichment, HttpLookup, Input, Output, Service

DAYS = ["2026-11-01", "2026-11-02"]
NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
COLUMNS = {
    "number": pa.array([1, 1, 2, None, 3, 2], pa.int32()),
    "flag": pa.array([True, True, False, True, None, False]),
    "text": pa.array(["a", "a", "ä\n", "", "b", None]),
    "raw": pa.array([b"\x00", b"\x00", b"a", b"", None, b"a"]),
    "day": pa.array([NOON.date()] * 5 + [None]),
    "at": pa.array(
        [NOON, NOON, NOON + dt.timedelta(microseconds=1), None, NOON, NOON],
        pa.timestamp("us", "UTC"),
    ),
    "local": pa.array([NOON.replace(tzinfo=None)] * 6, pa.timestamp("us")),
}
TOGETHER = {"a": "Number", "b": "text", "c": "`at`"}
KEYS = [TOGETHER, *(pytest.param({name: name}, marks=pytest.mark.proof) for name in COLUMNS)]


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Two days of a few rows; some columns are missing in one of the second day's files."""
    monkeypatch.chdir(tmp_path)
    for number, day in enumerate(DAYS):
        folder = tmp_path / "raw" / f"date={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(COLUMNS).slice(number), folder / "part-0.parquet")
    pq.write_table(
        pa.table({"number": pa.array([7, 7], pa.int32())}),
        tmp_path / "raw/date=2026-11-02/part-1.parquet",
    )
    return tmp_path


def declare(keys, *, cache=None, pii=()):
    asked = Service(name="s", url="http://127.0.0.1:9", max_concurrency=10)
    request = "GET /" + "/".join(f"{{{name}}}" for name in keys)
    lookup = HttpLookup(
        name="l", service=asked, request=request, keys=keys, returns="x INT", timeout=5.0,
        cache=cache
    )  # fmt: skip
    return Enrichment(
        name="e", input=Input(path="raw"), lookups=[lookup], output=Output(path="out"), pii=pii
    )


def counted(enrichment, spark, *, has_ledger):
    found = PlannedKeys(enrichment, [find_input(enrichment, day) for day in DAYS], spark).of(
        0, has_ledger=has_ledger
    )
    return sorted(tuple(row.values()) for row in found.to_pylist())


def no_spark():
    raise AssertionError("Spark was started")


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.parametrize("keys", KEYS, ids=",".join)
def test_keys_of_plain_columns_are_counted_without_spark_as_spark_counts_them(
    days, spark, keys, monkeypatch
):
    for cache, has_ledger, pii in (
        (None, True, ()),
        (None, False, tuple(keys.values())[:1]),
        (Cache(), True, ()),
    ):
        enrichment = declare(keys, cache=cache, pii=[name.strip("`").lower() for name in pii])
        by_arrow = counted(enrichment, no_spark, has_ledger=has_ledger)
        with monkeypatch.context() as patch:
            patch.setattr(planned_keys, "MOST_ROWS", -1)
            assert by_arrow == counted(enrichment, lambda: spark, has_ledger=has_ledger)
        assert by_arrow


@pytest.mark.proof
@pytest.mark.spark
def test_keys_of_an_expression_are_counted_by_spark(days, spark):
    enrichment = declare({"k": "reverse(reverse(upper(text)))"})
    assert [key for key, *_ in counted(enrichment, lambda: spark, has_ledger=True)] == [
        '[""]',
        '["A"]',
        '["B"]',
        '["Ä\\n"]',
    ]


def test_a_day_without_rows_has_no_key(days):
    for day in DAYS:
        for file in (days / "raw" / f"date={day}").iterdir():
            pq.write_table(pa.table(COLUMNS).slice(0, 0), file)
    assert counted(declare({"k": "number"}), no_spark, has_ledger=True) == []


def test_a_file_with_damaged_pages_is_named_without_spark(days):
    file = days / "raw" / f"date={DAYS[0]}" / "part-0.parquet"
    whole = bytearray(file.read_bytes())
    whole[4:60] = b"\xff" * 56  # the footer stays right
    file.write_bytes(whole)
    with pytest.raises(TidegateError, match=r"part-0.parquet cannot be read: .* Write the file"):
        counted(declare({"k": "number"}), no_spark, has_ledger=True)
