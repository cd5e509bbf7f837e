"""Airflow's own scheduler over a month: the state of each day, its events, the calls at the
service, and the rows.
"""

import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.jobs.commands.conftest import Towns
from tests.support.airflow_home import AirflowHome, manifest_of
from tests.support.sources import ROOT

pytestmark = [pytest.mark.process, pytest.mark.proof]

COUNT = 30
DAYS = [f"2026-01-{number:02}" for number in range(1, COUNT + 1)]
RED, WITHOUT_INPUT, DOWN = DAYS[4], DAYS[6], DAYS[8]
# days whose task gets a signal half way: Airflow's own, and one that nobody can answer
ENDED = {DAYS[2]: signal.SIGTERM, DAYS[10]: signal.SIGKILL}
PATIENCE = 3600.0  # s, for all of it
DECLARED = """
from datetime import timedelta
from tidegate import Outage
weather = replace(weather, service=replace(
    weather.service, outage=Outage(probe_every=timedelta(seconds=0.5), wait_at_most=timedelta(seconds=2))
))
towns = replace(
    towns, lookups=[weather], schedule="15 2 * * *", publish_by="{publish_by}", start="2026-01-01", end="2026-02-01"
)
"""
CONSUMER = """
from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, task

with DAG("after_towns", schedule=PartitionedAssetTimetable(assets=Asset.ref(name="towns"))):
    @task
    def look(dag_run=None):
        print(dag_run.partition_key)

    look()
"""


class Weather(ThreadingHTTPServer):
    """Counts its requests by town: `/v1/town-1203` is of day 12. slow: s, of an answer, where the
    task is ended.
    """

    daemon_threads = True
    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), WeatherHandler)
        # of a town, and the status of the answer
        self.requests: Counter[tuple[str, int]] = Counter()
        self.down, self.slow = True, dict.fromkeys(ENDED, 1.0)

    def status(self, town: str) -> int:
        if day_of(town) == RED and int(town[5:]) % 100 < 5:
            return 500
        return 503 if day_of(town) == DOWN and self.down else 200

    def calls(self, day: str, status: int = 200) -> Counter[str]:
        found = self.requests.copy().items()
        return Counter(
            {town: count for (town, was), count in found if day_of(town) == day and was == status}
        )


