"""What Flink's own WindowOperator did with scripts of rows: the sessions of a task, the check, the
plain model, Spark.

The traces were recorded from the classes of Flink 2.3.0 by benchmarks/record_windows.py.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_quality.rows.window_rules import Arrived, dropped_rows, find_windows
from jobs.schema.records import WindowFacts
from jobs.task.windows.session_windows import SessionWindows
from tests.jobs.run.windows.test_window_rows import EPOCH, day_of, made, reasons_of, table_of
from tests.support.window_model import Model, watermarks_of

RECORDED = Path(__file__).with_name("flink") / "window_traces.jsonl"
TRACES = [json.loads(line) for line in RECORDED.read_text().splitlines()]
SESSIONS = [trace for trace in TRACES if trace["kind"] == "session"]
IN_SPARK = [
    trace["name"]
    for trace in TRACES
    if trace["name"] in {"worked example, unkeyed", "drawn 1", "drawn 3"}
]
named = pytest.mark.parametrize("trace", TRACES, ids=[trace["name"] for trace in TRACES])


def reading_facts(trace, panes="all"):
    kind, size, every, lateness = (
        trace[name] for name in ("kind", "size_ms", "every_ms", "lateness_ms")
    )
    return WindowFacts("w", kind, size, every, lateness, ("action",), "count(*) AS n", panes)


def firings_of(trace):
    """(key, start, end, rows, fired, pane) of each, sorted as texts."""
    panes, found = Counter(), []
    for key, start, end, fired, rows, _ in trace["firings"]:
        found.append((key, start, end, len(rows), fired, panes[key, start, end]))
        panes[key, start, end] += 1
    return sorted(found, key=str)


def test_the_traces_include_late_firings_merges_and_dropped_rows_of_every_kind():
    assert len(TRACES) >= 40
    for kind in ("tumbling", "sliding", "session"):
        of_kind = [trace for trace in TRACES if trace["kind"] == kind]
        assert sum(bool(trace["dropped"]) for trace in of_kind) >= 5
        assert (
            sum(any(firing[3] == "late" for firing in trace["firings"]) for trace in of_kind) >= 5
        )


@named
def test_the_plain_model_makes_the_firings_that_flink_recorded(trace):
    model = Model(reading_facts(trace), trace["bound_ms"], trace["rows"])
    assert model.table() == firings_of(trace)
    rows = sorted(
        (key, start, end, fired, tuple(sorted(rows)))
        for key, start, end, fired, rows, _ in trace["firings"]
    )
    assert sorted(model.firings) == rows
    assert model.dropped == trace["dropped"]


@named
def test_the_check_expects_the_firings_that_flink_recorded(trace):
    keys = [key for key, _ in trace["rows"]]
    codes = np.array([sorted(set(keys)).index(key) for key in keys], np.int64)
    times = np.array([time for _, time in trace["rows"]], np.int64)
    arrived = Arrived.of(times, trace["bound_ms"], codes)
    found = find_windows(arrived, reading_facts(trace))
    first_keys = [keys[row] for row in found.first]
    table = zip(
        first_keys, found.start, found.end, found.rows, found.fired, found.pane, strict=True
    )
    assert sorted(table, key=str) == firings_of(trace)
    assert np.flatnonzero(dropped_rows(arrived, reading_facts(trace))).tolist() == trace["dropped"]


@pytest.mark.parametrize("trace", SESSIONS, ids=[trace["name"] for trace in SESSIONS])
def test_the_sessions_of_a_task_make_the_firings_that_flink_recorded(trace):
    watermarks = [-(2**60) if watermark == float("-inf") else watermark
                  for watermark in watermarks_of([time for _, time in trace["rows"]], trace["bound_ms"])]  # fmt: skip
    found, dropped = [], []
    for key in {key for key, _ in trace["rows"]}:
        firings = []
        sessions = SessionWindows(
            trace["size_ms"], trace["lateness_ms"], firings.append, all_panes=True
        )
        for number, (of, time) in enumerate(trace["rows"]):
            if of == key and not sessions.add(number, time, watermarks[number]):
                dropped.append(number)
        sessions.end()
        found += [
            (key, firing.start, firing.end, firing.fired, tuple(sorted(firing.rows)))
            for firing in firings
        ]
    assert sorted(found) == sorted((key, start, end, fired, tuple(sorted(rows)))
                                   for key, start, end, fired, rows,
                                   _ in trace["firings"])  # fmt: skip
    assert sorted(dropped) == trace["dropped"]


def same_in_spark(spark, folder, trace):
    day = day_of(spark, folder, [trace["rows"][:7], trace["rows"][7:]], trace["bound_ms"], EPOCH)
    windows, dropped = made(day, reading_facts(trace))
    assert table_of(windows, "all", EPOCH) == firings_of(trace)
    assert reasons_of(dropped)["late"] == len(trace["dropped"])


@pytest.mark.parametrize("name", IN_SPARK)
@pytest.mark.spark
def test_spark_makes_the_firings_that_flink_recorded(spark, tmp_path, name):
    same_in_spark(spark, tmp_path, next(trace for trace in TRACES if trace["name"] == name))


@named
@pytest.mark.proof
def test_spark_makes_every_firing_that_flink_recorded(spark, tmp_path, trace):
    same_in_spark(spark, tmp_path, trace)
