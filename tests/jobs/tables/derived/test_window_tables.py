"""A day with windows, from its input to its readers: written, checked, published after it, and
replaced with it.
"""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.commands.forgetting.forgotten_windows import remake_windows
from jobs.errors import DeclarationError, TidegateError
from jobs.run.day import run_day
from jobs.storage.parquet_files import parquet_source
from jobs.storage.stored_files import open_filesystem
from jobs.tables.derived.window_tables import publish_windows
from jobs.tables.publishing import publish
from jobs.tables.records.published_runs import last_published
from tests.support.places import everywhere, place_of
from tidegate import (
    AsyncFunctionLookup,
    Enrichment,
    EventTime,
    Input,
    Output,
    Session,
    Tumbling,
    Window,
)

pytestmark = pytest.mark.spark
DAY, NEXT = "2020-05-24", "2020-05-25"
MIDNIGHT = dt.datetime(2020, 5, 25, tzinfo=dt.UTC)


class Price:
    async def async_invoke(self, keys):
        return [{"price": float(keys["k"])}]


price = AsyncFunctionLookup(
    name="price",
    keys={"k": "id"},
    returns="price DOUBLE",
    timeout=5.0,
    max_concurrency=2,
    function=Price,
)
BY_MINUTE = Window(
    "by_minute",
    of=Tumbling(dt.timedelta(minutes=1)),
    key=["action"],
    sql="count(*) AS n, max(price) AS top",
)
SESSIONS = Window(
    "sessions", of=Session(dt.timedelta(seconds=30)), sql="sum(price) AS total", panes="all"
)


PLACE = "data/published"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(globals(), "PLACE", place_of(request, PLACE, in_spark=True))


def declared(*windows):
    return Enrichment(
        name="actions", input=Input(path="data/raw", row_id=["id"]), lookups=[price], ledger=None,
        windows=windows, event_time=EventTime("at", max_out_of_orderness=dt.timedelta(0)),
        output=Output(path=f"{PLACE}/actions"),
    )  # fmt: skip


def given(day, *files):
    """Files of (id, action, seconds from midnight)."""
    folder = Path(f"data/raw/date={day}")
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(files):
        ids, actions, seconds = zip(*rows, strict=True)
        times = [
            None if second is None else MIDNIGHT + dt.timedelta(seconds=second)
            for second in seconds
        ]
        table = {"id": ids, "action": actions, "at": pa.array(times, pa.timestamp("us", "UTC"))}
        pq.write_table(pa.table(table), folder / f"part-{number}.parquet")


def night(enrichment, day, run_id):
    """Run, checked, and published with its windows. Returns the verdicts of the windows' checks."""
    record = run_day(enrichment, day, run_id, checks="data_quality.day:check")
    record = publish(record)
    for window in enrichment.windows:
        publish_windows(enrichment, window, record)
    return {
        verdict.check: verdict
        for verdict in record.verdicts
        if verdict.check.endswith("windows_hold")
    }


def rows_of(name, *columns):
    rows = DeltaTable(f"{PLACE}/{name}").to_pyarrow_table().to_pylist()
    return sorted((tuple(row[column] for column in columns) for row in rows), key=str)


def at(seconds):
    return MIDNIGHT + dt.timedelta(seconds=seconds)


