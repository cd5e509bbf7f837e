"""The next step for a held-back day is a command that can end it."""

import datetime as dt
from dataclasses import replace

from data_quality.check import Cure
from data_quality.next_step import cure, next_step
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import Verdict
from tests.data_quality.test_report import record

RED = Verdict("plane__errors_tolerated", "failed", "error", "unknown: 3 rows of 100, 3.00%")


def held_back(tolerated=0.0, lost=("plane",), **outcomes):
    made = record(dt.date(2013, 1, 1), red=True)
    declared = replace(made.facts.declared, ledger="data/ledger", error_tolerance=tolerated)
    lookups = tuple(replace(one, dead_letters=("error", "unknown")) for one in declared.lookups)
    figures = tuple(
        replace(one, outcomes=dict.fromkeys(OUTCOMES, 0) | outcomes if one.name in lost else {})
        for one in made.figures.lookups
    )
    return replace(
        made, facts=replace(made.facts, declared=replace(declared, lookups=lookups)),
        figures=replace(made.figures, lookups=figures),
        verdicts=tuple(replace(RED, check=f"{name}__errors_tolerated") for name in lost),
    )  # fmt: skip


def test_lost_calls_that_must_not_be_made_twice_are_refreshed_because_no_replay_repeats_them():
    step = next_step(held_back(ok=97, unknown=3))
    refresh = """`tidegate refresh plane --where "stored.outcome = 'asked'" --run`"""
    assert refresh in step
    assert "replay" not in step
    assert "then run the day again: `tidegate run flights_enriched --day 2013-01-01`" in step


def test_lost_calls_of_several_lookups_are_refreshed_by_a_command_for_each():
    step = next_step(held_back(lost=("weather", "plane"), ok=97, unknown=3))
    assert "The answers to calls of weather and plane are lost" in step
    for lookup in ("weather", "plane"):
        assert f"""`tidegate refresh {lookup} --where "stored.outcome = 'asked'" --run`""" in step


def test_errors_beside_tolerated_lost_calls_are_replayed():
    day = held_back(0.05, ok=80, error=17, unknown=3)
    assert cure(day, day.facts.declared) is Cure.REPLAY
