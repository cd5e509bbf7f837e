"""`ls`, `show`, help by purpose, and names that are nearly right."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from jobs.tables.records import run_records
from tests.jobs.commands.conftest import towns_in, verdict
from tidegate.__main__ import main
from tidegate.commands import COMMANDS, GROUPS

DAY = "2013-01-10"


@pytest.fixture
def towns(tmp_path, monkeypatch):
    return towns_in(tmp_path, monkeypatch)


def printed(capsys, *arguments, status=0):
    capsys.readouterr()
    assert main([*arguments, "--package", "declared"]) == status
    return capsys.readouterr().out


def test_enrichments_are_listed_with_what_is_declared(towns, capsys):
    lines = printed(capsys, "ls").splitlines()
    assert lines[1].split() == ["towns", "declared.towns", "weather", "data/published/towns"]
    (found,) = json.loads(printed(capsys, "ls", "--json"))["enrichments"]
    assert found["lookups"][0]["keys"] == {"town": "trim(town)"}
    assert os.environ["WEATHER_URL"] not in json.dumps(found)
    assert json.loads(printed(capsys, "show", "towns", "--json")) == {"format": 1, **found}
    out = printed(capsys, "show", "towns")
    assert "  keys        town = trim(town)" in out.splitlines()


def test_a_day_is_shown_with_its_runs_and_failed_checks_first(towns, capsys):
    red = dataclasses.replace(verdict("1 row lost", {"number": 77}), status="failed")
    green = dataclasses.replace(verdict("all is well"), check="a_first")
    towns.publish(DAY, [1, 2], run_id="0123456789abcdef-first")
    later = towns.written(DAY, [1, 2, 3], "later", {3: "error"}, [green, red])
    facts = dataclasses.replace(later.facts, started_at=f"{DAY}T09:00:00+00:00")
    run_records.hold_back(dataclasses.replace(later, facts=facts), "every_row_once: 1 row lost")
    lines = printed(capsys, "show", "towns", DAY).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[:2] == [f"towns  {DAY}  held back", "  every_row_once: 1 row lost"]
    assert lines[2].startswith("  readers still see version 0, published at 20")
    assert lines[3].startswith("  next: Fix the cause, then run")
    first = next(place for place, line in enumerate(lines) if line.startswith("run "))
    runs = [line.split()[0] for line in lines[first + 1 : first + 3]]
    assert runs == ["0123456789ab", "later"]
    checks = [line.split()[0] for line in lines if "every_row_once:" in line or "a_first" in line]
    assert checks == ["every_row_once:", "failed", "passed"]
    shown = json.loads(printed(capsys, "show", "towns", DAY, "--json"))
    assert [run["state"] for run in shown["runs"]] == ["published as version 0", "held back"]
    assert shown["lookups"][0]["outcomes"]["error"] == 1
    assert "77" not in json.dumps(shown["checks"])
    assert printed(capsys, "diff", "towns", DAY, "--from", "0123456789ab", "--to", "later")


def test_the_report_of_a_day_is_named_once_it_is_written(towns, capsys):
    towns.publish(DAY, [1])
    page = Path(f"data/reports/towns/{DAY}/index.html")
    assert "report: " not in printed(capsys, "show", "towns", DAY)
    assert json.loads(printed(capsys, "show", "towns", DAY, "--json"))["report"] is None
    page.parent.mkdir(parents=True)
    page.touch()
    assert printed(capsys, "show", "towns", DAY).splitlines()[-1] == f"report: {page}"


@pytest.mark.parametrize("command", ["show", "diff"])
def test_show_accepts_the_day_as_an_option_too(towns, capsys, command):
    towns.publish(DAY, [1, 2], run_id="first")
    towns.publish(DAY, [1], run_id="second")
    assert printed(capsys, command, "towns", DAY) == printed(capsys, command, "towns", "--day", DAY)
    assert main([command, "towns", "--package", "declared", DAY]) == 0  # an option before it
    assert capsys.readouterr().out == printed(capsys, command, "towns", DAY)
    assert main([command, "towns", DAY, "--day", DAY, "--package", "declared"]) == 2
    assert capsys.readouterr().err == "DAY and --day are the same: write one of them.\n"
    assert main([command, "towns", "--day", "2013", "--package", "declared"]) == 2
    assert capsys.readouterr().err.startswith("--day is '2013'")


def test_a_comparison_needs_a_day(towns, capsys):
    assert main(["diff", "towns", "--package", "declared"]) == 2
    assert capsys.readouterr().err == "no day is given: write --day 2013-01-10.\n"


def test_dead_letters_of_every_enrichment_are_listed_without_a_name(towns, capsys):
    towns.publish(DAY, [1, 2], statuses={2: "error"})
    towns.declare_too("idle = replace(towns, name='idle', output=replace(towns.output, path='x'))")
    lines = printed(capsys, "dead-letters").splitlines()
    assert lines[0] == "towns"
    assert lines[1].startswith("weather  error  1 letter  ")
    assert lines[-2:] == ["idle", "no dead letters"]
    found = printed(capsys, "dead-letters", "--json").splitlines()
    assert [json.loads(line)["enrichment"] for line in found] == ["towns", "idle"]
    assert main(["dead-letters", "--csv", "all.csv", "--package", "declared"]) == 2


def test_dead_letters_of_the_other_enrichments_follow_a_table_that_cannot_be_read(towns, capsys):
    towns.publish(DAY, [1, 2], statuses={2: "error"})
    towns.declare_too("idle = replace(towns, name='idle', output=replace(towns.output, path='x'))")
    (log,) = Path("data/published/towns/_delta_log").glob("*0.json")
    log.write_text("{")
    assert main(["dead-letters", "--package", "declared"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == ["towns", "idle", "no dead letters"]
    assert "its log, data/published/towns/_delta_log, cannot be read" in told.err


def test_a_day_without_a_run_is_reported_in_one_sentence(towns, capsys):
    assert main(["show", "towns", DAY, "--package", "declared"]) == 2
    assert capsys.readouterr().err == (
        f"towns: no run of {DAY} is recorded. Run it: `tidegate run towns --day {DAY}`.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["statsu"], "tidegate has no command 'statsu'. Did you mean 'status'?"),
        (["xyzzy"], "tidegate has no command 'xyzzy'. tidegate --help lists the commands."),
        (["show", "twons", "--package", "declared"], "named 'twons'. Did you mean 'towns'? There"),
        (["compact", "wether", "--package", "declared"], "'wether'. Did you mean 'weather'? There"),
        (["remap", "wether", "--from", DAY, "--package", "declared"], "Did you mean 'weather'?"),
    ],
)
def test_a_mistyped_name_is_reported_with_the_right_name(towns, capsys, arguments, message):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_help_groups_each_command_by_purpose(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line[:-1] for line in lines if line[:-1] in GROUPS] == [*GROUPS]
    names = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert [name for name in names if name[0] != "-"] == [*COMMANDS]