@everywhere("project", on_store=pytest.mark.proof)
def test_the_windows_of_a_day_are_written_checked_and_replaced_with_it(spark):
    enrichment = declared(BY_MINUTE, SESSIONS)
    given(
        DAY,
        [(1, "pv", -100), (2, "pv", -95), (3, "buy", -30)],
        [(4, "pv", -90), (5, None, None), (6, "buy", 20)],
    )
    given(NEXT, [(7, "pv", 10), (8, "pv", -5)])
    verdicts = night(enrichment, DAY, "r1")
    assert {verdict.status for verdict in verdicts.values()} == {"passed"}
    assert verdicts["by_minute__windows_hold"].sentence == (
        "6 rows in: 4 in 3 windows, 1 dropped, 1 without event time"
    )
    columns = ("action", "window_start", "n", "top", "window_rows", "date", "input_day")
    day, after = dt.date.fromisoformat(DAY), dt.date.fromisoformat(NEXT)
    of_day = [
        ("buy", at(-60), 1, 3.0, 1, day, day), ("buy", at(0), 1, 6.0, 1, after, day),
        ("pv", at(-120), 2, 2.0, 2, day, day),
    ]  # fmt: skip
    assert rows_of("by_minute", *columns) == of_day
    assert rows_of("by_minute__dropped", "id", "reason", "price", "watermark", "date") == [
        (4, "late", 4.0, at(-30) - dt.timedelta(milliseconds=1), day),
        (5, "no event time", 5.0, None, day),
    ]  # fmt: skip
    assert rows_of("sessions", "window_start", "window_end", "total", "fired", "pane") == [
        (at(-100), at(-65), 3.0, "on time", 0), (at(-30), at(0), 3.0, "on time", 0),
        (at(20), at(50), 6.0, "on time", 0),
    ]  # fmt: skip
    night(enrichment, NEXT, "r2")
    before_midnight = ("pv", at(0), 1, 7.0, 1, after, after)
    assert rows_of("by_minute", *columns) == sorted([*of_day, before_midnight], key=str)
    assert rows_of("by_minute__dropped", "id", "date")[-1] == (8, after)
    given(DAY, [(1, "pv", -100)], [(2, "pv", -95)])
    night(enrichment, DAY, "r3")
    assert rows_of("by_minute", *columns) == sorted(
        [("pv", at(-120), 2, 2.0, 2, day, day), before_midnight], key=str
    )
    assert [row[0] for row in rows_of("by_minute__dropped", "id")] == [8]
    for file in last_published("actions", DAY).facts.files:  # as `forget` leaves a day
        rows = pq.read_table(parquet_source(file))
        filesystem, path = open_filesystem(file)
        pq.write_table(rows.filter(pc.not_equal(rows["id"], 2)), path, filesystem=filesystem)
    remake_windows(enrichment, DAY)
    assert rows_of("by_minute", *columns) == sorted(
        [("pv", at(-120), 1, 1.0, 1, day, day), before_midnight], key=str
    )


def test_a_summary_that_does_not_fit_the_windows_is_refused_before_any_call(spark):
    given(DAY, [(1, "pv", -100)])
    wrong = {
        "count(nope) AS n": "window by_minute: its sql is wrong: [UNRESOLVED_COLUMN",
        "price AS p": "window by_minute: its sql is wrong: [MISSING_AGGREGATION]",
        "count(*) AS action": "window by_minute: sql: 'action' is a column of its key, or one that windows have",
        "count(*) AS `n.rows`": "window by_minute: 'n.rows' has a dot in its name. Rename the column",
        "count(*) AS window_rows": "window by_minute: sql: 'window_rows' is a column of its key, or one that windows",
    }
    for sql, message in wrong.items():
        with pytest.raises(DeclarationError) as refused:
            run_day(declared(replace(BY_MINUTE, sql=sql)), DAY, "r1")
        assert message in str(refused.value)
        assert str(refused.value).isprintable()
    with pytest.raises(
        DeclarationError,
        match=(
            r"window by_minute: key: no column 'acton' is "
            r"published. There are: id"
        ),
    ):
        run_day(declared(replace(BY_MINUTE, key=["acton"])), DAY, "r1")


def test_windows_missing_for_the_published_run_are_named_with_the_cure(spark):
    given(DAY, [(1, "pv", -100)])
    record = publish(run_day(declared(), DAY, "r1"))
    with pytest.raises(
        TidegateError,
        match=f"the published run of {DAY} made no windows by_minute. Remap the day",
    ):
        publish_windows(declared(BY_MINUTE), BY_MINUTE, record)
