"""Tasks that read the day's files by Arrow read what Spark would have read, value for value; else
Spark reads them.
"""

import datetime as dt
import decimal
import json
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

from asyncio_core import AsyncFunction
from jobs.arrow_values import readable_values
from jobs.errors import TidegateError
from jobs.input import dealing
from jobs.input.day import of_files
from jobs.input.file_rows import BYTES_AT_ONCE
from jobs.input.types import SPARK_TYPES
from jobs.run.engines.spark_coordinator import open_coordinator
from jobs.run.engines.spark_failures import task_error
from jobs.run.enrich import write_out
from jobs.run.keys.day_keys import task_column
from jobs.run.plan.planner import plan_tasks
from jobs.run.rows.arrow_input import CALENDARS
from jobs.schema.columns import SOURCE_IDENTITY
from tests.support.nested_tables import (
    LEAVES,
    OF_SPARK,
    draw_columns,
    draw_kinds,
    write_by_arrow,
)
from tests.support.variants import first_of
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

pytestmark = pytest.mark.spark
AT = dt.datetime(2013, 1, 10, 12, 0, 0, 123_456)  # noqa: DTZ001
LONG_AGO = dt.datetime(1501, 2, 3, 4, 5, 6, 7)  # noqa: DTZ001
ZONED = pa.timestamp("us", "UTC")
TIMES_AS = "spark.sql.parquet.outputTimestampType"
LEGACY_FORMAT = "spark.sql.parquet.writeLegacyFormat"
# values, the type in which a file stores them, the type in which Spark reads them; a day may have
# several of one name
COLUMNS = {
    "yes": ([True, False], pa.bool_()),
    "tiny": ([-128, 127], pa.int8()),
    "short": ([-300, 7], pa.int16()),
    "int": ([2**31 - 1, -5], pa.int32()),
    "long": ([2**63 - 1, -(2**63)], pa.int64()),
    "u8": ([0, 255], pa.uint8()),
    "u16": ([0, 2**16 - 1], pa.uint16()),
    "u32": ([0, 2**32 - 1], pa.uint32()),
    "float": ([-0.0, float("nan"), 1.5], pa.float32()),
    "double": ([float("-inf"), 0.1, float("nan")], pa.float64()),
    "text": (["", "ä", "x" * 300], pa.string()),
    "Large": (["", "ß"], pa.large_string()),
    "word": (["one", "two"], pa.dictionary(pa.int32(), pa.string())),
    "raw": ([b"", b"\x00\xff"], pa.binary()),
    "uuid": ([b"0123456789abcdef"], pa.binary(16)),
    "date": ([AT.date(), LONG_AGO.date()], pa.date32()),
    "ms": ([AT.replace(microsecond=123_000), LONG_AGO.replace(microsecond=0)], pa.timestamp("ms", "Europe/Berlin")),
    "utc": ([AT, LONG_AGO], ZONED),
    "local": ([AT, LONG_AGO], pa.timestamp("us")),
    "small": ([decimal.Decimal("1.50"), decimal.Decimal("-99.99")], pa.decimal128(4, 2)),
    "huge": ([decimal.Decimal(10**37)], pa.decimal128(38, 0)),
    "u64": ([0, 2**64 - 1], pa.uint64()),
    "view": (["", "ß"], pa.string_view()),
    "octets": ([b"", b"\xff"], pa.binary_view()),
    "json": (["{}", ""], pa.json_()),
    "lasted": ([dt.timedelta(seconds=1)], pa.duration("us")),
    "none": ([None], pa.null()),
    "a.b": ([1, 2], pa.int32()),
    "odd `name": (["x"], pa.string()),
}  # fmt: skip


