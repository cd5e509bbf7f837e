"""Days that were run by the local engine, after a forget."""

import datetime as dt
import itertools
import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from data_quality.report.days import list_days
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.keys import key_text
from jobs.ledger.scan import records_of
from jobs.tables.records import run_records
from tidegate.__main__ import main

DAY, NEXT = "2013-01-10", "2013-01-11"
CHAIN = """
account = replace(weather, name="account", service=Service(name="accounts",
    url=Env("WEATHER_URL"), max_concurrency=4), request="GET /v2/{acc}", keys={"acc": "label"},
    returns="b DOUBLE", paths={"b": "$.temp_c"})
weather = replace(weather, paths={"label": "$.town"}, returns="label STRING")
towns = replace(towns, summaries=[], lookups=[weather, account], tolerance=Tolerance(error=0.0))
"""


def forget(key):
    return main(["forget", "weather", "--package", "declared", "--key", f"town={key}"])


def test_status_shows_the_run_that_readers_see_after_a_forget(local_days, capsys, monkeypatch):
    local_days.towns.declare_too(
        "towns = replace(towns, summaries=[], tolerance=Tolerance(error=1.0),",
        "    lookups=[replace(weather, on_error='dead_letter')])",
    )
    local_days.fails = {"c": 500}
    local_days.write_input(DAY, ["a", "b", "c"])
    local_days.run(DAY)
    assert forget("a") == 0
    files = [*run_records._files("towns")]
    assert len(files) == 2
    for order in itertools.permutations(files):  # as any directory may list them
        monkeypatch.setattr(run_records, "_files", lambda *_, order=order: iter(order))
        capsys.readouterr()
        main(["dead-letters", "towns", "--package", "declared", "--json"])
        assert json.loads(capsys.readouterr().out)["letters"] == 1
        main(["status", "towns", "--package", "declared", "--json"])
        day = json.loads(capsys.readouterr().out)["tables"][0]["days"][-1]
        assert (day["rows"], day["version"]) == (2, 1)
        records = run_records.load("towns")
        for some in (records, records[::-1]):
            (of_report,) = list_days(some, [])
            assert of_report.record.figures.rows_out == of_report.shown.figures.rows_out == 2


def test_figures_of_a_day_count_no_forgotten_row(local_days, capsys):
    local_days.towns.declare_too(
        "towns = replace(towns, summaries=[], tolerance=Tolerance(error=1.0),",
        "    lookups=[replace(weather, on_error='dead_letter')])",
    )
    local_days.fails = {"c": 500, "d": 500}
    local_days.write_input(DAY, ["a", "b", "c", "d"])
    local_days.run(DAY)
    assert forget("c") == forget("a") == 0
    capsys.readouterr()
    main(["status", "towns", "--package", "declared", "--json"])
    day = json.loads(capsys.readouterr().out)["tables"][0]["days"][-1]
    assert (day["rows"], day["dead_letters"]) == (2, 1)
    main(["show", "towns", DAY, "--package", "declared", "--json"])
    outcomes = json.loads(capsys.readouterr().out)["lookups"][0]["outcomes"]
    assert {outcome: rows for outcome, rows in outcomes.items() if rows} == {"ok": 1, "error": 1}


def test_forget_names_places_of_earlier_declarations(local_days, capsys):
    """What was declared first -> what the certificate of a forget names."""
    local_days.write_input(DAY, ["ann"])
    earlier = {
        "name='earlier'": ["table {}/data/published/a"],
        "ledger=Ledger('led')": ["table {}/data/published/b", "ledger {}/led/weather"],
        "name='towns'": [],
    }
    expected, gone = [], Path("data/published/b")
    for letter, (changed, named) in zip("abc", earlier.items(), strict=True):
        local_days.towns.declare()
        local_days.towns.declare_too(
            f"towns = replace(towns, summaries=[], output=replace(towns.output, "
            f"path='data/published/{letter}'), {changed})"
        )
        name = local_days.towns.enrichment.name
        assert main(["run", name, "--package", "declared", "--day", DAY]) == 0
        expected += [f"the {place.format(Path.cwd())}" for place in named]
    capsys.readouterr()
    assert forget("ann") == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("Not looked at")]
    assert line.partition(": ")[2].partition(". ")[0].split(", ") == expected
    shutil.rmtree(gone)
    forget("ann")
    assert str(gone) not in capsys.readouterr().out


def test_forget_names_the_answers_of_a_renamed_lookup(local_days, capsys):
    local_days.towns.declare_too("towns = replace(towns, summaries=[])")
    local_days.write_input(DAY, ["a", "b"])
    local_days.write_input(NEXT, ["a", "b"])
    local_days.run(DAY)
    local_days.towns.declare_too(
        "weather = replace(weather, name='climate')", "towns = replace(towns, lookups=[weather])"
    )
    local_days.run(NEXT)
    capsys.readouterr()
    assert main(["forget", "climate", "--package", "declared", "--key", "town=a"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Not looked at" in line]
    assert f"the ledger {Path('data/ledger/weather').resolve()}" in line
    assert f"{DAY} of data/published/towns, which ran without climate" in line


@pytest.mark.parametrize("published", [False, True])
def test_forget_removes_keys_made_of_a_forgotten_answer_also_for_a_held_back_day(
    local_days, published
):
    local_days.towns.declare_too(CHAIN)
    local_days.write_input(DAY, ["ann", "bob", "bob"])
    local_days.fails = {} if published else {"bob": 500}
    local_days.run(DAY)
    enrichment = local_days.towns.enrichment

    def stored(town):
        return [
            records_of(declared_folder(enrichment, lookup), [key_text((town,))]).num_rows
            for lookup in enrichment.lookups
        ]

    assert stored("ann") == [1, 1]
    kept = stored("bob")
    assert forget("ann") == 0
    assert stored("ann") == [0, 0]
    assert stored("bob") == kept


@pytest.mark.proof
def test_days_from_before_a_lookup_was_declared_stay_as_they_are(local_days, capsys):
    local_days.towns.declare_too("towns = replace(towns, summaries=[])")
    local_days.write_input(DAY, ["ann", "bob"])
    local_days.run(DAY)
    local_days.towns.declare_too(CHAIN)
    local_days.write_input(NEXT, ["ann", "cid"])
    local_days.run(NEXT)
    refreshing = ["refresh", "account", "--package", "declared", "--where", "answer.b >= 0"]
    capsys.readouterr()
    assert main(refreshing) == 0
    assert DAY not in (said := capsys.readouterr().out)
    assert NEXT in said
    for lookup, key, rows in (("account", "acc=cid", [2, 1]), ("weather", "town=ann", [1, 0])):
        assert main(["forget", lookup, "--package", "declared", "--key", key]) == 0
        table = local_days.towns.enrichment.output.path
        shown = DeltaTable(table).to_pyarrow_table(columns=["date"])["date"].to_pylist()
        assert [shown.count(dt.date.fromisoformat(day)) for day in (DAY, NEXT)] == rows
