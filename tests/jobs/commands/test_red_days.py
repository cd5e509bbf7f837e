"""A red day ends no other enrichment's days, nor other days' letters, that a command announced."""

import pytest

from jobs.tables.records import run_records
from tidegate.__main__ import main

DAYS = ("2013-01-10", "2013-01-11")
TWO = """
towns = replace(towns, summaries=[], lookups=[weather])
towns2 = replace(towns, name="towns2", output=Output(path="data/published/towns2"))
"""
MISFITS = "weather = replace(weather, paths={'temp_c': '$.town'})"


def states(name):
    return [record.state for record in run_records.latest(name)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("remap", "weather", "--from", DAYS[0]),
        ("refresh", "weather", "--where", "answer.temp_c >= 0", "--run"),
    ],
)
def test_days_of_the_next_enrichment_run_after_a_red_day(local_days, arguments):
    local_days.towns.declare_too(TWO)
    local_days.write_input(DAYS[0], ["a", "b"])
    for name in ("towns", "towns2"):
        assert main(["run", name, "--package", "declared", "--day", DAYS[0]]) == 0
    if arguments[0] == "remap":
        local_days.towns.declare_too(MISFITS, TWO)
    else:
        local_days.fails = {"a": 500, "b": 500}
    assert main([*arguments, "--package", "declared"]) != 0
    assert (states("towns"), states("towns2")) == (["held back"], ["held back"])


def test_dead_letters_of_the_next_day_are_called_after_a_red_day(local_days):
    local_days.towns.declare_too(
        "towns = replace(towns, summaries=[], tolerance=Tolerance(error=1.0))"
    )
    local_days.fails = {"a": 500, "b": 500, "c": 500}
    for day, towns in zip(DAYS, (["a", "b", "x"], ["c", "y", "z"]), strict=True):
        local_days.write_input(day, towns)
    assert local_days.run(*DAYS) == 0
    local_days.towns.declare_too("towns = replace(towns, tolerance=Tolerance(error=0.2))")
    local_days.calls.clear()
    local_days.fails = {"a": 500}
    options = ("--package", "declared", "--where", "500", "--run")
    assert main(["replay", "towns", *options]) != 0
    assert states("towns") == ["held back", "published"]
    assert sorted(town for _, town, _ in local_days.calls) == ["a", "b", "c"]
