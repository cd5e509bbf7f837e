"""What Airflow makes of a day, by what the command said of it: its own code runs the task, a script
is the command.
"""

import datetime as dt
import json
import re
import sys
from pathlib import Path

import pytest

from tests.jobs.commands.conftest import towns_in
from tests.support.airflow_home import AirflowHome
from tests.support.sources import ROOT
from tidegate.__main__ import main

pytestmark = [pytest.mark.process, pytest.mark.proof]

# stands for the Python that the manifest names: what it is to say is in a file per day, a line for
# each time, in which tabs divide what it says of several days
COMMAND = """#!{python}
import json, os, signal, sys
from pathlib import Path

words = sys.argv[3:]
with Path({asked!r}).open("a") as log:
    print(*words, file=log)
day = next(word for before, word in zip(words, words[1:]) if before in ("--day", "--from", "--answered-from"))
lines = Path({folder!r}, day).read_text().splitlines()
Path({folder!r}, day).write_text("\\n".join(lines[1:]))
print("a line for the log")
if lines[0].startswith("bytes "):
    os.write(1, b"K\\xf6ln, as a library in C writes it\\n")
    lines[0] = lines[0].removeprefix("bytes ")
if lines[0] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
said = lines[0].split("\t")
print(*said, sep="\\n")
ended = [json.loads(one) for one in said]
well = [one["state"] in ("published", "unchanged") and not one["unmade"] for one in ended]
sys.exit(0 if all(well) else 1)
"""
FIGURES = {
    "rows": 10,
    "calls": 8,
    "answers_from_ledger": 2,
    "dead_letters": 1,
    "cost": {"USD": 0.5},
    "version": 7,
}
DAYS = {  # what the command says each time; the task's state, and how often it is tried
    "published": (["published"], "success", 1),
    "no input": (["no input"], "skipped", 1),
    "held back": (["held back"], "failed", 1),
    "wrong": (["wrong"], "failed", 1),
    "refused": (["stopped: credentials"], "failed", 1),
    "down twice": (["stopped: service", "stopped: service", "published"], "success", 3),
    # deferred, which is no further try
    "waiting twice": (["waiting", "waiting", "published"], "success", 1),
    "run by another": (["not started", "published"], "success", 2),
    "crashed": (["crashed", "published"], "success", 2),
    "crashed twice": (["crashed", "crashed"], "failed", 2),
    "killed": (["killed", "published"], "success", 2),
    "without letters": (["unchanged"], "skipped", 1),
    "without a summary": (["published, unmade"], "failed", 1),
    "beside a line of no text": (["bytes published"], "success", 1),
}

REFRESHES = {  # what the command says of the days of a refresh; the task's state
    "a day without input before a red one": (["no input", "held back"], "failed"),
    "a waiting day before a red one": (["waiting", "held back"], "failed"),
    "a published day before one without input": (["published", "no input"], "failed"),
    "days without input": (["no input", "no input"], "skipped"),
}


def day_of(name):
    return f"2026-01-{list(DAYS).index(name) + 1:02}"


