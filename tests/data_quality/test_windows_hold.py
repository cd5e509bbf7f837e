"""The check of a table of windows: green for what the rows make, red for each fault planted in its
files.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_quality.checks import windows_hold
from data_quality.checks.windows_hold import WindowsHold
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from jobs.schema.records import DayFacts, DeclaredFacts, EventTimeFacts, WindowFacts, WrittenWindows

START = dt.datetime(2020, 5, 24, tzinfo=dt.UTC)
# key, s; 3 is late
ROWS = [("pv", 0), ("buy", 1), ("pv", 7), ("pv", 3), (None, 6), ("buy", None), ("buy", 12)]
HONEST = [("pv", 0, 5, 1), ("buy", 0, 5, 1), ("pv", 5, 10, 1), (None, 5, 10, 1), ("buy", 10, 15, 1)]
FIRINGS = [(*window, "on time", 0) for window in HONEST]
LISTED = (3, 5)  # numbers of the late row and of the one without an event time


def moment(seconds):
    return None if seconds is None else START + dt.timedelta(seconds=seconds)


def finding(
    folder,
    windows,
    *,
    panes="last",
    counts=(5, 1, 1),
    listed=LISTED,
    key="action",
    rows=ROWS,
    key_type=None,
):
    """What the check says of these rows when their files of windows hold `windows`."""
    source = str(folder / "in.parquet")
    keys, times = zip(*rows, strict=True) if rows else ((), ())
    at = pa.array([moment(time_) for time_ in times], pa.timestamp("us", "UTC"))
    given = pa.table({key.title(): pa.array(keys, key_type or pa.string()), "at": at})
    pq.write_table(given, source)
    files = pa.array([f"file:{source}"] * len(rows), pa.string())
    written = given.append_column(schema.SOURCE_FILE, files)
    written = written.append_column(schema.SOURCE_ROW, pa.array(range(len(rows)), pa.int64()))
    shuffled = [at for at in [3, 0, 6, 5, 2, 1, 4] if at < len(rows)]
    written = written.take(pa.array(shuffled, pa.int64()))
    made = write_windows(folder, windows, panes, counts, listed, key=key, key_type=key_type)
    window = WindowFacts("w", "tumbling", 5000, 5000, 0, (key,), "count(*) AS n", panes)
    declared = DeclaredFacts(
        enrichment="e", table="", input_path="", partition="date", mode="unordered", lookups=(),
        row_id=schema.SOURCE_IDENTITY, event_time=EventTimeFacts("at", 0.0), windows=(window,),
    )  # fmt: skip
    facts = DayFacts(
        declared, "2020-05-24", "r", (source,), (key, "at"), "", (), (), "", "", windows=made
    )
    day = WrittenDay.of_table(None, facts, written)
    check = WindowsHold(declared, window)
    # as of a file without row groups
    parts = [check.summarize(read(), day) for read in day.output.parts()] if rows else []
    return check.finding(parts, day)


def write_windows(folder, windows, panes, counts, listed, *, key, key_type=None):
    columns = list(zip(*windows, strict=True)) or [()] * 6
    times = pa.timestamp("us", "UTC")
    table = {
        key: pa.array(columns[0], key_type or pa.string()),
        schema.WINDOW_START: pa.array(map(moment, columns[1]), times),
        schema.WINDOW_END: pa.array(map(moment, columns[2]), times),
        "n": pa.array(columns[3], pa.int64()),
        schema.WINDOW_ROWS: pa.array(columns[3], pa.int64()),
    }
    if panes == "all":
        table |= {schema.FIRED: pa.array(columns[4]), schema.PANE: pa.array(columns[5], pa.int32())}
    pq.write_table(pa.table(table), folder / "windows.parquet")
    identity = {
        schema.SOURCE_FILE: [f"file:{folder}/in.parquet"] * len(listed),
        schema.SOURCE_ROW: listed,
    }
    pq.write_table(pa.table(identity), folder / "dropped.parquet")
    files = (str(folder / "windows.parquet"),) * bool(windows), (str(folder / "dropped.parquet"),)
    return (WrittenWindows("w", *files, len(windows), *counts),)


@pytest.mark.parametrize("panes", ["last", "all"])
def test_windows_computed_from_the_rows_are_green(tmp_path, panes):
    found = finding(tmp_path, FIRINGS if panes == "all" else HONEST, panes=panes)
    assert found.success
    assert found.sentence.startswith("7 rows in: 5 in 5 ")
    assert found.sentence.endswith(", 1 dropped, 1 without event time")


def test_a_day_without_an_event_time_has_no_windows_and_is_green(tmp_path):
    rows = [(key, None) for key, _ in ROWS]
    found = finding(tmp_path, [], counts=(0, 0, 7), listed=range(7), rows=rows)
    assert (found.success, found.sentence) == (
        True, "7 rows in: 0 in 0 windows, 0 dropped, 7 without event time"
    )  # fmt: skip


def test_a_day_without_rows_has_no_windows_of_a_key_and_is_green(tmp_path):
    found = finding(tmp_path, [], counts=(0, 0, 0), listed=(), rows=[])
    assert (found.success, found.sentence) == (
        True, "0 rows in: 0 in 0 windows, 0 dropped, 0 without event time"
    )  # fmt: skip


@pytest.mark.parametrize("key", ["times", "times_sum", "sign", "sign_sum", "0"])
def test_a_key_of_windows_may_have_any_name(tmp_path, key):
    assert finding(tmp_path, HONEST, key=key).success
    (wrong,) = finding(tmp_path, HONEST[1:], key=key).evidence
    assert (wrong[key], wrong["it_is"]) == ("pv", "not written")


def test_a_window_key_of_negative_zero_equals_zero(tmp_path):
    rows, windows = [(0.0, 0), (-0.0, 1), (1.0, 2)], [(-0.0, 0, 5, 2), (1.0, 0, 5, 1)]
    found = finding(
        tmp_path, windows, counts=(3, 0, 0), listed=(), rows=rows, key_type=pa.float64()
    )
    assert found.success, found.sentence


def test_a_window_key_may_be_a_struct(tmp_path):
    kind = pa.struct([("at", pa.float64()), ("name", pa.string())])
    zero, negative, one = ({"at": at, "name": "a"} for at in (0.0, -0.0, 1.0))
    rows, windows = [(zero, 0), (negative, 1), (one, 2), (None, 3)], [
        (negative, 0, 5, 2), (one, 0, 5, 1), (None, 0, 5, 1)
    ]  # fmt: skip
    facts = {"counts": (4, 0, 0), "listed": (), "rows": rows, "key_type": kind}
    assert finding(tmp_path, windows, **facts).success
    (wrong,) = finding(tmp_path, windows[1:], **facts).evidence
    assert (wrong["action"], wrong["it_is"]) == (zero, "not written")


def test_a_window_outside_the_calendar_is_shown_as_evidence():
    assert windows_hold._moment(10**15) == f"{10**15} ms"


FAULTS = {
    "a late row is counted": (
        [*HONEST[1:], ("pv", 0, 5, 2)],
        "2 windows are not those of the rows",
    ),
    "a window is missing": (HONEST[1:], "1 windows are not those of the rows"),
    "a window is doubled": ([*HONEST, HONEST[0]], "1 windows are not those of the rows"),
    "a window has another end": (
        [*HONEST[1:], ("pv", 0, 6, 1)],
        "2 windows are not those of the rows",
    ),
    "a window has another key": (
        [*HONEST[1:], ("cart", 0, 5, 1)],
        "2 windows are not those of the rows",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_windows_is_red_and_names_the_window(tmp_path, fault):
    windows, message = FAULTS[fault]
    found = finding(tmp_path, windows)
    assert found.success is False
    assert found.sentence.startswith(message)
    assert {"action", schema.WINDOW_START, schema.WINDOW_END, schema.WINDOW_ROWS, "it_is"} == set(
        found.evidence[0]
    )


def test_a_firing_that_claims_to_be_on_time_is_red(tmp_path):
    found = finding(tmp_path, [*FIRINGS[:-1], (*FIRINGS[-1][:4], "late", 0)], panes="all")
    assert found.success is False
    assert {row[schema.FIRED] for row in found.evidence} == {"late", "on time"}


@pytest.mark.parametrize(
    ("counts", "listed", "message"),
    [
        (
            (6, 0, 1),
            LISTED,
            (
                "6 rows in windows, and 5 by the event times; 0 rows dropped, and 1 by "
                "the event times"
            ),
        ),
        ((5, 1, 1), (3,), "1 row listed as in no window, which are not the 2 that are"),
        ((5, 1, 1), (3, 4), "2 rows listed as in no window, which are not the 2 that are"),
    ],
)
def test_a_window_table_whose_rows_do_not_add_up_is_red(tmp_path, counts, listed, message):
    found = finding(tmp_path, HONEST, counts=counts, listed=listed)
    assert (found.success, found.sentence) == (False, message)