def day_of(town: str) -> str:
    return DAYS[int(town[5:]) // 100]


class WeatherHandler(BaseHTTPRequestHandler):
    server: Weather

    def do_GET(self) -> None:
        town = self.path.rpartition("/")[2]
        time.sleep(self.server.slow.get(day_of(town), 0.0))
        status = self.server.status(town)
        self.server.requests[town, status] += 1
        answer = json.dumps({"temp_c": float(town[5:])}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def weather():
    with Weather() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


def rows_in(day: str) -> int:
    return 40 if day in ENDED else 10


def project(folder: Path, publish_by: str) -> Path:
    """The month's input: ten rows a day, of ten towns of its own; forty where the task is ended
    half way.
    """
    folder.mkdir()
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        towns = Towns()
        towns.declare()
        towns.declare_too(*DECLARED.format(publish_by=publish_by).splitlines())
        for number, day in enumerate(DAYS):
            if day != WITHOUT_INPUT:
                towns.write_input(day, [100 * number + row for row in range(rows_in(day))])
    return folder


@pytest.fixture(scope="module")
def month(tmp_path_factory, weather):
    """The month as Airflow's scheduler has run it, from one backfill."""
    root = tmp_path_factory.mktemp("month")
    # so that tries go on for 22 hours
    long_before = f"{dt.datetime.now(dt.UTC) - dt.timedelta(hours=2):%H:%M}"
    folder = project(root / "project", long_before)
    manifest = manifest_of(folder) | {"again_after_s": 5.0}
    environment = {"WEATHER_URL": f"http://127.0.0.1:{weather.server_port}"}
    home = AirflowHome(root / "airflow", manifest, environment, CONSUMER)
    home.airflow("pools", "set", "spark", "2", "Sparks at once")
    with home.standalone() as server:
        until = time.monotonic() + PATIENCE
        wait(until, server, lambda: len(home.rows("select 1 from dag where not is_stale")) == 2)
        home.airflow("dags", "unpause", "towns")
        home.airflow("dags", "unpause", "after_towns")
        command = [
            "backfill",
            "create",
            "--dag-id",
            "towns",
            "--from-date",
            DAYS[0],
            "--to-date",
            f"{DAYS[-1]}T23:59",
        ]
        home.airflow(*command, "--max-active-runs", "4")
        trees = {}
        for day in ENDED:
            threading.Thread(
                target=end_task, args=(day, folder, weather, until, trees), daemon=True
            ).start()

        def over() -> bool:
            if tries(home).get(DOWN, 0) >= 3:
                weather.down = False
            states = [state for _, state in runs(home)]
            return len(states) == COUNT and not {"queued", "running"} & set(states)

        wait(until, server, over)
        consumed = (
            "select partition_key from dag_run where dag_id = 'after_towns' and state = 'success'"
        )
        wait(time.monotonic() + 120, server, lambda: len(home.rows(consumed)) >= COUNT - 2)
    return folder, home, trees


def wait(until, server, condition):
    while not condition():
        assert server.poll() is None, "Airflow has ended"
        assert time.monotonic() < until, "it did not come true"
        time.sleep(1.0)


def end_task(day, folder, weather, until, trees):
    """A signal to the task of the day, once its Spark has calls in flight. Its whole tree is kept
    for the test.
    """
    while time.monotonic() < until:
        if weather.calls(day).total() >= 8:
            for process in psutil.process_iter(["cmdline"]):
                words = process.info["cmdline"] or []
                if "tidegate" in words and day in words and process.cwd() == str(folder):
                    trees[day] = [process, *process.children(recursive=True)]
                    weather.slow[day] = 0.1
                    process.parent().send_signal(ENDED[day])
                    return
        time.sleep(0.1)


def runs(home):
    return home.rows("select partition_key, state from dag_run where dag_id = 'towns'")


def tries(home):
    query = (
        "select r.partition_key, t.try_number from task_instance t join dag_run r using "
        "(dag_id, run_id)"
    )
    return dict(home.rows(f"{query} where t.dag_id = 'towns'"))


PUBLISHED = [day for day in DAYS if day not in (RED, WITHOUT_INPUT)]


def test_each_day_ends_in_the_expected_state_after_the_expected_tries(month):
    home = month[1]
    assert dict(runs(home)) == {day: "failed" if day == RED else "success" for day in DAYS}
    query = (
        "select r.partition_key, t.state from task_instance t join dag_run r using (dag_id, run_id)"
    )
    states = dict(home.rows(f"{query} where t.dag_id = 'towns'"))
    assert {day: state for day, state in states.items() if state != "success"} == {
        RED: "failed",
        WITHOUT_INPUT: "skipped",
    }
    assert tries(home) == {day: 3 if day == DOWN else 2 if day in ENDED else 1 for day in DAYS}


def test_only_published_days_have_events_and_start_waiting_dags(
    month,
):
    home = month[1]
    query = (
        "select e.partition_key, e.extra from asset_event e join asset a on a.id = e.asset_id "
        "where a.name = ?"
    )
    events = dict(home.rows(query, "towns"))
    assert sorted(events) == PUBLISHED
    figures = {day: json.loads(extra) for day, extra in events.items()}
    assert {day: event["rows"] for day, event in figures.items()} == {
        day: rows_in(day) for day in PUBLISHED
    }
    undisturbed = set(PUBLISHED) - {DOWN, *ENDED}
    assert {day: figures[day]["calls"] for day in undisturbed} == dict.fromkeys(undisturbed, 10)
    assert len({figure["version"] for figure in figures.values()}) == len(PUBLISHED)
    assert sorted(day for day, _ in home.rows(query, "by_town")) == PUBLISHED
    consumed = home.rows(
        "select partition_key from dag_run where dag_id = 'after_towns' and state = 'success'"
    )
    assert sorted(day for (day,) in consumed) == PUBLISHED


def test_the_service_was_called_once_for_each_key_except_those_in_flight_at_the_kill(
    month, weather
):
    for day in PUBLISHED:
        calls = weather.calls(day)
        assert len(calls) == rows_in(day)
        again = calls.total() - len(calls)
        # in flight, and one flush interval of half a second
        assert again <= (4 + 8 if day in ENDED else 0)
    assert weather.calls(RED, 500).total() == 5
    assert weather.calls(RED).total() == 5


@pytest.mark.parametrize("day", ENDED)
def test_an_ended_task_ends_its_spark(month, day):
    tree = month[2][day]
    assert len(tree) >= 4  # the command, its guard, Spark, Python
    assert [process for process in tree if process.is_running()] == []


def test_the_page_of_a_task_links_to_the_report(month):
    home = month[1]
    links = dict(home.rows(
        "select r.partition_key, x.value from xcom x join dag_run r using (dag_id, run_id) where "
        "x.key = ?",
        "_link_ReportLink",
    ))  # fmt: skip
    assert json.loads(links[RED]) == f"http://127.0.0.1:3070/reports/towns/{RED}/index.html"
    assert set(links) == set(DAYS)


def test_the_command_makes_the_same_tables_row_for_row(month, weather, tmp_path):
    by_airflow = month[0]
    weather.slow.clear()
    by_command = run_month(tmp_path, "command", weather)
    for table in ("towns", "by_town"):
        assert rows_of(by_airflow, table) == rows_of(by_command, table)
    assert len(rows_of(by_airflow, "towns")) == sum(map(rows_in, PUBLISHED))


def test_dagster_makes_the_same_tables_as_the_command_row_for_row(weather, tmp_path):
    weather.slow.clear()
    weather.down = False
    by_command, by_dagster = (run_month(tmp_path, name, weather) for name in BY)
    for table in ("towns", "by_town"):
        assert rows_of(by_command, table) == rows_of(by_dagster, table)
    assert len(rows_of(by_dagster, "towns")) == sum(map(rows_in, PUBLISHED))


BY = {
    "command": """
import argparse
import sys
from jobs.declare.finding.loading import load
from tidegate.commands.days import pipeline, tell
options = argparse.Namespace(wait=1.0, engine=None, conf=[])
days = pipeline("declared.towns:towns", load("declared.towns:towns"), options)
tell("towns", days.run(sys.argv[1:]))
""",
    "dagster": """
import sys
import dagster as dg
from tests.support.day_ranges import run_range, why_red
from tidegate.dagster import definitions_for
with dg.DagsterInstance.ephemeral() as instance:
    run = run_range(definitions_for("declared"), "towns_nightly", sys.argv[1], sys.argv[-1], instance)
    assert why_red(run).startswith("28 of 30 days published."), why_red(run)
""",
}


def run_month(folder, name, weather):
    """The month in a project of its own. Returns its folder."""
    root = project(folder / name, "06:30")
    paths = os.pathsep.join([str(root), str(ROOT)])
    environment = {
        **os.environ,
        "WEATHER_URL": f"http://127.0.0.1:{weather.server_port}",
        "PYTHONPATH": paths,
    }
    subprocess.run([sys.executable, "-c", BY[name], *DAYS], cwd=root, env=environment, check=True)
    return root


def rows_of(folder, table):
    """All rows of a table, but for when they were answered."""
    rows = DeltaTable(str(folder / "data" / "published" / table)).to_pyarrow_table().to_pylist()
    return sorted(
        str({key: value for key, value in row.items() if not key.endswith("_answered_at")})
        for row in rows
    )
