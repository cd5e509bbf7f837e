"""Commands after what a project may live through: another folder, lost records, other programs."""

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tidegate.__main__ import main

DAY = "2013-01-10"
TABLE = "data/published/towns"


@pytest.fixture
def move(tmp_path, monkeypatch, towns):
    """Moves the current project to another folder."""

    def move():
        there = tmp_path.with_name(f"{tmp_path.name}-moved")
        tmp_path.rename(there)
        monkeypatch.chdir(there)
        monkeypatch.syspath_prepend(there)
        towns.declare()

    return move


def run(command, *arguments):
    return main([command, "towns", "--package", "declared", *arguments])


def held_back(local_days):
    local_days.write_input(DAY, ["a", "b"])
    local_days.fails = {"b": 500}
    assert local_days.run(DAY) == 1
    local_days.fails = {}
    local_days.calls.clear()


def test_a_held_back_day_of_a_moved_project_is_replayed(local_days, move, capsys):
    held_back(local_days)
    move()
    capsys.readouterr()
    assert run("dead-letters", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["letters"], said["removed"]) == (1, 0)
    assert local_days.run(DAY, command="replay") == 0
    assert [town for _, town, _ in local_days.calls] == ["b"]
    assert DeltaTable(TABLE).to_pyarrow_table().num_rows == 2


def test_a_replay_of_a_day_without_its_files_is_refused(local_days, capsys):
    held_back(local_days)
    assert run("vacuum", "--keep-days", "0") == 0
    capsys.readouterr()
    assert local_days.run(DAY, command="replay") == 2
    said = capsys.readouterr().err
    assert f"vacuum removed the files of {DAY}, with its 1 dead letter. Run the day again." in said
    assert run("replay", "--where", "500") == 0
    assert f"{DAY}  vacuum removed the files of its 1 letter." in capsys.readouterr().out
    assert run("replay", "--where", "500", "--json") == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 1
    assert local_days.run(DAY) == 0


def test_a_table_that_lost_its_log_loses_no_file(local_days, capsys):
    local_days.write_input(DAY, ["a", "b"])
    assert local_days.run(DAY) == 0
    log, elsewhere = Path(TABLE, "_delta_log"), Path("log")
    log.rename(elsewhere)
    forget = ("forget", "weather", "--key", "town=a")
    for command in (("vacuum", "towns", "--keep-days", "0"), forget):
        capsys.readouterr()
        assert main([*command, "--package", "declared"]) == 1
        assert f"{log} is missing, and files of published days" in capsys.readouterr().err
    elsewhere.rename(log)
    assert DeltaTable(TABLE).to_pyarrow_table().num_rows == 2


def lose_records(local_days):
    shutil.rmtree("data/runs")


def rename(local_days):
    local_days.towns.declare_too("towns = replace(towns, name='other', summaries=[])")


def optimize(local_days):
    DeltaTable(TABLE).optimize.z_order(["number"])
    DeltaTable(TABLE).vacuum(0, dry_run=False, enforce_retention_duration=False)


@pytest.mark.parametrize("change", ["move", lose_records, rename, optimize])
def test_a_remap_without_stored_answers_removes_no_published_answer(local_days, move, change):
    local_days.towns.declare_too("towns = replace(towns, summaries=[])")
    local_days.write_input(DAY, ["a", "b"])
    assert local_days.run(DAY) == 0
    move() if change == "move" else change(local_days)
    shutil.rmtree("data/ledger")
    name = local_days.towns.enrichment.name
    assert main(["remap", name, "--package", "declared", "--from", DAY]) == 1
    assert set(DeltaTable(TABLE).to_pyarrow_table()["weather_status"].to_pylist()) == {"ok"}


def test_a_ledger_that_is_gone_is_refused_before_its_answers_are_paid_again(local_days, capsys):
    local_days.write_input(DAY, ["a", "b"])
    assert local_days.run(DAY) == 0
    ledger, elsewhere = Path("data/ledger"), Path("unmounted")
    ledger.rename(elsewhere)
    asked = len(local_days.calls)
    capsys.readouterr()
    for command in (("run", "towns", "--day", DAY), ("check", "towns", "--day", DAY)):
        assert main([*command, "--package", "declared", "--engine", "local"]) == 2
        said = capsys.readouterr()
        assert (
            "ledger: data/ledger is not there, but earlier runs stored 2 answers in it"
            in said.out + said.err
        )
    assert len(local_days.calls) == asked
    assert not ledger.exists()
    elsewhere.rename(ledger)
    assert local_days.run(DAY) == 0
    assert len(local_days.calls) == asked


def test_a_ledger_that_was_deleted_begins_again_in_an_empty_folder(local_days):
    local_days.write_input(DAY, ["a", "b"])
    assert local_days.run(DAY) == 0
    shutil.rmtree("data/ledger")
    Path("data/ledger").mkdir()
    assert local_days.run(DAY) == 0


def test_a_table_of_another_partition_column_is_refused(local_days, capsys):
    local_days.towns.declare_too("towns = replace(towns, tolerance=Tolerance(error=1.0))")
    local_days.fails = {"b": 500}
    local_days.write_input(DAY, ["a", "b"])
    assert local_days.run(DAY) == 0
    local_days.towns.declare_too(
        "towns = replace(towns, input=replace(towns.input, partition='day'))"
    )
    for arguments in (
        ("dead-letters", "towns"),
        ("diff", "towns", DAY),
        ("explain", "towns", "--row", "number=0"),
        ("forget", "weather", "--key", "town=a"),
        ("refresh", "weather", "--where", "stored.outcome = 'ok'"),
        ("remap", "towns", "--from", DAY),
        ("replay", "towns", "--day", DAY),
        ("test", "towns", "--against", DAY),
    ):
        capsys.readouterr()
        assert main([*arguments, "--package", "declared"]) == 2
        said = "output: the table is partitioned by date, the input by day. Publish to another"
        assert said in capsys.readouterr().err
