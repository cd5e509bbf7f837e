"""--json: an object per day on stdout, one exit status per state, and the manifest that goes with
it.
"""

import json

import pytest

from jobs.errors import AccessRefused, BudgetExhausted, RunStopped
from jobs.process.day_events import ONCE
from jobs.schema.records import Verdict
from jobs.tables.leases.day_leases import leased
from orchestration.common.day_results import EXIT_CODES
from tests.jobs.commands.conftest import towns_in
from tests.support.scripted_spark import ScriptedSubmit
from tidegate.__main__ import main
from tidegate.commands import days

DAY = "2013-01-10"
COMMAND = ["run", "towns", "--package", "declared", "--day", DAY, "--wait", "0.1", "--json"]


@pytest.fixture
def towns(tmp_path, monkeypatch):
    return towns_in(tmp_path, monkeypatch)


@pytest.fixture
def run(towns, monkeypatch, capsys):
    """Runs the day, whose Spark ends as scripted. Returns exit status and what was printed
    as JSON.
    """

    def run(script, *, command=COMMAND, **ending):
        submit = ScriptedSubmit(enrichment=towns.enrichment, script=script, **ending)
        monkeypatch.setattr(days, "spark_submit_from_environment", lambda *_: submit)
        status = main(command)
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def stopped(state, **event):
    return lambda _day, _run_id: {"kind": "stopped", "state": state, "reason": "It is so.", **event}


def test_each_state_of_a_day_has_a_distinct_exit_status():
    statuses = [status for state, status in EXIT_CODES.items() if state != "unchanged"]
    assert len(set(statuses)) == len(statuses)
    assert {RunStopped.state, AccessRefused.state, BudgetExhausted.state} < set(EXIT_CODES)


@pytest.mark.parametrize(
    ("script", "state", "status"),
    [
        (stopped("stopped: service", status=3), "stopped: service", 3),
        (stopped("stopped: credentials", status=3), "stopped: credentials", 7),
        (stopped("stopped: budget", status=3), "stopped: budget", 8),
        (stopped("no input", status=2), "no input", 5),
        (stopped("failed", status=2), "wrong", 2),
        (stopped("failed", status=1), "failed", 1),
        (stopped("failed", status=3), "failed", 1),  # a row ended as its policy `fail` says
    ],
)
def test_a_day_that_was_not_written_has_its_state_its_reason_and_its_status(
    run, script, state, status
):
    found, (day,) = run(script)
    assert (found, day["state"], day["reason"], day["figures"]) == (
        status,
        state,
        "It is so.",
        None,
    )
    assert (day["format"], day["enrichment"], day["day"]) == (1, "towns", DAY)
    assert day["report"] == f"http://127.0.0.1:3070/reports/towns/{DAY}/index.html"
    assert day["next_step"].startswith(f"{ONCE.get(state, ONCE['failed'])}, run the day again: ")


def test_a_killed_spark_is_reported_as_a_crash(run):
    status, (day,) = run(lambda _day, _run_id: None, code=137)
    assert (status, day["state"]) == (6, "crashed")
    assert day["reason"].startswith(
        "The run's program was killed, perhaps because memory ran out, before the day was done."
    )


def test_json_has_the_figures_of_a_published_day_and_the_reason_of_a_held_back_day(towns, run):
    def written(status):
        verdict = Verdict("every_row_once", status, "error", "1 row lost")
        return lambda day, run_id: towns.written(day, [1, 2], run_id, {2: "error"}, [verdict])

    towns.write_input(DAY, [1, 2])
    status, (day,) = run(written("passed"))
    assert (status, day["state"], day["reason"], day["warnings"]) == (0, "published", "", [])
    figures = {
        name: day["figures"][name] for name in ("rows", "calls", "dead_letters", "cost", "version")
    }
    assert figures == {"rows": 2, "calls": 2, "dead_letters": 1, "cost": {}, "version": 0}
    assert list(day["summaries"]) == ["by_town"]
    status, (day,) = run(written("failed"))
    assert (status, day["state"], day["reason"]) == (4, "held back", "every_row_once: 1 row lost")
    assert day["next_step"].startswith("Fix the cause, then run")


def test_a_day_held_by_another_run_is_not_started(run):
    with leased("data/published/towns", DAY, "theirs"):
        status, (day,) = run(stopped("failed"))
    assert (status, day["state"], day["report"]) == (9, "not started", None)
    assert day["reason"].startswith(f"{DAY} is being run by run theirs")


def test_an_error_before_any_day_is_a_json_object(run):
    status, (day,) = run(stopped("failed"), command=["run", "none", *COMMAND[2:]])
    assert (status, day["state"], day["day"]) == (2, "wrong", DAY)
    assert day["reason"] == "no enrichment is named 'none'. There are: towns."


def test_the_manifest_has_the_commands_and_tables_of_each_enrichment(towns, tmp_path, capsys):
    towns.declare_too(
        'towns = replace(towns, schedule="15 2 * * *", publish_by="06:30", owners=["team:crm"])'
    )
    assert main(["manifest", "--package", "declared"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert (manifest["format"], manifest["folder"], manifest["again_after_s"]) == (
        1,
        str(tmp_path),
        900.0,
    )
    (entry,) = manifest["enrichments"]
    folder = (tmp_path / "data" / "published").as_uri()
    assert entry == {
        "name": "towns",
        "reference": "declared.towns:towns",
        "description": "",
        "owners": ["team:crm"],
        "runbook": None,
        "report": "http://127.0.0.1:3070/reports/towns/index.html",
        "schedule": "15 2 * * *",
        "publish_by": "06:30",
        "zone": "UTC",
        "every": "day",
        "start": "2020-01-01",
        "end": None,
        "modes": ["nightly", "replay", "remap", "refresh"],
        "lookups": ["weather"],
        "poll_every_s": None,
        "input": (tmp_path / "data/raw/towns").as_uri(),
        "table": f"{folder}/towns",
        "dead_letters": f"{folder}/towns__dead_letters",
        "summaries": {"by_town": f"{folder}/by_town"},
    }
