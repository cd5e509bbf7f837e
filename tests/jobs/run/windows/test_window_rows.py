"""Windows of a day: those of the plainest model, whatever tasks read its rows and wherever they
wrote them.
"""

import datetime as dt
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.run.engines.engine import SparkEngine
from jobs.run.windows.window_rows import END, START, WindowedDay, aggregated
from jobs.schema import columns as schema
from jobs.schema.records import DeclaredFacts, EventTimeFacts, WindowFacts
from jobs.task.windows.arrival import read_arrived
from tests.support.sources import ROOT
from tests.support.variants import first_of
from tests.support.window_model import Model
from tidegate import Session, Sliding, Tumbling, Window

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "windows.md").read_text()

# a multiple of every size
NOON = dt.datetime(2020, 5, 24, 4, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MS = dt.timedelta(milliseconds=1)
KINDS = (Tumbling(1000 * MS), Sliding(1000 * MS, 400 * MS), Session(300 * MS))
CASES = [
    {"of": of, "lateness": lateness, "panes": panes, "key": key}
    for of in KINDS
    for lateness, panes, key in (
        (0, "last", ("action",)),
        (700, "last", ()),
        (700, "all", ("action",)),
    )
]


def window(*, of, key=("action",), lateness=0, panes="last"):
    return Window(
        "w", of=of, key=key, sql="count(*) AS n", allowed_lateness=lateness * MS, panes=panes
    )


def written(folder, files, seed, start=NOON):
    """Files of a run whose input had these files, each a list of (key, ms from `start` or None).
    Returns them, and the input's rows by path.
    """
    rows = [
        {
            "action": key,
            "at": None if time is None else start + time * MS,
            **identity(folder, at, row),
        }
        for at, file in enumerate(files)
        for row, (key, time) in enumerate(file)
    ]
    drawn = random.Random(seed)
    drawn.shuffle(rows)
    kinds = [("action", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    kinds += [(schema.SOURCE_FILE, pa.string()), (schema.SOURCE_ROW, pa.int64())]
    cut = drawn.randint(0, len(rows))
    paths = []
    for number, part in enumerate((rows[:cut], rows[cut:])):
        paths.append(str(folder / f"out-{number}.parquet"))
        pq.write_table(pa.Table.from_pylist(part, pa.schema(kinds)), paths[-1], row_group_size=17)
    return paths, {f"{folder}/in-{at}.parquet": len(file) for at, file in enumerate(files)}


def identity(folder, file, row):
    return {schema.SOURCE_FILE: f"file:{folder}/in-{file}.parquet", schema.SOURCE_ROW: row}


def day_of(spark, folder, files, bound, start=NOON):
    paths, counts = written(folder, files, 0, start)
    declared = DeclaredFacts(
        enrichment="w", table=str(folder), input_path="", partition="date", mode="unordered",
        lookups=(), row_id=schema.SOURCE_IDENTITY, event_time=EventTimeFacts("at", bound / 1000),
    )  # fmt: skip
    return WindowedDay.of(
        SparkEngine(spark), declared, paths, [*counts], ["action", "at"], str(folder / "windows")
    )


def millis(moment, start=NOON):
    return None if moment is None else (moment.astimezone(dt.UTC) - start) // MS


def table_of(windows, panes, start=NOON):
    found = []
    for row in windows:
        extent = millis(row["window_start"], start), millis(row["window_end"], start)
        one = (row.asDict().get("action"), *extent, row["window_rows"])
        assert row["n"] == row["window_rows"]
        assert row["date"] == row["window_start"].astimezone(dt.UTC).date()
        found.append(one if panes == "last" else (*one, row["fired"], row["pane"]))
    return sorted(found, key=str)


def made(day, facts):
    """The rows of the table of windows, and the rows that are in none, as dicts."""
    windows = day.windows(facts).collect()
    return windows, [
        row for file, _ in day.write_windowless(facts) for row in pq.read_table(file).to_pylist()
    ]


def reasons_of(dropped):
    rows = [row["reason"] for row in dropped]
    return {reason: rows.count(reason) for reason in (schema.TOO_LATE, schema.NO_EVENT_TIME)}


def drawn_files(seed, files=3, rows=60):
    drawn, moment, found = random.Random(seed), 0, []
    for _ in range(files):
        file = []
        for _ in range(rows):
            moment += drawn.randint(0, 150)
            time = max(0, moment - drawn.choice([0, 0, 0, 100, 500, 1500, 3000]))
            file.append((drawn.choice(["a", "b", None]), None if drawn.random() < 0.05 else time))
        found.append(file)
    return found


def test_the_page_shows_the_windows_and_watermarks_of_the_worked_example(spark, tmp_path):
    (page,) = re.findall(r"^## A worked example$(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    told = lines[2:]
    day = day_of(spark, tmp_path, [[(cells[1], 1000 * int(cells[2])) for cells in told]], 0)
    windows, dropped = made(day, window(of=Tumbling(5000 * MS)).facts())
    assert table_of(windows, "last") == [
        ("buy", 5000, 10000, 2), ("cart", 0, 5000, 1), ("cart", 5000, 10000, 1), ("pv", 0, 5000, 2),
        ("pv", 5000, 10000, 2),
    ]  # fmt: skip
    (late,) = dropped
    assert (late["action"], millis(late["at"]), millis(late["window_end"])) == ("buy", 3000, 5000)
    assert [cells[0] for cells in told if cells[3] == "dropped"] == ["3"]
    assert told[0][4:] == ["none", "none"]
    theirs, ours = ([float(cells[place]) for cells in told[1:]] for place in (4, 5))
    assert [round(1000 * (one - other)) for one, other in zip(theirs, ours, strict=True)] == [1] * 8
    assert watermarks(day)[1:] == [round(1000 * our) for our in ours]


def watermarks(day):
    """In force as each row arrived, in ms from NOON, in the order of the input."""
    arrived = [read_arrived(arrival) for arrival in day.arrivals]
    rows = [pair for part in arrived for pair in zip(part.rows, part.watermarks, strict=True)]
    return [int(at) - (NOON - EPOCH) // MS for _, at in sorted(rows)]


@pytest.mark.parametrize("case", first_of([*CASES[::4], *CASES[1:4], *CASES[5:8]], 3), ids=str)
def test_windows_equal_the_plain_model(spark, tmp_path, case):
    files, facts = drawn_files(repr(case)), window(**case).facts()
    model = Model(
        facts, 200, [(key if facts.key else None, time) for file in files for key, time in file]
    )
    assert model.dropped
    assert model.untimed
    assert facts.panes == "last" or any(firing[3] == "late" for firing in model.firings)
    windows, dropped = made(day_of(spark, tmp_path, files, 200), facts)
    assert table_of(windows, facts.panes) == model.table()
    assert reasons_of(dropped) == {
        schema.TOO_LATE: len(model.dropped),
        schema.NO_EVENT_TIME: len(model.untimed),
    }


def test_a_window_belongs_to_the_day_of_its_start_in_the_declared_zone(spark):
    starts = [
        dt.datetime(2026, 10, 24, 21, 59, tzinfo=dt.UTC),
        dt.datetime(2026, 10, 24, 22, 0, tzinfo=dt.UTC),
    ]
    rows = spark.createDataFrame(
        [(int(at.timestamp() * 1000), int(at.timestamp() * 1000) + 1) for at in starts],
        [START, END],
    )
    for zone, days in (("UTC", [24, 24]), ("Europe/Berlin", [24, 25])):
        facts = WindowFacts("w", "tumbling", 1, 1, 0, (), "count(*) AS n", "last", zone)
        found = aggregated(rows, facts, "date").orderBy(schema.WINDOW_START).collect()
        assert [row["date"] for row in found] == [dt.date(2026, 10, day) for day in days]


def test_a_window_that_starts_outside_the_years_1_to_9999_has_the_nearest_day_of_them(spark):
    moments = [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC)]
    starts = [(moment - EPOCH) // MS for moment in moments]
    rows = spark.createDataFrame([(start, start + 1) for start in starts], [START, END])
    for zone in ("America/New_York", "Asia/Tokyo"):
        facts = WindowFacts("w", "tumbling", 1, 1, 0, (), "count(*) AS n", "last", zone)
        found = aggregated(rows, facts, "date").orderBy(schema.WINDOW_START)
        days = [
            str(row["day"]) for row in found.selectExpr("CAST(date AS STRING) AS day").collect()
        ]
        assert days == ["0001-01-01", "9999-12-31"]