def random_file(path, draw):
    rows = draw.randrange(1, 2500)
    names = [name for name in COLUMNS if draw.random() < 0.8] + ["n"]
    draw.shuffle(names)
    columns = {}
    for name in names:
        values, kind = COLUMNS.get(name, (list(range(100)), pa.int64()))
        drawn = [None if draw.random() < 0.2 else draw.choice(values) for _ in range(rows)]
        as_written = name.upper() if name.isalpha() and draw.random() < 0.3 else name
        columns[as_written] = pa.array(drawn, kind)
    options = {
        "row_group_size": draw.choice([50, 700, 5000]),
        "data_page_size": draw.choice([100, 1 << 20]),
        "use_deprecated_int96_timestamps": draw.random() < 0.3,
    }
    pq.write_table(pa.table(columns), path, store_schema=draw.random() < 0.7, **options)


def planned(spark, day, keys, tasks=3):
    lookup = AsyncFunctionLookup(
        name="f", function=AsyncFunction,
        keys={f"k{number}": key for number, key in enumerate(keys)}, returns="x INT", timeout=1.0,
        max_concurrency=tasks,
    )  # fmt: skip
    declared = Enrichment(
        name="e", input=Input(path="in"), lookups=[lookup], output=Output(path="out"), ledger=None
    )
    return plan_tasks(day.read(spark), declared, day=day)


def day_of(folder, *tables, **options):
    for number, table in enumerate(tables):
        pq.write_table(pa.table(table), folder / f"part-{number}.parquet", **options)
    return of_files(sorted(folder.iterdir()))


@pytest.mark.parametrize("seed", first_of(range(6), 2))
def test_tasks_read_the_rows_that_spark_reads_in_the_order_of_files(
    spark, tmp_path, monkeypatch, seed
):
    monkeypatch.setattr(dealing, "BYTES_PER_TASK", 1 << 10)  # files are read in pieces
    draw, folder = random.Random(seed), tmp_path / "odd % ü"
    folder.mkdir()
    for number in range(draw.randrange(1, 5)):
        random_file(folder / f"part %20 {number}.parquet", draw)
    day = of_files(sorted(folder.iterdir()))
    prepared, plan = planned(spark, day, ["N", day.names[0] if day.names[0].isalnum() else "n"])
    assert plan.reads is not None
    read = (
        prepared.withColumn("__task", task_column(plan.reads.parts))
        .orderBy("__task", *SOURCE_IDENTITY)
        .toArrow()
    )
    assert len(plan.reads.parts) == len(plan.shares[0])
    by_arrow = [
        batch.append_column("__task", pa.array([task] * batch.num_rows, pa.int32()))
        for task in range(len(plan.reads.parts))
        for batch in plan.reads.of(task)
    ]
    found = pa.Table.from_batches(by_arrow).select(read.column_names)
    assert found.schema.types == read.schema.types
    assert found.num_rows == read.num_rows == day.rows
    for name in found.column_names:
        assert bits_of(found[name]) == bits_of(read[name]), name


def bits_of(column):
    """Its values; of floats their bits, as NaN differs from itself, and -0.0 does not from 0.0."""
    whole = column.combine_chunks()
    if pa.types.is_floating(whole.type):
        whole = whole.view(pa.int32() if pa.types.is_float32(whole.type) else pa.int64())
    return whole.to_pylist()


WRITTEN = {"k": [1, 2, 3], "text": ["a", None, "b"], "at": pa.array([AT, None, LONG_AGO], ZONED)}


def test_spark_reads_the_rows_of_keys_that_only_spark_evaluates(spark, tmp_path):
    assert planned(spark, day_of(tmp_path, WRITTEN), ["k + 1"])[1].reads is None


