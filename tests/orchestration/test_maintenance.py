"""The jobs of maintenance: a table or a ledger that cannot be read keeps no other waiting."""

import dataclasses
import importlib
from pathlib import Path

import dagster as dg
import pytest

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.store import LedgerFolder
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import spark_program
from tests.jobs.commands.conftest import towns_in
from tidegate.__main__ import main

DAY = "2013-01-10"


@pytest.fixture
def towns(tmp_path, monkeypatch):
    return towns_in(tmp_path, monkeypatch)


def job(towns, name, config=None, *others):
    """Runs a job. Returns the reason of its failure, if any, and the lines of its log."""
    declared = [*others, Declared("declared.towns:towns", towns.enrichment)]
    definitions = build_definitions(declared, spark_program())
    with dg.DagsterInstance.ephemeral() as instance:
        run = definitions.resolve_job_def(name).execute_in_process(
            instance=instance, raise_on_error=False, run_config=config
        )
        entries = instance.all_logs(run.run_id)
    (failed,) = [event for event in run.all_events if event.is_step_failure] or [None]
    given = failed and failed.step_failure_data.user_failure_data  # the title of the run's page
    reason = failed and failed.step_failure_data.error.message
    return reason if given or not failed else None, [
        entry.user_message for entry in entries if not entry.is_dagster_event
    ]


def test_an_unreadable_table_does_not_stop_the_vacuum_of_others(towns):
    output = dataclasses.replace(towns.enrichment.output, path="data/published/broken")
    broken = dataclasses.replace(towns.enrichment, name="broken", output=output, summaries=())
    log = Path("data/published/broken/_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no JSON")
    towns.publish(DAY, range(5))
    reason, lines = job(
        towns, "tidegate_maintenance", None, Declared("declared.towns:broken", broken)
    )
    assert "broken: table data/published/broken: its log" in reason
    assert any(line.startswith("data/published/towns: ") for line in lines)


@pytest.fixture
def broken_ledger(towns, capsys):
    """The ledger of `weather` cannot be read; that of the lookup `other`, behind it, can."""
    towns.store({1: {"temp_c": 1.0}})
    towns.declare_too(
        'other = replace(weather, name="other")',
        'others = replace(towns, name="others", lookups=[other], summaries=[], '
        'output=Output(path="data/published/others"))',
    )
    folder = LedgerFolder("data/ledger", "other", towns.folder.fingerprint)
    folder.write_part("r", "0-0-1-0", [StoredAnswer('["a"]', "ok", "{}", 1, "r")])
    assert main(["compact", "--package", "declared"]) == 0
    (complete,) = Path("data/ledger/weather").rglob("complete.json")
    complete.write_text("torn")
    capsys.readouterr()


def test_an_unreadable_ledger_does_not_stop_the_compaction_of_others(broken_ledger, capsys):
    assert main(["compact", "--package", "declared"]) == 1
    told = capsys.readouterr()
    assert told.out.startswith("other  ")
    assert "complete.json" in told.err


def test_the_compaction_job_continues_after_a_broken_ledger(towns, broken_ledger):
    others = importlib.import_module("declared.towns").others
    reason, lines = job(
        towns, "tidegate_maintenance", None, Declared("declared.towns:others", others)
    )
    assert reason.startswith("dagster._core.definitions.events.Failure: weather: ")
    assert any(line.startswith("other: ") for line in lines)


@pytest.mark.parametrize(
    ("name", "op", "config", "words"),
    [
        ("plan", "count_keys", {"enrichment": "towns", "first": "2013-13-01"}, "first"),
        ("refresh_answers", "mark_answers", {"lookup": "wether", "where": "1"}, "wether"),
        ("maintenance", "vacuum_tables", {"keep_days": -1}, "keep-days"),
    ],
)
def test_a_wrong_config_of_a_job_is_the_failure_reason_of_its_run(towns, name, op, config, words):
    reason, _ = job(towns, f"tidegate_{name}", {"ops": {f"tidegate_{op}": {"config": config}}})
    assert words in reason
