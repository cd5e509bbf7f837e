"""`run --all` and `check` of enrichments that read each other's tables."""

import json

import pytest
from deltalake import DeltaTable

from tests.jobs.commands.chaining.conftest import DAY
from tidegate.__main__ import main

TABLES = """
b = vendor("b", keys={"key": "text"}, returns="score INT")
above = table(
    b, name="above", input=Input(path="data/published/firms", row_id=["number"], format="delta"),
    output=Output(path="data/published/above"),
)
a = vendor("a", keys={"key": "key"}, returns="text STRING")
firms = table(a, tolerance=Tolerance())
other = table(
    vendor("c", keys={"key": "key"}, returns="grade STRING"),
    name="other", output=Output(path="data/published/other"),
)
"""
ALL = ["run", "--all", "--package", "chained", "--day", DAY]


@pytest.fixture
def tables(firms):
    firms.declare(TABLES)
    firms.vendors.answers = {("a", "x"): {"text": "X"}, ("b", "X"): {"score": 1}}
    firms.write_input({"key": ["x"]})
    return firms


def test_the_publisher_of_an_input_runs_before_its_reader(tables, capsys):
    assert main(ALL) == 0
    assert tables.vendors.calls == [("a", "x"), ("c", "x"), ("b", "X")]
    assert DeltaTable("data/published/above").to_pyarrow_table()["score"].to_pylist() == [1]
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if " " not in line] == ["firms", "other", "above"]


def test_an_enrichment_whose_input_was_not_published_is_not_run(tables, capsys):
    tables.vendors.answers[("a", "x")] = 500
    assert main([*ALL, "--json"]) == 4
    ended = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {result["enrichment"]: (result["state"], result["reason"]) for result in ended}
    assert found["above"] == ("failed", "above is not run: firms did not publish.")
    assert found["other"][0] == "published"
    assert found["firms"][0] == "held back"


def test_check_waits_for_the_table_of_another_enrichment(tables, capsys):
    check = ["check", "--package", "chained", "--day", DAY]
    assert main(check) == 0
    assert "right   firms has not published 2026-01-05 yet" in capsys.readouterr().out
    assert main(ALL) == 0
    assert main(check) == 0
    assert "not published" not in capsys.readouterr().out


def test_a_circle_of_tables_is_refused(tables, capsys):
    circle = 'Input(path="data/published/above", row_id=["number"], format="delta")'
    tables.declare(TABLES.replace("firms = table(a", f"firms = table(a, input={circle}"))
    assert main(ALL) == 2
    assert (
        "a circle has no first enrichment; let one of them read another input."
        in capsys.readouterr().err
    )
    assert main(["run", "--package", "chained", "--day", DAY]) == 2
    assert "or --all for every one" in capsys.readouterr().err
