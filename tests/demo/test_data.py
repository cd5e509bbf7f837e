"""The facts of the demo's data, over the whole year, and what `python -m demo.data` promises."""

import contextlib
import sqlite3
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from demo import data

pytestmark = pytest.mark.slow

NEW_YORK = ZoneInfo("America/New_York")
IDENTITY = ["carrier", "flight", "origin", "scheduled_departure"]


@pytest.fixture(scope="module")
def rows(year):
    return year.select([*IDENTITY, "actual_departure", "date"]).to_pylist()


@pytest.fixture(scope="module")
def source():
    """The source's rows by their identity, the scheduled departure being local: (date, HHMM)."""
    flights = data.read("flights").select(
        ["year", "month", "day", "sched_dep_time", "carrier", "flight", "origin", "dep_time"]
    )
    rows = zip(*(column.to_pylist() for column in flights), strict=True)
    return {
        (carrier, flight, origin, date(y, m, d), hhmm): left
        for y, m, d, hhmm, carrier, flight, origin, left in rows
    }


def clock(time):
    """Local time of day as the source writes it: HHMM as a number, None for none."""
    return time and (local := time.astimezone(NEW_YORK)).hour * 100 + local.minute


def late(times):
    """How many of these event times lie more than an hour before the latest that stood
    before them.
    """
    count, latest = 0, times[0]
    for time in times:
        count += time < latest - timedelta(hours=1)
        latest = max(latest, time)
    return count


# -- the year
# --------------------------------------------------------------------------------------------------
def test_the_source_data_has_every_row_of_each_table(year):
    assert (year.num_rows, len(pc.unique(year["date"]))) == (336_776, 365)
    assert [data.read(name).num_rows for name in ("planes", "weather", "airports")] == [
        3_322,
        26_115,
        1_458,
    ]


def test_carrier_flight_origin_and_scheduled_departure_name_every_row_of_the_year(year):
    assert year.group_by(IDENTITY).aggregate([]).num_rows == year.num_rows


@pytest.mark.proof
def test_every_departure_is_the_local_time_of_the_source_in_utc_summer_and_winter(rows, source):
    reported = {
        (r["carrier"], r["flight"], r["origin"], r["date"], clock(r["scheduled_departure"])): clock(
            r["actual_departure"]
        )
        for r in rows
    }
    midnight = {2400: 0}
    assert reported == {key: midnight.get(left, left) for key, left in source.items()}


@pytest.mark.proof
def test_the_folder_of_a_flight_is_its_local_scheduled_date_also_when_it_leaves_after_midnight(
    rows,
):
    assert all(r["scheduled_departure"].astimezone(NEW_YORK).date() == r["date"] for r in rows)
    after_midnight = [
        r
        for r in rows
        if r["actual_departure"] and r["actual_departure"].astimezone(NEW_YORK).date() > r["date"]
    ]
    assert len(after_midnight) == 1_236


@pytest.mark.proof
def test_the_rows_of_a_date_are_in_the_order_of_actual_or_else_scheduled_departure(
    rows,
):
    left = [(r["date"], r["actual_departure"] or r["scheduled_departure"]) for r in rows]
    assert left == sorted(left)


def test_a_cancelled_flight_has_no_departure_and_no_delay(year):
    assert pc.sum(year["cancelled"]).as_py() == 8_255
    for column in ("actual_departure", "departure_delay_min"):
        assert pc.is_null(year[column]).equals(year["cancelled"])


@pytest.mark.proof
def test_7_6_percent_of_the_rows_are_late_at_a_bound_of_60_minutes(rows):
    by_date = groupby(rows, key=itemgetter("date"))
    count = sum(late([r["scheduled_departure"] for r in of_date]) for _, of_date in by_date)
    assert count == 25_748
    assert round(count / len(rows), 3) == 0.076


def test_15_6_percent_of_the_rows_find_no_plane_2512_of_them_without_a_tail_number(year):
    known = pc.is_in(year["tail_number"], value_set=data.read("planes")["tailnum"])
    without_plane = year.num_rows - pc.sum(known).as_py()
    assert (without_plane, year["tail_number"].null_count) == (52_606, 2_512)
    assert round(without_plane / year.num_rows, 3) == 0.156