def said(state, day):
    if state == "killed":
        return state
    if state.startswith("bytes "):
        return f"bytes {said(state.removeprefix('bytes '), day)}"
    state, _, unmade = state.partition(", ")
    figures = FIGURES if state == "published" else None
    result = {
        "format": 1,
        "enrichment": "towns",
        "day": day,
        "state": state,
        "reason": "It is so.",
        "figures": figures,
    }
    summaries = {
        "summaries": {} if unmade else {"by_town": 4},
        "unmade": ["by_town"] if unmade else [],
        "warnings": ["by_town is not made: a column is missing."] if unmade else [],
    }
    after = {"next_step": "Mend " + 30 * "it and " + "run it.", "report": "http://report"}
    return json.dumps(result | summaries | after)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How each day ended, by its name, and what the command was asked."""
    root = tmp_path_factory.mktemp("airflow_days")
    with pytest.MonkeyPatch.context() as patch:
        towns = towns_in(root, patch)
        long_before = f"{dt.datetime.now(dt.UTC) - dt.timedelta(hours=2):%H:%M}"
        towns.declare_too(
            f'towns = replace(towns, schedule="15 2 * * *", publish_by="{long_before}")',
            "from tidegate import Output",
            'unhurried = replace(towns, name="unhurried", publish_by=None, '
            'output=Output(path="data/unhurried"))',
            "unhurried = replace(unhurried, summaries=[], schedule=None)",
        )
        manifest_file = root / "manifest.json"
        with manifest_file.open("w") as out, patch.context() as inner:
            inner.setattr(sys, "stdout", out)
            assert main(["manifest", "--package", "declared"]) == 0
    says = root / "says"
    says.mkdir()
    for name, (states, _, _) in DAYS.items():
        (says / day_of(name)).write_text("\n".join(said(state, day_of(name)) for state in states))
    for number, (states, _) in enumerate(REFRESHES.values(), 3):
        day = f"2026-02-{number:02}"
        (says / day).write_text("\t".join(said(state, day) for state in states))
    (says / "2026-02-01").write_text(said("stopped: service", "2026-02-01"))
    (says / "2026-02-02").write_text(said("published", "2026-02-02"))
    stopped = [said(state, "2026-03-01") for state in ("stopped: service", "published")]
    (says / "2026-03-01").write_text("\n".join(stopped))
    command = root / "command"
    # resolved, as the path of a virtual environment may have spaces
    python = Path(sys.executable).resolve()
    command.write_text(COMMAND.format(python=python, asked=str(root / "asked"), folder=str(says)))
    command.chmod(0o755)
    manifest = json.loads(manifest_file.read_text()) | {
        "python": str(command),
        "again_after_s": 1.0,
    }
    home = AirflowHome(root / "airflow", manifest, {})
    modes = {"without letters": {"mode": "replay"}}
    refresh = {"mode": "refresh", "lookup": "weather", "where": "answer.temp_c = 0"}
    runs = [("towns", {})]  # first: `dags test` keeps a conf for the runs of the same process
    runs += [("towns", {"day": day_of(name)} | modes.get(name, {})) for name in DAYS]
    runs += [
        ("towns", {"day": "2026-02-02"} | refresh | {"where": None}),
        ("towns", {"day": "2026-02-02", "answered_from": "2026-02-02"} | refresh),
        ("unhurried", {"day": "2026-02-01"}),
        ("towns", {"day": "2026-03-01", "answered_from": "2026-03-01"} | refresh),
    ]
    for number in range(3, 3 + len(REFRESHES)):
        day = f"2026-02-{number:02}"
        runs.append(("towns", {"day": day, "answered_from": day} | refresh))
    script = ROOT / "tests" / "support" / "airflow_days.py"
    deadlines = [day_of("published"), str(dt.datetime.now(dt.UTC).date())]
    dag_file = str(home.folder / "dags" / "enrichments.py")
    printed = home.python(script, dag_file, json.dumps(runs), json.dumps(deadlines))
    results = [
        json.loads(line.removeprefix("RESULT "))
        for line in printed.splitlines()
        if line.startswith("RESULT ")
    ]
    others = [
        "a refresh without its condition",
        "a refresh",
        "down, and nothing to publish by",
        "a refresh tried again",
        *REFRESHES,
        "deadlines",
    ]
    return (
        dict(zip(["no day named", *DAYS, *others], results, strict=True)),
        (root / "asked").read_text().splitlines(),
        printed,
    )


@pytest.mark.parametrize("name", DAYS)
def test_an_airflow_task_ends_by_the_state_of_the_day_and_is_retried_where_useful(ended, name):
    _, state, tries = DAYS[name]
    assert (ended[0][name]["state"], ended[0][name]["tries"]) == (state, tries)


@pytest.mark.parametrize("name", REFRESHES)
def test_a_refresh_of_several_days_ends_with_the_worst_state(ended, name):
    assert ended[0][name]["state"] == REFRESHES[name][1]


def test_the_log_of_a_red_day_names_reason_cure_and_report(ended):
    log = ended[2]
    assert f"{day_of('held back')}: held back: It is so." in log
    assert re.search(r"Next: Mend [a-z ]{80,105} \[airflow", log)
    assert re.search(r"Report: http://report +\[airflow", log)


def test_only_a_published_day_has_asset_events_with_its_figures(ended):
    day = day_of("published")
    assert ended[0]["published"]["events"] == {
        "towns": [day, {"rows": 10, "calls": 8, "cost": {"USD": 0.5}, "version": 7}],
        "towns__dead_letters": [day, {"rows": 1}],
        "by_town": [day, {"rows": 4}],
    }
    published = {name for name, (states, _, _) in DAYS.items() if states[-1].endswith("published")}
    assert {name for name in DAYS if ended[0][name]["events"]} == published


def test_without_a_deadline_a_service_that_is_down_fails_the_day_at_once(
    ended,
):
    assert ended[0]["down, and nothing to publish by"]["state"] == "failed"
    assert ended[0]["down, and nothing to publish by"]["tries"] == 1


def test_the_deadline_is_publish_by_on_the_next_day_and_later_runs_have_none(ended):
    today = dt.datetime.now(dt.UTC).date()
    assert ended[0]["deadlines"] == {
        day_of("published"): None,
        # 06:30 in its zone, five hours behind
        str(today): f"{today + dt.timedelta(days=1)}T11:30:00+00:00",
    }


def test_the_conf_of_a_run_chooses_the_command_and_a_wrong_conf_fails_the_task(ended):
    results, asked, _ = ended
    assert f"run declared.towns:towns --day {day_of('published')} --json" in asked
    assert f"replay declared.towns:towns --day {day_of('without letters')} --json" in asked
    words = (
        r"refresh weather --where answer.temp_c = 0 --run --answered-before \S+ --package declared "
        "--answered-from 2026-02-02 --json"
    )
    assert any(re.fullmatch(words, line) for line in asked)
    assert results["a refresh"]["state"] == "success"
    assert (
        results["no day named"]["state"]
        == results["a refresh without its condition"]["state"]
        == "failed"
    )
    assert len(asked) == sum(len(states) for states, _, _ in DAYS.values()) + 4 + len(REFRESHES)


def test_a_retried_refresh_leaves_out_answers_since_its_run_began(ended):
    results, asked, _ = ended
    assert results["a refresh tried again"]["state"] == "success"
    first, second = (line for line in asked if "--answered-from 2026-03-01" in line)
    assert first == second
    before = re.search(r"--answered-before (\S+)", first)[1]
    assert dt.timedelta() < dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(before)
