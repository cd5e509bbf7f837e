"""Random arrivals, bounds and lateness, split over files and tasks at random: windows equal the
plainest model.
"""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_quality.rows.watermarks import NO_TIME
from data_quality.rows.window_rules import Arrived, dropped_rows, find_windows
from jobs.schema import columns as schema
from jobs.schema.records import WindowFacts
from jobs.task.windows.arrival import arrivals, find_runs, read_arrived
from jobs.task.windows.session_windows import SessionWindows
from jobs.task.windows.windowless_rows import write_windowless
from tests.jobs.run.windows.test_window_rows import (
    EPOCH,
    MS,
    day_of,
    made,
    reasons_of,
    table_of,
    written,
)
from tests.support.examples import examples
from tests.support.window_model import Model, watermarks_of

NO_WATERMARK = -(2**60)


@st.composite
def windows(draw, kinds=("tumbling", "sliding", "session")):
    kind, size = draw(st.sampled_from(kinds)), draw(st.integers(1, 30))
    every = {"tumbling": size, "session": 0}.get(kind, draw(st.integers(1, size)))
    lateness, panes = draw(st.sampled_from([0, 1, 7, 40])), draw(st.sampled_from(["last", "all"]))
    return WindowFacts("w", kind, size, every, lateness, ("action",), "count(*) AS n", panes)


times = st.one_of(st.none(), st.integers(-60, 120))
rows = st.lists(st.tuples(st.sampled_from("ab"), times), min_size=1, max_size=40)
days = st.lists(rows, min_size=1, max_size=4)  # a list of rows for each file
bounds = st.sampled_from([0, 1, 5, 30])


def arrivals_of(folder, files, seed, bound):
    paths, counts = written(folder, files, seed, EPOCH)
    return arrivals(paths, [find_runs(path, "at") for path in paths], [*counts], "at", bound)


def in_order(files):
    return [row for file in files for row in file]


@given(windows(), days, bounds)
def test_the_check_computes_the_windows_of_the_plain_model(window, files, bound):
    arriving = in_order(files)
    model = Model(window, bound, arriving)
    moments = np.array([NO_TIME if time is None else time for _, time in arriving], np.int64)
    keys = np.array(["ab".index(key) for key, _ in arriving], np.int64)
    arrived = Arrived.of(moments, bound, keys)
    found = find_windows(arrived, window)
    extents = list(
        zip(
            (arriving[row][0] for row in found.first),
            found.start,
            found.end,
            found.rows,
            strict=True,
        )
    )
    if window.panes == "all":
        extents = [
            (*extent, *more)
            for extent, more in zip(extents, zip(found.fired, found.pane, strict=True), strict=True)
        ]
    assert sorted(extents, key=str) == model.table()
    assert np.flatnonzero(dropped_rows(arrived, window)).tolist() == model.dropped


@given(windows(kinds=["session"]), days, bounds)
def test_the_sessions_of_a_task_equal_the_plain_model(window, files, bound):
    arriving = in_order(files)
    model = Model(window, bound, arriving)
    watermarks = watermarks_of([time for _, time in arriving], bound)
    found, dropped = [], []
    for key in "ab":
        each = []
        sessions = SessionWindows(
            window.size_ms, window.lateness_ms, each.append, all_panes=window.panes == "all"
        )
        for number, (of, time) in enumerate(arriving):
            if of == key and time is not None:
                kept = sessions.add(number, time, max(NO_WATERMARK, watermarks[number]))
                dropped += [] if kept else [number]
        sessions.end()
        found += [
            (key, window.start, window.end, len(window.rows), window.fired, window.pane)
            for window in each
        ]
    assert (
        sorted((firing if window.panes == "all" else firing[:4] for firing in found), key=str)
        == model.table()
    )
    assert sorted(dropped) == model.dropped


@given(days, bounds, st.integers(0, 9))
def test_the_watermark_of_a_row_is_that_of_its_arrival_whatever_the_tasks(files, bound, seed):
    expected = watermarks_of([time for _, time in in_order(files)], bound)
    with tempfile.TemporaryDirectory() as folder:
        found = [
            read_arrived(arrivals) for arrivals in arrivals_of(Path(folder), files, seed, bound)
        ]
    before = np.cumsum([0, *(len(file) for file in files)])
    numbers = np.concatenate([before[part.places] + part.rows for part in found])
    watermarks = np.concatenate([part.watermarks for part in found])
    assert sorted(numbers.tolist()) == list(range(len(expected)))
    assert [max(NO_WATERMARK, watermark) for watermark in expected] == np.maximum(
        NO_WATERMARK, watermarks
    )[np.argsort(numbers)].tolist()


@given(windows(kinds=["tumbling", "sliding"]), days, bounds, st.integers(0, 9))
def test_the_rows_in_no_window_equal_the_plain_model(window, files, bound, seed):
    model = Model(window, bound, in_order(files))
    with tempfile.TemporaryDirectory() as folder:
        listed = [
            write_windowless(
                arrivals, ["action", "at"], window, f"{folder}/dropped-{number}.parquet"
            )
            for number, arrivals in enumerate(arrivals_of(Path(folder), files, seed, bound))
        ]
        found = [row for file in listed if file for row in pq.read_table(file[0]).to_pylist()]
        assert [file[1] for file in listed if file] == [
            pq.read_metadata(file[0]).num_rows for file in listed if file
        ]
    before = np.cumsum([0, *(len(file) for file in files)])
    first_of = {f"file:{folder}/in-{at}.parquet": int(before[at]) for at in range(len(files))}
    numbers = {reason: [] for reason in (schema.TOO_LATE, schema.NO_EVENT_TIME)}
    for row in found:
        numbers[row["reason"]].append(first_of[row[schema.SOURCE_FILE]] + row[schema.SOURCE_ROW])
        if row["reason"] == schema.TOO_LATE:
            assert row["window_start"] <= row["at"] < row["window_end"]
            assert row["window_end"] - MS <= row["watermark"]
    assert sorted(numbers[schema.TOO_LATE]) == model.dropped
    assert sorted(numbers[schema.NO_EVENT_TIME]) == model.untimed


@given(windows(), days, bounds)
@examples(40)
@pytest.mark.proof
def test_spark_computes_the_windows_of_the_plain_model(spark, window, files, bound):
    model = Model(window, bound, in_order(files))
    with tempfile.TemporaryDirectory() as folder:
        rows, dropped = made(day_of(spark, Path(folder), files, bound, EPOCH), window)
        assert table_of(rows, window.panes, EPOCH) == model.table()
        reasons = Counter(
            {schema.TOO_LATE: len(model.dropped), schema.NO_EVENT_TIME: len(model.untimed)}
        )
        assert reasons_of(dropped) == {
            name: reasons[name] for name in (schema.TOO_LATE, schema.NO_EVENT_TIME)
        }