def test_weather_is_metric_and_has_one_row_per_origin_and_utc_hour():
    weather = data.weather()
    assert weather.group_by(["origin", "hour"]).aggregate([]).num_rows == weather.num_rows
    first = weather.slice(0, 1).to_pylist()[0]
    assert (first["origin"], first["hour"]) == ("EWR", datetime(2013, 1, 1, 6, tzinfo=UTC))
    # 39.02 °F, 10.357 mph, 10 miles
    assert (first["temp_c"], first["wind_speed_ms"], first["visibility_m"]) == (3.9, 4.63, 16_093)


@pytest.mark.proof
def test_1556_flights_leave_in_an_hour_without_weather(rows):
    weather = {(row["origin"], row["hour"]) for row in data.weather().to_pylist()}
    hours = [(r["origin"], r["scheduled_departure"].replace(minute=0)) for r in rows]
    assert sum(hour not in weather for hour in hours) == 1_556


# -- the files
# --------------------------------------------------------------------------------------------------
def test_a_day_is_one_file_with_its_rows_in_feed_order_utc_timestamps_and_no_date_column(
    root, days, year
):
    for day in days:
        folder = root / "raw" / "flights" / f"date={day}"
        assert [path.name for path in folder.iterdir()] == ["part-00000.parquet"]
        table = pq.ParquetFile(folder / "part-00000.parquet").read()
        assert table.equals(
            year.filter(pc.equal(year["date"], pa.scalar(day))).drop_columns("date")
        )
        assert table.schema.field("scheduled_departure").type == pa.timestamp("us", "UTC")


def test_planes_db_finds_a_plane_by_its_tail_number(root):
    with contextlib.closing(sqlite3.connect(root / "demo" / "planes.db")) as database:
        assert database.execute("SELECT count(*) FROM planes").fetchone() == (3_322,)
        plane = "SELECT manufacturer, model, seats, speed FROM planes WHERE tailnum = 'N102UW'"
        assert database.execute(plane).fetchall() == [("AIRBUS INDUSTRIE", "A320-214", 182, None)]
        with pytest.raises(sqlite3.IntegrityError):
            database.execute("INSERT INTO planes (tailnum) VALUES ('N102UW')")


@pytest.fixture
def files(tmp_path):
    assert data.main(["--root", str(tmp_path), "--days", "2013-02-03"]) == 0
    return sorted(path for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.proof
def test_preparing_again_mends_damaged_files_and_touches_no_other_file(tmp_path, files):
    good = [path.read_bytes() for path in files]
    identities = [path.stat().st_ino for path in files]
    assert [path.name for path in files] == ["planes.db", "weather.parquet", "part-00000.parquet"]

    assert data.prepare(tmp_path, [date(2013, 2, 3)]) == (814, 0)
    assert [path.stat().st_ino for path in files] == identities

    planes, weather, day = files
    planes.write_bytes(b"not a database")
    weather.unlink()
    day.write_bytes(day.read_bytes()[:-1000])
    assert data.prepare(tmp_path, [date(2013, 2, 3)]) == (814, 3)
    assert [path.read_bytes() for path in files] == good


def test_preparing_again_mends_a_file_that_is_whole_but_wrong(tmp_path, files):
    day = files[-1]
    right = pq.ParquetFile(day).read()
    pq.write_table(right.slice(1), day)
    with contextlib.closing(sqlite3.connect(files[0])) as database, database:
        database.execute("UPDATE planes SET seats = 1 WHERE tailnum = 'N102UW'")
    assert data.prepare(tmp_path, [date(2013, 2, 3)]) == (814, 2)
    assert pq.ParquetFile(day).read().equals(right)


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with (
        pytest.raises(UnicodeEncodeError),
        data.replacing(path) as unfinished,
        unfinished.open("w", encoding="ascii") as file,
    ):
        file.writelines(["new", "é"])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


@pytest.mark.parametrize(
    ("days", "sentence"),
    [
        (
            "2014-01-01",
            "demo.data: no flights on 2014-01-01: choose days from 2013-01-01 to 2013-12-31\n",
        ),
        (
            "10 Jan",
            (
                "demo.data: --days: '10 Jan' is not a date: write 2013-01-10, several with "
                "commas, or all\n"
            ),
        ),
    ],
)
def test_a_day_that_does_not_exist_is_refused_in_one_sentence(tmp_path, capsys, days, sentence):
    assert data.main(["--root", str(tmp_path), "--days", days]) == 2
    assert capsys.readouterr().err == sentence
    assert list(tmp_path.iterdir()) == []
