"""A run that is cancelled or killed in the middle leaves no Spark, no half day, nothing in the way
of the next run.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus, RunsFilter
from deltalake import DeltaTable

from demo.weather_service import running
from jobs.tables.records import run_records
from orchestration.dagster.assets.day_status import UNFINISHED
from tests.support.daemons import BIN, WORKSPACE, daemon

pytestmark = [pytest.mark.spark, pytest.mark.proof]

TABLE = "data/published/flights_enriched"
IN_TIME = 900.0  # s; longer means a broken promise, not a slow machine


def run_day(day: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "demo.run_days",
        "flights_enriched_nightly",
        day,
    ]
    return subprocess.Popen([*command, "--outcomes", "outcomes.jsonl"], start_new_session=True)


def wait_for(condition) -> None:
    deadline = time.monotonic() + IN_TIME
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def in_the_middle(day: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        event = json.loads(run_records.progress_file("flights_enriched", day).read_text())
        return event["kind"] == "progress" and event["rows"] > 0.1 * event["rows_total"]
    return False


def processes_of_spark(root: Path) -> list[str]:
    """Command lines of all that Spark runs for this project: JVM, driver, workers; known by their
    environment.
    """
    mark, found = f"DAGSTER_HOME={root}/", []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_text().replace("\0", " ")
            if mark in (process / "environ").read_text() and (
                "spark" in command or "enrich_day" in command
            ):
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
    ("number", "day", "reported"),
    [(signal.SIGTERM, "2013-01-10", "cancelled"), (signal.SIGKILL, "2013-01-11", "running")],
    ids=["cancelled", "killed with -9"],
)
def test_a_run_stopped_in_the_middle_leaves_no_process_and_the_day_can_be_rerun(
    dagster_project, slow_service, number, day, reported
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
    assert dagster_project.observed(stopped.run_id)[-1]["state"] == reported
    assert dagster_project.materialized(stopped.run_id) == {}
    assert day not in published_days()

    assert run_day(day).wait(2 * IN_TIME) == 0
    assert last_run(dagster_project, day).status == DagsterRunStatus.SUCCESS
    assert day in published_days()
    ended = dagster_project.instance.get_run_by_id(stopped.run_id)
    assert ended.is_finished  # also the one that could say nothing any more


# -- through Dagster's own daemon, queue, run workers and steps
# --------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Started:
    """The processes of one start of Spark: of the step, and of the run's worker that started the
    step.
    """

    guard: int
    step: int
    worker: int


def starts_of_spark(root: Path) -> list[Started]:
    """Every guard of this project that lives, with who started it: there is one per start
    of Spark.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            words = (process / "cmdline").read_text().split("\0")
            if (
                any(word.endswith("guard.py") for word in words[:4])
                and f"{root}/" in (process / "environ").read_text()
            ):
                if not any(word.endswith("spark-submit") for word in words):
                    continue
                step = int(words[4])
                worker = int(Path(f"/proc/{step}/stat").read_text().rpartition(")")[2].split()[1])
                found.append(Started(int(process.name), step, worker))
    return found


def sessions_with_java(root: Path) -> set[str]:
    """One session per Spark; in it a JVM shows twice for the moment in which it starts a
    process.
    """
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            first = (process / "cmdline").read_text().split("\0")[0]
            if (
                first.endswith("java")
                and f"DAGSTER_HOME={root}/" in (process / "environ").read_text()
            ):
                found.add((process / "stat").read_text().rpartition(")")[2].split()[3])
    return found


class Watching(threading.Thread):
    """Looks all the time how many Sparks of the project there are."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.most = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.most = max(self.most, len(sessions_with_java(self.root)))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def ask_for(day: str) -> None:
    """A run as the schedule asks for it; one of a backfill Dagster does not start again."""
    asked = ["job", "launch", "-w", WORKSPACE, "-j", "flights_enriched_nightly"]
    subprocess.run(
        [BIN / "dagster", *asked, "--tags", json.dumps({"dagster/partition": day})], check=True
    )


def claimed_slots(project) -> list:
    return list(project.instance.event_log_storage.get_concurrency_info("spark").claimed_slots)


@pytest.mark.parametrize(("killed", "day"), [("step", "2013-01-12"), ("worker", "2013-01-13")])
def test_a_killed_run_leaves_no_spark_and_no_slot_and_its_retry_starts_by_itself(
    dagster_project, slow_service, killed, day
):
    root = dagster_project.root
    with daemon(), Watching(root) as watching:
        ask_for(day)
        wait_for(lambda: in_the_middle(day))
        (first,) = starts_of_spark(root)
        os.kill(getattr(first, killed), signal.SIGKILL)
        wait_for(lambda: first.guard not in [start.guard for start in starts_of_spark(root)])
        wait_for(lambda: day in published_days())  # tried once more by itself
        wait_for(lambda: not claimed_slots(dagster_project))
        wait_for(lambda: not dagster_project.instance.get_runs(RunsFilter(statuses=UNFINISHED)))
    words = dagster_project.instance.fetch_observations(
        dg.AssetKey("flights_enriched"), limit=50
    ).records
    of_day = [word.asset_observation for word in reversed(words) if word.partition_key == day]
    reported = [observation.metadata["state"].value for observation in of_day]
    assert reported[-2:] == ["running", "published"]
    assert "cancelled" not in reported
    assert watching.most == 1
    assert processes_of_spark(root) == []


def test_a_killed_and_restarted_daemon_publishes_the_day_and_frees_its_slot(
    dagster_project, slow_service
):
    day = "2013-01-14"  # that no other test has run: a day whose answers are known has no middle
    with daemon() as guard, Watching(dagster_project.root) as watching:
        ask_for(day)
        wait_for(lambda: in_the_middle(day))
        (killed,) = Path(f"/proc/{guard.pid}/task/{guard.pid}/children").read_text().split()
        os.kill(int(killed), signal.SIGKILL)
        guard.wait()
        with daemon():
            wait_for(lambda: not dagster_project.instance.get_runs(RunsFilter(statuses=UNFINISHED)))
            wait_for(lambda: not claimed_slots(dagster_project))
            if day not in published_days():
                # the run that was cut off says so; asked for again, nothing stands in its way
                ask_for(day)
                wait_for(lambda: day in published_days())
                wait_for(lambda: not claimed_slots(dagster_project))
    assert watching.most == 1
    assert processes_of_spark(dagster_project.root) == []
