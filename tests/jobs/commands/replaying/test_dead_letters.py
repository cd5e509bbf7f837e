"""Dead letters by reason: judged by the statuses that a real service was made to answer with."""

import csv
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from jobs.commands.replaying.dead_letters import reason
from tidegate.__main__ import main
from tidegate.commands.command import WRONG

DAYS = ("2013-01-10", "2013-01-11", "2013-01-12")
TOWNS = ["alpha", "beta", "gamma", "delta", "epsilon"]
LENIENT = "towns = replace(towns, tolerance=Tolerance(error=0.6))"


@pytest.fixture
def letters(capsys):
    def letters(*arguments):
        capsys.readouterr()
        assert main(["dead-letters", "towns", "--package", "declared", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    return letters


def test_dead_letters_of_all_days_are_counted_by_the_answer_of_the_service(
    local_days, letters, capsys
):
    draw = random.Random(1)
    local_days.towns.declare_too(LENIENT)
    local_days.fails = {"alpha": 500, "gamma": 500, "delta": 422}
    inputs = {}
    for day in DAYS[:2]:
        inputs[day] = [draw.choice(TOWNS) for _ in range(12)] + ["beta"] * 20
    inputs[DAYS[2]] = ["alpha"] * 9 + ["delta"]  # held back
    expected, days = Counter(), {}
    for day, towns in inputs.items():
        local_days.write_input(day, towns)
        local_days.run(day)
        for town in towns:
            if status := local_days.fails.get(town):
                expected[status] += 1
                days.setdefault(status, []).append(day)
    found = letters()
    assert found["letters"] == expected.total()
    assert [(group["letters"], group["reason"][:3]) for group in found["groups"]] == [
        (count, str(status)) for status, count in expected.most_common()
    ]
    for group in found["groups"]:
        status = int(group["reason"][:3])
        assert "request # of <key> broke after # ms" in group["reason"]
        assert group["days"] == sorted(set(days[status]))
        assert group["held_back"] == {500: 9, 422: 1}[status]
        assert group["sample"]["date"] == DAYS[2]
    assert letters("--where", "unprocessable")["letters"] == expected[422]
    assert letters("--where", "nothing like it")["groups"] == []
    assert letters("--day", DAYS[2], "--where", "500 ")["letters"] == 9
    arguments = ["dead-letters", "towns", "--package", "declared"]
    assert main([*arguments, "--where", "500 ", "--csv", "letters.csv"]) == 0
    with Path("letters.csv").open(newline="") as file:
        assert len([*csv.DictReader(file)]) == expected[500]
    capsys.readouterr()
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"weather  error  {expected[500]} letters, 9 held back  2013-")
    assert lines[-1] == f"{expected.total()} dead letters of 3 days"


def test_a_wrong_day_is_refused_also_without_an_enrichment_name(towns, capsys):
    towns.publish(DAYS[0], [1], statuses={1: "error"})
    every = ["dead-letters", "--package", "declared"]
    assert main([*every, "--day", DAYS[0]]) == 0
    assert main([*every, "--day", "2013-13-45"]) == WRONG
    assert "must be a date" in capsys.readouterr().err


def test_a_stored_answer_that_does_not_fit_is_shown_beside_its_dead_letter(towns, letters):
    towns.store({3: {"temp_c": "mild"}})
    towns.publish(DAYS[0], [1, 2, 3], statuses={3: "error"})
    (group,) = letters()["groups"]
    assert json.loads(group["answer"]) == {"temp_c": "mild"}


def test_printed_dead_letters_contain_no_personal_value(local_days, capsys):
    local_days.towns.declare(pii=["town"])
    local_days.towns.declare_too(LENIENT)
    local_days.fails = {"secretville": 500}
    local_days.write_input(DAYS[0], ["secretville", "beta"])
    local_days.run(DAYS[0])
    assert main(["dead-letters", "towns", "--package", "declared", "--json"]) == 0
    out = capsys.readouterr().out.splitlines()[-1]
    (group,) = json.loads(out)["groups"]
    assert "secretville" not in out
    assert group["reason"] == "500"
    sample = group["sample"]
    assert sample["_error"] == "***"
    assert sample["_key"].startswith("blake2b:")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("404 Not Found: no x-1 in eu", "404 Not Found: no # in eu"),
        ("500: no row 17", "500: no row #"),  # of a server without reason phrases
        ("502", "502"),
        ("404 not found: 17", "404 not found: #"),
        ("17 rows for a key", "# rows for a key"),
        ("no answer within 2.0 s, 1 attempts", "no answer within # s, # attempts"),
        ("customer anna is unknown", "customer <key> is unknown"),
        ("at 10:05:33,123 by req_8fK2", "at # by #"),
        (None, ""),
    ],
)
def test_reasons_are_grouped_without_keys_generated_ids_and_numbers(error, expected):
    assert reason({"_error": error, "_key": '["anna",7]'}) == expected
