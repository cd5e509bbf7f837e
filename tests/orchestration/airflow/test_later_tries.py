"""What a later try of a task knows of the earlier ones, also after the task was cleared."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.airflow_home import printed_by

pytestmark = pytest.mark.process

# stands for the Python that the manifest names: prints the days of a try, and how it was asked
COMMAND = """#!{python}
import os, signal, sys, time
from pathlib import Path

number = len(list(Path().glob("asked-*"))) + 1
Path(f"asked-{{number}}").write_text(" ".join(sys.argv[3:]))
for line in Path(f"says-{{number}}").read_text().splitlines():
    if line == "killed":
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if line == "stopped":
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
    print(line)
sys.exit('"wrong"' in Path(f"says-{{number}}").read_text())
"""
# runs the operator for each try, as Airflow's worker does; Airflow keeps the state of a task
# through a clear, and gives the run another start
TRIES = """
import datetime as dt, json, signal
from collections import defaultdict
from types import SimpleNamespace
from tidegate_airflow import TidegateDay

class State(dict):
    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))
    def delete(self, key):
        del self[key]

class Event(SimpleNamespace):
    def add_partitions(self, days):
        self.days += days

def one_try(manifest, state, start, params):
    operator = TidegateDay(task_id="day", enrichment=manifest["enrichments"][0], manifest=manifest)
    signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())  # as Airflow has it
    results, events = {{}}, defaultdict(lambda: Event(days=[], extra={{}}))
    run = SimpleNamespace(partition_key="2026-01-05", start_date=dt.datetime.fromisoformat(start))
    context = {{
        "dag_run": run, "params": params, "task_state_store": state, "outlet_events": events,
        "ti": SimpleNamespace(xcom_push=lambda key, value: results.update({{key: value["state"]}})),
    }}
    try:
        operator.execute(context)
        end, outlets = "success", operator.outlets
    except Exception as error:
        end, outlets = f"{{type(error).__name__}}: {{error}}", []
    made = {{asset.name: sorted(events[asset].days) for asset in outlets}}
    return end, sorted(results), made, operator.report

manifest, starts, params, cases = json.loads({asked!r})
for name, (folder, count) in cases.items():
    state = State()
    for start in starts[:count]:
        print("TRY", json.dumps([name, *one_try(manifest | {{"folder": folder}}, state, start, params)]))
"""
STARTS = [f"2026-01-10T{hour:02}:15:00+00:00" for hour in (2, 7, 8, 9)]
REFRESH = {"mode": "refresh", "lookup": "weather", "where": "answer.temp_c = 0"}
KILLED = "killed"


class Try(NamedTuple):
    """How a try ended, its XComs, the days of each table's events, and its report."""

    end: str
    xcoms: list[str]
    events: dict[str, list[str]]
    report: str


def published(enrichment: str, day: str) -> str:
    figures = {"rows": 10, "calls": 8, "dead_letters": 0, "cost": {}, "version": 7}
    more = {"figures": figures, "summaries": {}, "unmade": [], "warnings": []}
    return result(enrichment, day, "published", **more)


def result(enrichment: str, day: str | None, state: str, **more: object) -> str:
    report = f"http://reports/{enrichment}/{day}"
    said = {
        "format": 1,
        "enrichment": enrichment,
        "day": day,
        "state": state,
        "reason": "It is so.",
    }
    return json.dumps(said | {"report": report} | more)