@pytest.mark.parametrize("seed", first_of(range(20), 4))
def test_tasks_read_the_nested_columns_that_spark_infers(spark, tmp_path, seed):
    draw, folder = random.Random(seed), tmp_path / "day"
    by_spark, rows = seed % 3 == 2, draw.choice([1, 60])
    kinds = draw_kinds(draw, OF_SPARK if by_spark else LEAVES)
    table = pa.table({"n": range(rows), **draw_columns(draw, kinds, rows)})
    if by_spark:
        usual = spark.conf.get(TIMES_AS)
        spark.conf.set(TIMES_AS, "INT96")
        spark.createDataFrame(table).coalesce(1).write.parquet(str(folder))
        spark.conf.set(TIMES_AS, usual)
    else:
        folder.mkdir()
        write_by_arrow(draw, table, folder / "a.parquet")
    day = of_files(list(folder.glob("*.parquet")))
    inferred = spark.read.parquet(str(folder))
    assert day.spark_types() == inferred.schema
    prepared, plan = planned(spark, day, ["n"])
    found = pa.Table.from_batches(plan.reads.of(0))
    read = prepared.orderBy("n").toArrow().select(found.column_names)
    assert found.schema.types == read.schema.types
    for name in found.column_names:
        assert repr(found[name].to_pylist()) == repr(read[name].to_pylist()), name


def test_tasks_read_a_field_of_a_struct_as_a_key(spark, tmp_path):
    kind = pa.struct([("Id", pa.int64()), ("home", pa.struct([("town", pa.string())]))])
    given = [{"Id": 1, "home": {"town": "a"}}, None, {"Id": None, "home": None}, {"Id": 4}]
    day = day_of(tmp_path, {"n": range(4), "customer": pa.array(given, kind)})
    keys = ["customer.id", "upper(Customer.home.TOWN)"]
    prepared, plan = planned(spark, day, keys)
    found = pa.Table.from_batches(plan.reads.of(0))
    read = prepared.orderBy("n").toArrow().select(found.column_names)
    assert found.to_pylist() == read.to_pylist()
    assert [found[name].to_pylist() for name in plan.layout.keys[0]] == [
        [1, None, None, 4],
        ["A", None, None, None],
    ]


def test_spark_reads_lists_of_two_levels(spark, tmp_path):
    spark.conf.set(LEGACY_FORMAT, "true")
    rows = spark.sql("SELECT array(1, 2) AS two, array(1, null) AS three, map('a', 1) AS map")
    rows.write.parquet(str(tmp_path / "day"))
    spark.conf.unset(LEGACY_FORMAT)
    (file,) = (tmp_path / "day").glob("*.parquet")
    reason = "'two' (lists or maps in a layout of old writers)"
    assert of_files([file]).only_in_spark == reason
    foreign = tmp_path / "foreign.parquet"  # without the types that Spark has noted
    foreign.write_bytes(
        file.read_bytes().replace(SPARK_TYPES.encode(), SPARK_TYPES.upper().encode())
    )
    assert of_files([foreign]).only_in_spark == reason
    assert of_files([foreign]).spark_types() is None
    without = pq.read_table(file, columns=["three", "map"])
    pq.write_table(without, tmp_path / "without.parquet")
    assert of_files([tmp_path / "without.parquet"]).only_in_spark == ""


def test_tasks_read_the_times_that_spark_writes_by_default(spark, tmp_path):
    times = [AT, None, LONG_AGO, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 1)]  # noqa: DTZ001
    table, usual = pa.table({"k": range(5), "at": pa.array(times, ZONED)}), spark.conf.get(TIMES_AS)
    spark.conf.set(TIMES_AS, "INT96")
    spark.createDataFrame(table).write.parquet(str(tmp_path / "day"))
    spark.conf.set(TIMES_AS, usual)
    day = of_files(sorted((tmp_path / "day").glob("*.parquet")))
    prepared, plan = planned(spark, day, ["k"])
    found = pa.Table.from_batches(
        [batch for task in range(len(plan.reads.parts)) for batch in plan.reads.of(task)]
    )
    for read in (found.sort_by("k"), prepared.orderBy("k").toArrow()):
        assert read.select(table.column_names).to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    "noted", [{"org.apache.spark.version": "2.4.8"}, {"org.apache.spark.legacyDateTime": ""}]
)
def test_spark_reads_times_of_an_old_calendar(spark, tmp_path, noted):
    table = pa.table(WRITTEN).replace_schema_metadata(noted)
    pq.write_table(table, tmp_path / "old.parquet")
    pq.write_table(table.drop_columns(["at"]), tmp_path / "timeless.parquet")
    assert planned(spark, of_files([tmp_path / "old.parquet"]), ["k"])[1].reads is None
    assert planned(spark, of_files([tmp_path / "timeless.parquet"]), ["k"])[1].reads is not None


