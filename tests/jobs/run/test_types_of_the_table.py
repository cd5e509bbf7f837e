"""Between a day and its published table the rules for two files of a day hold, at any depth."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.errors import DeclarationError
from jobs.run.day import run_day
from jobs.run.plan.preflight import find_day
from jobs.tables.delta.type_check import check_types
from jobs.tables.publishing import publish
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

FIRST, SECOND, THIRD = "2026-11-01", "2026-11-02", "2026-11-03"
THINGS = Enrichment(
    name="things", input=Input(path="raw", row_id=["id"]), lookups=[MOOD], output=Output(path="out")
)
PLACE = pa.struct([("zip", pa.string()), ("n", pa.int64())])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(day, *files):
    Path("raw", f"date={day}").mkdir(parents=True)
    for number, columns in enumerate(files):
        pq.write_table(
            pa.table({"k": ["a"], **columns}), Path("raw", f"date={day}", f"{number}.parquet")
        )


def table(**columns):
    write_deltalake(
        "out", pa.table({**columns, "date": pa.array([None], pa.date32())}), partition_by=["date"]
    )


def read(day):
    found = find_day(THINGS, day)
    check_types(THINGS, found)
    return found


@pytest.mark.parametrize(
    ("there", "given", "becomes"),
    [
        (pa.array([1]), pa.array([2], pa.int32()), pa.int64()),
        (pa.array([0.5]), pa.array([0.5], pa.float32()), pa.float64()),
        (pa.array(["x"]), pa.nulls(1), pa.string()),
        (pa.array([["x"]]), pa.array([[]], pa.list_(pa.null())), pa.list_(pa.string())),
        (pa.array([{"zip": "x", "n": 1}], PLACE), pa.array([{"n": 2, "ZIP": None}]), PLACE),
        (
            pa.array([{"zip": "x"}]),
            pa.array([{"n": 2, "zip": "y"}]),
            pa.struct([("zip", pa.string()), ("n", pa.int64())]),
        ),
    ],
)
def test_a_column_is_read_with_the_type_of_the_published_table(there, given, becomes):
    table(k=["a"], c=there)
    write(FIRST, {"c": given})
    day = read(FIRST)
    assert day.schema.field("c").type == becomes
    assert day.rows == 1


def test_a_column_without_a_type_gets_the_type_of_another_file_of_its_day():
    write(FIRST, {"c": pa.nulls(1)}, {"c": ["x"]})
    day = read(FIRST)
    assert day.schema.field("c").type == pa.string()
    copy, other = day.files
    assert pq.read_table(copy, partitioning=None).to_pylist() == [{"k": "a", "c": None}]
    assert (Path(copy).name.partition("-")[0], other) == (
        "0.parquet",
        f"raw/date={FIRST}/1.parquet",
    )
    assert read(FIRST).files == day.files


def test_a_type_that_does_not_fit_the_table_is_named_in_sql():
    table(k=["a"], c=pa.array([{"zip": "x", "tags": ["a"]}]))
    write(FIRST, {"c": pa.array([{"zip": 5, "tags": ["a"]}])})
    with pytest.raises(DeclarationError) as refused:
        read(FIRST)
    assert "'c' is struct<zip: long, tags: array<string>> in " in str(refused.value)
    assert "but in out it is struct<zip: string, tags: array<string>>" in str(refused.value)


def test_a_type_wider_than_in_the_table_is_refused():
    table(k=["a"], c=pa.array([1], pa.int32()))
    write(FIRST, {"c": pa.array([2**40])})
    with pytest.raises(DeclarationError, match=r"'c' is long in .*, but in out it is integer"):
        read(FIRST)


@pytest.mark.spark
def test_days_whose_types_fit_the_table_are_published_and_checked(spark):
    write(
        FIRST,
        {
            "id": [1],
            "note": ["x"],
            "tags": [["t"]],
            "place": pa.array([{"zip": "1", "n": 5}], PLACE),
        },
    )
    write(
        SECOND,
        {
            "id": pa.array([2], pa.int32()), "note": pa.nulls(1),
            "tags": pa.array([[]], pa.list_(pa.null())),
            "place": pa.array([{"n": 6, "Zip": "2", "more": True}]),
        },
        {"id": pa.array([3], pa.int16()), "place": pa.array([{"zip": "3"}])},
    )  # fmt: skip
    for number, day in enumerate((FIRST, SECOND)):
        record = run_day(THINGS, day, f"r{number}", checks="data_quality.day:check")
        assert [verdict.sentence for verdict in record.verdicts if verdict.holds_back] == []
        publish(record)
    rows = sorted(DeltaTable("out").to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["note"], row["tags"], row["place"]) for row in rows] == [
        (1, "x", ["t"], {"zip": "1", "n": 5, "more": None}),
        (2, None, [], {"zip": "2", "n": 6, "more": True}),
        (3, None, None, {"zip": "3", "n": None, "more": None}),
    ]
