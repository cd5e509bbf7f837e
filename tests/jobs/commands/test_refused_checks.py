"""Checks that cannot be made are refused before a run makes a call."""

import pytest

from jobs.run.engines.engine import ENGINE
from tidegate.__main__ import main

DAY = "2013-01-10"


def run(days, change):
    days.towns.declare_too(
        "from tidegate import Expectation", f"towns = replace(towns, summaries=[], {change})"
    )
    days.write_input(DAY, ["a"])
    ended = [main(["check", "--package", "declared"]), days.run(DAY)]
    return ended, days.calls


def test_a_severity_of_an_unknown_check_costs_no_call(local_days, capsys):
    assert run(local_days, "severities={'every_rows_once': 'warn'}") == ([2, 2], [])
    said = capsys.readouterr()
    assert "severities: no check 'every_rows_once'. The checks are: every_row_once" in said.out
    assert "Nothing was called." in said.err


@pytest.mark.spark
def test_an_expectation_that_cannot_be_evaluated_costs_no_call(local_days, spark, monkeypatch):
    monkeypatch.delenv(ENGINE)
    wrong = "expectations=[Expectation('expect_column_values_to_be_unique', column='nope')]"
    assert run(local_days, wrong) == ([2, 2], [])


@pytest.mark.proof
@pytest.mark.spark
def test_an_expectation_that_only_spark_can_refuse_costs_no_call(local_days, spark, monkeypatch):
    monkeypatch.delenv(ENGINE)
    wrong = "Expectation('expect_column_values_to_match_regex', column='town', regex='(?P<a>)')"
    assert run(local_days, f"expectations=[{wrong}]") == ([0, 2], [])