@pytest.mark.parametrize("setting", CALENDARS)
def test_spark_reads_times_where_another_calendar_is_set(spark, tmp_path, setting):
    spark.conf.set(setting, "LEGACY")
    assert planned(spark, day_of(tmp_path, WRITTEN), ["k"])[1].reads is None
    spark.conf.unset(setting)


@pytest.mark.parametrize(
    ("noted", "by_arrow"), [("__CHAR_VARCHAR_TYPE_STRING", False), ("ml_attr", True)]
)
def test_spark_reads_columns_whose_metadata_change_their_values(spark, tmp_path, noted, by_arrow):
    field = {"name": "k", "type": "string", "nullable": True, "metadata": {noted: "char(3)"}}
    types = json.dumps({"type": "struct", "fields": [field]})
    pq.write_table(
        pa.table({"k": ["a"]}).replace_schema_metadata({SPARK_TYPES: types}), tmp_path / "a.parquet"
    )
    assert (
        planned(spark, of_files([tmp_path / "a.parquet"]), ["k"])[1].reads is not None
    ) == by_arrow


def test_files_with_other_columns_and_narrower_types_are_read_by_arrow(spark, tmp_path):
    small, tall, large = (
        {"k": pa.array([1], pa.int16()), "at": [AT], "s": [{"a": 1, "in": {"x": 1}}]},
        {"K": [2], "more": ["x"], "S": [{"A": 2.5}], "day": [AT.date()]},
        {"k": [2**40], "s": [{"in": {"y": [{"z": "t"}]}}], "day": [AT], "more": [b"\xff"]},
    )
    small["s"] = pa.array(
        small["s"], pa.struct([("a", pa.int32()), ("in", pa.struct([("x", pa.int8())]))])
    )
    prepared, plan = planned(spark, day_of(tmp_path, small, tall, large), ["k"])
    found = pa.Table.from_batches(
        [batch for task in range(len(plan.reads.parts)) for batch in plan.reads.of(task)]
    )
    read = prepared.toArrow()
    assert found.schema.types == read.select(found.column_names).schema.types
    for name in found.column_names:
        one, other = (readable_values(rows[name]) for rows in (found, read))
        assert sorted(map(str, one)) == sorted(map(str, other)), name


@pytest.mark.parametrize("texts", [50, 1], ids=["each another", "one repeated"])
def test_batches_are_bounded_in_bytes_where_rows_are_wide(spark, tmp_path, texts):
    wide = {"k": range(50), "text": [chr(65 + row % texts) * 1_000_000 for row in range(50)]}
    _, plan = planned(spark, day_of(tmp_path, wide), ["k"])
    sizes = [batch.nbytes for task in range(len(plan.reads.parts)) for batch in plan.reads.of(task)]
    assert sum(sizes) > 40_000_000
    assert max(sizes) <= BYTES_AT_ONCE


def test_a_file_that_breaks_after_planning_is_named_with_the_cure(spark, tmp_path):
    prepared, plan = planned(spark, day_of(tmp_path, {"k": range(10_000)}), ["k"])
    (file,) = tmp_path.iterdir()
    sentence = rf"input: {file} cannot be read: .*[^.]\. Write the file again\."
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(TidegateError, match=rf"^{sentence}$"):
        list(plan.reads.of(0))
    file.unlink()
    before = set(open_coordinator(spark)._jobs)
    with pytest.raises(PythonException) as caught:
        write_out(prepared, plan, str(tmp_path / "out"))
    error = task_error(caught.value)
    assert type(error) is TidegateError
    assert re.fullmatch(sentence, str(error))
    assert plan.driver is None
    assert set(open_coordinator(spark)._jobs) == before  # the failed job is released