CASES = {  # what the command prints, per try
    "cleared": [[result("towns", "2026-01-05", "wrong")], [published("towns", "2026-01-05")]],
    "published before": [
        [published("towns", "2026-01-04"), result("towns", "2026-01-05", "wrong")],
        [published("towns", "2026-01-05"), published("ports", "2026-01-02"), KILLED],
        [published("towns", "2026-01-06")],
        [published("towns", "2026-01-06")],
    ],
    "of others": [[published("ports", "2026-01-05"), published("towns", "2026-01-05")]],
    "worst": [[result("ports", "2026-01-04", "wrong"), published("towns", "2026-01-05")]],
    "without a day": [[result("", None, "wrong")]],
    "killed": [[KILLED]],
    "stopped": [["stopped"]],
    "nothing": [["weather: 0 stored answers meet the condition."]],
    "unfinished line": [[" 50 % of the model is loaded" + published("towns", "2026-01-05")]],
    "unchanged since": [
        [published("towns", "2026-01-05"), KILLED],
        [result("towns", "2026-01-05", "unchanged")],
    ],
    "another day": [[published("towns", "2026-01-05")]],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("later_tries")
    for name, tries in CASES.items():
        (root / name).mkdir()
        for number, lines in enumerate(tries, 1):
            (root / name / f"says-{number}").write_text("\n".join(lines))
    return root


@pytest.fixture(scope="module")
def tried(folder: Path) -> dict[str, list[Try]]:
    command = folder / "command"
    # resolved, as the path of a virtual environment may have spaces
    command.write_text(COMMAND.format(python=Path(sys.executable).resolve()))
    command.chmod(0o755)
    entries = [
        {
            "name": name,
            "reference": f"declared:{name}",
            "input": f"file:///{name}/input",
            "table": f"file:///{name}",
            "dead_letters": None,
            "summaries": {},
            "publish_by": None,
            "zone": "UTC",
            "modes": ["nightly", "refresh"],
        }
        for name in ("towns", "ports")
    ]
    manifest = {
        "enrichments": entries,
        "package": "declared",
        "python": str(command),
        "again_after_s": 900.0,
    }
    cases = {name: (str(folder / name), len(tries)) for name, tries in CASES.items()}
    other_day = {"another day": cases.pop("another day")}
    scripts = [
        TRIES.format(asked=json.dumps([manifest, STARTS, params, some]))
        for params, some in ((REFRESH, cases), ({"day": "2026-01-06"}, other_day))
    ]
    ended: dict[str, list[Try]] = {}
    for line in printed_by("\n".join(scripts), folder, "TRY"):
        name, *rest = json.loads(line.removeprefix("TRY "))
        ended.setdefault(name, []).append(Try(*rest))
    return ended


def test_a_cleared_refresh_leaves_out_answers_since_its_first_start(tried, folder):
    first, second = ((folder / "cleared" / f"asked-{number}").read_text() for number in (1, 2))
    assert f"--answered-before {STARTS[0]}" in first
    assert second == first


def test_days_that_failed_tries_published_have_events_once_a_try_succeeds(tried):
    first, second, third, fourth = (run.events for run in tried["published before"])
    assert (first, second) == ({}, {})
    assert third == {"towns": [f"2026-01-0{day}" for day in (4, 5, 6)], "ports": ["2026-01-02"]}
    assert fourth == {"towns": ["2026-01-06"]}


def test_a_try_that_has_nothing_left_to_do_makes_the_events_of_the_try_before(tried):
    first, second = tried["unchanged since"]
    assert first.end.startswith("DayCrashed: ")
    assert (second.end, second.events) == ("success", {"towns": ["2026-01-05"]})


def test_a_refresh_has_an_xcom_and_an_event_for_each_affected_day(tried):
    (refreshed,) = tried["of others"]
    assert refreshed.end == "success"
    assert refreshed.xcoms == ["tidegate_2026-01-05", "tidegate_ports_2026-01-05"]
    assert refreshed.events == {"towns": ["2026-01-05"], "ports": ["2026-01-05"]}


def test_a_result_behind_an_unfinished_line_of_a_library_is_read(tried):
    (ended,) = tried["unfinished line"]
    assert (ended.end, ended.events) == ("success", {"towns": ["2026-01-05"]})


def test_a_failed_task_links_the_report_of_its_worst_day_and_says_to_clear_it(tried):
    (failed,) = tried["worst"]
    assert failed.end.startswith("AirflowFailException: ports 2026-01-04: wrong: It is so.")
    assert "clear this task: stored answers are not paid for again." in failed.end
    assert failed.report == "http://reports/ports/2026-01-04"


def test_an_error_without_a_day_names_no_day(tried):
    (failed,) = tried["without a day"]
    assert failed.end.startswith("AirflowFailException: wrong: It is so.")
    assert failed.xcoms == ["tidegate_2026-01-05"]


def test_the_reason_of_a_killed_command_names_the_signal(tried):
    (killed,) = tried["killed"]
    assert "ended by signal 9 (Killed), perhaps because memory ran out." in killed.end


def test_a_task_that_airflow_stops_does_not_say_that_it_crashed_and_is_run_again(tried):
    (stopped,) = tried["stopped"]
    assert stopped.end.startswith("DayCrashed: towns 2026-01-05: stopped: somebody marked or")
    assert "If Airflow does not run the day again by itself, clear this task" in stopped.end


def test_a_refresh_whose_condition_no_answer_meets_is_skipped(tried):
    (skipped,) = tried["nothing"]
    assert skipped.end == "AirflowSkipException: No day was run: the log above says why."


def test_a_run_whose_conf_names_another_day_than_its_partition_key_is_refused(tried, folder):
    (refused,) = tried["another day"]
    assert "Two days are named, 2026-01-05 and 2026-01-06" in refused.end
    assert not (folder / "another day" / "asked-1").exists()
