"""What a day would publish is held against Delta's types and the table that is there, before anything is called."""

import datetime as dt
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Schema, write_deltalake

from jobs.errors import DeclarationError
from jobs.published_types import check_types, types_as_read
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

AT = dt.datetime(2013, 1, 10, 5)  # noqa: DTZ001  # of a column without a zone
NOON = dt.time(12)
CARRIED = {
    "tiny": pa.array([1], pa.int8()),
    "tiny_u": pa.array([255], pa.uint8()),
    "small_u": pa.array([1], pa.uint16()),
    "int_u": pa.array([2**32 - 1], pa.uint32()),
    "big_u": pa.array([2**64 - 1], pa.uint64()),
    "single": pa.array([0.5], pa.float32()),
    "truth": pa.array([True]),
    "day": pa.array([AT.date()], pa.date64()),
    "at": pa.array([AT], pa.timestamp("us")),
    "at_utc": pa.array([AT], pa.timestamp("ms", "UTC")),
    "at_berlin": pa.array([AT], pa.timestamp("us", "Europe/Berlin")),
    "lasted": pa.array([dt.timedelta(seconds=1)], pa.duration("us")),
    "text": pa.array(["a"], pa.large_string()),
    "word": pa.array(["a"]).dictionary_encode(),
    "json": pa.array(["{}"], pa.json_()),
    "bytes": pa.array([b"abcd"], pa.binary(4)),
    "price": pa.array([decimal.Decimal("1.10")], pa.decimal128(7, 2)),
    "pair": pa.array([[1, 2]], pa.list_(pa.uint8(), 2)),
    "counts": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.uint16())),
    "place": pa.array([{"lat": 1, "tags": ["a"]}], pa.struct([("lat", pa.uint32()), ("tags", pa.list_(pa.string()))])),
    "nothing": pa.array([None], pa.null()),
}


class Never:
    async def async_invoke(self, keys):
        raise AssertionError("nothing is called")


mood = AsyncFunctionLookup(
    name="mood", keys={"k": "id"}, returns="score DOUBLE", timeout=1.0, max_concurrency=1, function=Never
)


@pytest.fixture
def published(tmp_path):
    """Where the table is, or will be."""
    return str(tmp_path / "published")


def check(tmp_path, published, **columns):
    """Of a day of input with these columns."""
    file = tmp_path / "part.parquet"
    pq.write_table(pa.table(columns), file)
    declared = Enrichment(
        name="things", input=Input(path=str(tmp_path)), lookups=[mood], output=Output(path=published)
    )  # fmt: skip
    check_types(declared, file)


def refusal(tmp_path, published, **columns):
    with pytest.raises(DeclarationError) as refused:
        check(tmp_path, published, **columns)
    return str(refused.value).replace(str(tmp_path), "")


def publish(published, **columns):
    write_deltalake(published, pa.table({**columns, "date": [dt.date(2013, 1, 9)]}), partition_by=["date"])


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}, {"version": "1.0"}], ids=str)
def test_the_types_that_a_day_publishes_are_told_without_spark(spark, tmp_path, options):
    from jobs.task_files import NAMED, TaskFiles

    pq.write_table(pa.table(CARRIED), tmp_path / "part.parquet", **options)
    read = spark.read.parquet(str(tmp_path / "part.parquet"))
    files = TaskFiles.of(str(tmp_path / "run"), read.schema, ())
    (written,) = files.taken(read.mapInArrow(files.written, NAMED))
    told = Schema.from_arrow(types_as_read(tmp_path / "part.parquet"))
    assert told.fields == Schema.from_arrow(pq.read_schema(written)).fields


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([NOON], pa.time64("us")), "a time of day, which a Delta table does not hold. Write it as text."),
        (pa.array([NOON], pa.time32("ms")), "a time of day, which a Delta table does not hold. Write it as text."),
        (pa.array([[NOON]]), "a time of day, which a Delta table does not hold. Write it as text."),
        (
            pa.array([AT], pa.timestamp("ns")),
            "a timestamp in nanoseconds, which Spark does not read. Write it in microseconds.",
        ),
        (
            pa.array([decimal.Decimal(1)], pa.decimal256(50, 2)),
            "a decimal of more than 38 digits, which Spark does not read. Write it with fewer.",
        ),
        (
            pa.array([uuid.UUID(int=1).bytes], pa.uuid()),
            "of Parquet's type UUID, which does not go into a Delta table. Write it as another type.",
        ),
        (
            pa.array([np.float16(1)], pa.float16()),
            "of Parquet's type FLOAT16, which does not go into a Delta table. Write it as another type.",
        ),
    ],
)
def test_a_column_that_cannot_be_published_is_named_with_a_cure(tmp_path, published, column, said):
    assert refusal(tmp_path, published, id=[1], c=column) == f"things: input: 'c' in /part.parquet is {said}"


def test_a_column_that_is_all_null_needs_a_type(tmp_path, published):
    said = "things: input: 'c' has no type in /part.parquet, as all of it is null there. Write it with its type"
    assert refusal(tmp_path, published, id=[1], c=pa.nulls(1)) == f"{said}."
    assert refusal(tmp_path, published, id=[1], c=pa.array([[None]])) == f"{said}."
    publish(published, c=[1.5])
    assert refusal(tmp_path, published, id=[1], c=pa.nulls(1)) == f"{said}, double in /published."


def test_a_column_without_a_type_may_join_one_of_the_type_that_spark_takes_it_for(tmp_path, published):
    publish(published, c=pa.array([1], pa.int32()))
    check(tmp_path, published, id=[1], c=pa.nulls(1))


def test_a_column_that_the_table_has_with_another_type_is_named_with_both(tmp_path, published):
    publish(published, c=[1.5])
    assert refusal(tmp_path, published, id=[1], c=["1.5"]) == (
        "things: input: 'c' is string in /part.parquet, but in /published it is double. A column keeps its type: write "
        "it with that type, or under another name."
    )


def test_a_column_that_the_table_has_not_yet_may_join_it(tmp_path, published):
    publish(published, id=[1], score=[0.5])
    check(tmp_path, published, id=[1], new=["x"])


def test_a_table_whose_days_are_no_dates_is_refused(tmp_path, published):
    write_deltalake(published, pa.table({"id": [1], "date": ["2013-01-09"]}), partition_by=["date"])
    assert refusal(tmp_path, published, id=[1]) == (
        "things: output: the days of /published, date, are string there, and date here. Publish to another path."
    )
