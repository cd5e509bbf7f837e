"""A day's keys are the same whoever finds them: Arrow in the driver, one job of Spark, or a
shuffle.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from asyncio_core import AsyncFunction
from jobs.input import dealing
from jobs.input.day import of_files
from jobs.run.keys import day_keys
from jobs.run.keys.day_keys import SparkKeys, SparkRows, find_keys, task_column
from jobs.run.keys.driver_keys import DriverKeys
from jobs.run.keys.key_texts import ROWS, TASK, TEXT
from jobs.run.keys.preparation import prepare_keys
from jobs.run.plan.planner import plan_tasks
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW
from jobs.storage.parquet_files import SPARK_VERSION
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

pytestmark = pytest.mark.spark
NOON = dt.datetime(2013, 1, 10, 12, 0, 0, 123_456)  # noqa: DTZ001


def texts(rows, *, longest):
    return [
        None if row % 9 == 0 else "ä" * (row % 3) + "x" * (row % longest) for row in range(rows)
    ]


def columns(rows):
    """Keys of every type that the driver compares, with repeats and nulls."""
    return {
        "yes": pa.array([row % 2 == 0 for row in range(rows)]),
        "byte": pa.array([row % 5 - 2 for row in range(rows)], pa.int8()),
        "short": pa.array([row % 7 - 300 for row in range(rows)], pa.int16()),
        "int": pa.array([None if row % 11 == 0 else row % 13 - 6 for row in range(rows)], pa.int32()),
        "long": pa.array([(row % 17 - 8) << 40 for row in range(rows)], pa.int64()),
        "text": pa.array(texts(rows, longest=70), pa.string()),
        "raw": pa.array([b"\x00\xff" * (row % 4) for row in range(rows)], pa.binary()),
        "day": pa.array([NOON.date() + dt.timedelta(row % 3) for row in range(rows)]),
        "at": pa.array([NOON + dt.timedelta(hours=row % 5) for row in range(rows)], pa.timestamp("ms", tz="UTC")),
        "naive": pa.array([NOON + dt.timedelta(microseconds=row % 2) for row in range(rows)], pa.timestamp("us")),
    }  # fmt: skip


@pytest.fixture
def day(tmp_path, monkeypatch):
    """Two files with odd names, read by several tasks, one of them in pieces."""
    monkeypatch.setattr(dealing, "BYTES_PER_TASK", 1 << 10)
    folder = tmp_path / "odd % ü"
    folder.mkdir()
    rows = pa.table(columns(900) | {"n": range(900)})
    pq.write_table(
        rows.slice(0, 800), folder / "a 1.parquet", row_group_size=100, compression="none"
    )
    pq.write_table(rows.slice(800), folder / "b%20.parquet", compression="none")
    return of_files(sorted(folder.iterdir()))


def declare(keys, tasks=4, **more):
    lookup = AsyncFunctionLookup(
        name="f", function=AsyncFunction,
        keys={f"k{number}": key for number, key in enumerate(keys)}, returns="x INT", timeout=1.0,
        max_concurrency=tasks,
    )  # fmt: skip
    return Enrichment(
        name="e", input=Input(path="in"), lookups=[lookup], output=Output(path="out"), **more
    )


def source_of(spark, day, keys):
    """The keys as a run finds them, and the same in Spark."""
    prepared, plan = plan_tasks(day.read(spark), declare(keys), day=day)
    task = F.spark_partition_id() if plan.reads is None else task_column(plan.reads.parts)
    names = plan.layout.keys[0]
    return find_keys(prepared, plan, 0, day), SparkRows(prepared, names, task)


def by_text(table):
    return {row[TEXT]: row[ROWS] for row in table.select([TEXT, ROWS]).to_pylist()}


@pytest.mark.proof
@pytest.mark.parametrize(
    "keys",
    [
        ("YES", "byte", "short", "int", "long", "text", "raw", "day", "at", "naive"),
        ("`text`",),
        ("upper(text)", "date_trunc('HOUR', at)"),
    ],
    ids=["all types", "a text", "expressions"],
)
def test_the_driver_finds_the_keys_that_spark_finds(spark, day, keys):
    source, in_spark = source_of(spark, day, keys)
    found, wanted = (keys.distinct(hidden=False, seed=3) for keys in (source, in_spark))
    assert isinstance(found, DriverKeys)
    assert by_text(found.wanted) == by_text(wanted.wanted)
    assert found.wanted.num_rows == wanted.wanted.num_rows
    assert {*source.texts(hidden=False).to_pylist()} == {*wanted.wanted[TEXT].to_pylist()}
    assert source.repeats == in_spark.repeats
    located = {
        row[TEXT]: row for row in found.frame(found.wanted, found.wanted).toArrow().to_pylist()
    }
    read = in_spark.prepared.withColumn(TASK, in_spark.task).toArrow().to_pylist()
    at = {(row[SOURCE_FILE], row[SOURCE_ROW]): row for row in read}
    assert len(located) == found.wanted.num_rows > 1
    for row in located.values():
        own = at[row[SOURCE_FILE], row[SOURCE_ROW]]
        assert [row[name] for name in (*source.names, TASK)] == [
            own[name] for name in (*source.names, TASK)
        ]
    wanted.drop()


@pytest.mark.proof
@pytest.mark.parametrize("keys", [("n / 2",), ("named_struct('a', n)",)])
def test_keys_that_arrow_compares_differently_are_read_by_spark(spark, day, keys):
    keys = source_of(spark, day, keys)[0].distinct(hidden=False, seed=1)
    assert isinstance(keys, SparkKeys)
    assert keys.wanted.num_rows == 900
    keys.drop()


def test_keys_of_many_rows_are_read_by_spark(spark, day, monkeypatch):
    monkeypatch.setattr(day_keys, "MOST_ROWS", 899)
    source, _ = source_of(spark, day, ("byte",))
    keys = source.distinct(hidden=False, seed=1)
    assert isinstance(keys, SparkKeys)
    assert sorted(keys.wanted[TEXT].to_pylist()) == ["[-1]", "[-2]", "[0]", "[1]", "[2]"]
    assert (source.repeats, source.texts(hidden=False)) == (True, None)
    keys.drop()


@pytest.mark.parametrize("rows", [1, 2])
def test_a_prefetch_by_spark_has_no_key_that_lacks_an_answer_and_is_not_chosen(spark, rows):
    keys = pa.table({TEXT: ["a", "b", "c"], ROWS: [rows, 2, 2]})
    kept = SparkKeys(spark.createDataFrame(keys), keys)
    chosen = kept.frame(keys.slice(0, 2), missing=keys)
    assert sorted(chosen.toArrow()[TEXT].to_pylist()) == ["a", "b"]


def test_keys_with_times_of_another_calendar_are_read_by_spark(spark, tmp_path):
    old = pa.table({"day": [dt.date(1500, 1, 1), dt.date(2000, 1, 1)]})
    pq.write_table(old.replace_schema_metadata({SPARK_VERSION: "2.4.8"}), tmp_path / "a.parquet")
    day = of_files([tmp_path / "a.parquet"])
    assert plan_tasks(day.read(spark), declare(["day"]), day=day)[1].reads is None


def test_a_run_without_a_repeated_key_informs_its_tasks(spark, day, tmp_path):
    prepared, plan = plan_tasks(day.read(spark), declare(["n"], ledger=None))
    with prepare_keys(prepared, plan, scratch=str(tmp_path / "keys"), day=day) as run:
        assert run.plan.distinct_keys == (True,)
