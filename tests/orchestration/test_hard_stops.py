"""A run that is cancelled or killed in the middle leaves no Spark, no half day, nothing in the way of the next run."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dagster import DagsterRunStatus
from deltalake import DeltaTable

from demo.weather_service import running
from jobs import records

pytestmark = [pytest.mark.spark, pytest.mark.proof]

TABLE = "data/published/flights_enriched"
IN_TIME = 240.0  # s; longer means a broken promise, not a slow machine


def run_day(day: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "orchestration.run_days", "flights_enriched_nightly", day]
    return subprocess.Popen([*command, "--outcomes", "outcomes.jsonl"], start_new_session=True)


def wait_for(condition) -> None:
    deadline = time.monotonic() + IN_TIME
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def in_the_middle(day: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        event = json.loads(records.progress_file("flights_enriched", day).read_text())
        return event["kind"] == "progress" and event["rows"] > 0.1 * event["rows_total"]
    return False


def processes_of_spark(root: Path) -> list[str]:
    """Command lines of all that Spark runs for this project: JVM, driver, workers; known by their environment."""
    mark, found = f"DAGSTER_HOME={root}/", []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_text().replace("\0", " ")
            if mark in (process / "environ").read_text() and ("spark" in command or "enrich_day" in command):
                found.append(command[:100])
    return found


@pytest.fixture
def slow_service(dagster_project, monkeypatch):
    """The services in their own time, so that a day has a middle."""
    data = dagster_project.root / "data" / "demo"
    with running(data, data / "slow_calls.jsonl") as service:
        monkeypatch.setenv("WEATHER_URL", service.url)
        yield service


def published_days() -> list[str]:
    if not DeltaTable.is_deltatable(TABLE):
        return []
    return [partition["date"] for partition in DeltaTable(TABLE).partitions()]


def last_run(project, day: str):
    (run,) = project.instance.get_runs(limit=1)
    assert run.tags["dagster/partition"] == day
    return run


@pytest.mark.parametrize(
    ("number", "day", "told"),
    [(signal.SIGTERM, "2013-01-10", "cancelled"), (signal.SIGKILL, "2013-01-11", "running")],
    ids=["cancelled", "killed with -9"],
)
def test_a_run_stopped_in_the_middle_leaves_nothing_and_the_day_can_be_run_again(
    dagster_project, slow_service, number, day, told
):
    process = run_day(day)
    try:
        wait_for(lambda: in_the_middle(day))
        assert processes_of_spark(dagster_project.root)
        process.send_signal(number)
        process.wait(IN_TIME)
        wait_for(lambda: not processes_of_spark(dagster_project.root))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    stopped = last_run(dagster_project, day)
    assert dagster_project.observed(stopped.run_id)[-1]["state"] == told
    assert dagster_project.materialized(stopped.run_id) == {}
    assert day not in published_days()

    assert run_day(day).wait(2 * IN_TIME) == 0
    assert last_run(dagster_project, day).status == DagsterRunStatus.SUCCESS
    assert day in published_days()
    ended = dagster_project.instance.get_run_by_id(stopped.run_id)
    assert ended.is_finished  # also the one that could say nothing any more
