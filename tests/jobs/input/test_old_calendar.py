"""Dates that Spark 2 wrote in the Julian calendar are read as Spark reads them, or refused; times in
INT96 are read as they are.
"""

import dataclasses
import datetime as dt
import itertools
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.commands.evaluating.sampled_rows import read_labels
from jobs.commands.previewing.preview import first_rows
from jobs.errors import DeclarationError
from jobs.input.day import of_files
from jobs.input.row_ids import read_row_ids
from jobs.input.same_values import refuse_old_dates
from jobs.run.plan.preflight import check_input
from jobs.storage.parquet_files import (
    OLD_CALENDAR,
    OLD_CALENDAR_OF_INT96,
    SPARK_VERSION,
    has_old_calendar,
)
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

NO_DATE = -719164  # Spark 2 writes 0001-01-01 as this day number; later versions as -719162
SPARK_2 = {SPARK_VERSION: b"2.4.8"}
NEW = {SPARK_VERSION: b"3.5.1"}


class Score:
    async def async_invoke(self, keys):
        return [{"score": len(keys["k"])}]


def write(path, days, noted=SPARK_2, **more):
    """A file with a date for each of these day numbers, and with these facts of its writer."""
    columns = {"id": range(len(days)), "d": pa.array(days, pa.int32()).cast(pa.date32()), **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata(noted), path)
    return path


def changed_only(path):
    score = AsyncFunctionLookup(
        name="mood", keys={"k": "cast(id AS STRING)"}, returns="score INT", timeout=1.0,
        max_concurrency=1, function=Score,
    )  # fmt: skip
    given = Input(path=str(path), partition="part", every=["all"], row_id=["id"], rows="changed")
    return Enrichment(name="e", input=given, lookups=[score], output=Output(path=str(path / "o")))


def test_a_run_of_changed_rows_and_its_check_refuse_old_dates(tmp_path):
    day = of_files([write(tmp_path / "part=all" / "a.parquet", [NO_DATE, 0])])
    enrichment = changed_only(tmp_path)
    for refuse in (
        lambda: read_row_ids(enrichment, day),
        lambda: check_input(enrichment, day, "all", calls=False),
    ):
        with pytest.raises(DeclarationError, match=r"'d' in .* before 1900 in the calendar of"):
            refuse()


def test_a_preview_refuses_old_dates(tmp_path):
    day = of_files([write(tmp_path / "a.parquet", [NO_DATE, 0])])
    with pytest.raises(DeclarationError, match=r"'d' in .* before 1900 in the calendar of Spark 2"):
        first_rows(day, 1)


def test_a_copy_that_gives_columns_a_type_refuses_old_dates(tmp_path):
    files = [
        write(tmp_path / "a.parquet", [NO_DATE], k=pa.nulls(1)),
        write(tmp_path / "b.parquet", [0], k=["text"]),
    ]
    with pytest.raises(DeclarationError, match=r"'d' in .* before 1900 in the calendar of Spark 2"):
        of_files(files, folder=str(tmp_path / "copies"))


@pytest.mark.parametrize(
    "given",
    [
        {"days": [NO_DATE], "noted": NEW},
        {"days": [NO_DATE], "noted": {}},
        {"days": [-25567, 0, None]},  # from 1900
        {"days": [None]},
    ],
    ids=["of Spark 3", "of another program", "from 1900", "null"],
)
def test_old_dates_that_every_reader_reads_alike_are_accepted(tmp_path, given):
    day = of_files([write(tmp_path / "a.parquet", **given)])
    assert read_row_ids(changed_only(tmp_path), day).num_rows == len(given["days"])


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("on", pa.date32())])),
        pa.map_(pa.string(), pa.list_(pa.date32())),
        pa.map_(pa.date32(), pa.string()),
    ],
    ids=str,
)
def test_a_nested_column_with_an_old_date_is_refused(tmp_path, kind):
    def visits(day):
        if pa.types.is_list(kind):
            return [None, [], [None, {"on": day}]]
        return [None, [], [(day, "a")] if pa.types.is_date(kind.key_type) else [("a", [None, day])]]

    for day in (dt.date(2013, 1, 10), dt.date(1899, 12, 31)):
        path = write(tmp_path / "a.parquet", [0, 0, 0], visits=pa.array(visits(day), kind))
        with (
            nullcontext()
            if day.year > 1900
            else pytest.raises(DeclarationError, match=r"'visits' in .* before 1900")
        ):
            refuse_old_dates([str(path)])


DATES = [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1899, 12, 31)]
WRITERS = [
    {SPARK_VERSION: version, **more}
    for version, more in itertools.product(
        [b"2.4.8", b"3.0.3", b"3.1.0", b"4.0.0"],
        [{}, {OLD_CALENDAR: b""}, {OLD_CALENDAR_OF_INT96: b""}],
    )
]


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.parametrize("int96", [False, True])
def test_each_file_that_spark_and_arrow_read_differently_is_found(spark, tmp_path, int96):
    times = [dt.datetime(day.year, day.month, day.day, 1, tzinfo=dt.UTC) for day in DATES]
    rows = {"at": pa.array(times, pa.timestamp("us", "UTC"))} | ({} if int96 else {"d": DATES})
    differing = 0
    for number, noted in enumerate([{}, *WRITERS]):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(
            pa.table(rows).replace_schema_metadata(noted),
            path,
            use_deprecated_int96_timestamps=int96,
        )
        by_spark = spark.read.parquet(str(path)).toArrow()
        by_arrow = pq.read_table(path, coerce_int96_timestamp_unit="us").cast(by_spark.schema)
        differs = by_spark.to_pylist() != by_arrow.to_pylist()
        differing += differs
        assert has_old_calendar(pq.read_metadata(path)) >= differs, noted
    assert 3 <= differing < len(WRITERS)


FOR_EVER = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)  # beyond what 64 bits of nanoseconds hold


def write_int96(path, **more):
    """A file with a time that means for ever, as Hive and Impala write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    until = pa.array([FOR_EVER], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"until": until, **more}), path, use_deprecated_int96_timestamps=True)
    return path


def test_a_preview_reads_a_time_in_int96_that_nanoseconds_cannot_hold(tmp_path):
    (row,) = first_rows(of_files([write_int96(tmp_path / "a.parquet")]), 1).to_pylist()
    assert row == {"until": FOR_EVER}


def test_a_copy_that_gives_columns_a_type_keeps_times_in_int96(tmp_path):
    files = [
        write_int96(tmp_path / "a.parquet", k=pa.nulls(1)),
        write_int96(tmp_path / "b.parquet", k=["text"]),
    ]
    day = of_files(files, folder=str(tmp_path / "copies"))
    assert [row["until"] for row in first_rows(day, 2).to_pylist()] == [FOR_EVER, FOR_EVER]


def test_labels_with_times_in_int96_are_read(tmp_path):
    score = changed_only(tmp_path).lookups[0]
    ending = dataclasses.replace(score, returns="until TIMESTAMP")
    labels = write_int96(tmp_path / "labels.parquet", id=[1])
    found = read_labels(str(labels), changed_only(tmp_path), ending)
    assert found.answers == {(1,): {"until": FOR_EVER}}
