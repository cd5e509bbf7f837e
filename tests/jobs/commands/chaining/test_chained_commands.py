"""Commands beside run, on chains and waterfalls."""

import json

import pytest

from tests.jobs.commands.chaining.conftest import DAY
from tidegate.__main__ import main

VARIANTS = """
from dataclasses import replace
from tidegate import Waterfall
a = vendor("a", keys={"key": "key"}, returns="text STRING, confidence DOUBLE")
b = vendor("b", keys={"key": "key"}, returns="text STRING, confidence DOUBLE")
score = vendor("score", keys={"key": "text"}, returns="score INT", when="confidence >= 0.5")
newer = {one.name: replace(one, version=2) for one in (a, b, score)}
a2, b2, score2 = newer["a"], newer["b"], newer["score"]
firms = table(Waterfall(name="firm", of=[a, b], accept="confidence >= 0.5"), score)
"""
# variant -> the calls of both sides, and the outcomes of each
EVALUATED = {
    "a2": ("ax ay az ax ay az", {"ok": 2, "miss": 1}),
    "b2": ("ax ay az by bz by bz", {"ok": 2, "skipped": 1}),
    "score2": ("ax ay az by bz scoreA scoreB scoreA scoreB", {"ok": 2, "skipped": 1}),
}


@pytest.mark.parametrize("variant", EVALUATED)
def test_eval_calls_a_variant_for_the_rows_of_the_lookup_and_compares_the_answers(
    firms, capsys, variant
):
    firms.declare(VARIANTS)
    firms.vendors.answers = {
        ("a", "x"): {"text": "A", "confidence": 0.9}, ("a", "y"): {"text": "?", "confidence": 0.1},
        ("b", "y"): {"text": "B", "confidence": 0.8}, ("b", "z"): {"text": "C", "confidence": 0},
        ("score", "A"): {"score": 1}, ("score", "B"): {"score": 2},
    }  # fmt: skip
    firms.write_input({"key": ["x", "y", "z"]})
    given = ["--package", "chained", "--day", DAY, "--with", variant, "--json"]
    assert main(["eval", "firms", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    calls, outcomes = EVALUATED[variant]
    assert sorted("".join(call) for call in firms.vendors.calls) == sorted(calls.split())
    assert [variant["outcomes"] for variant in found["variants"]] == [outcomes, outcomes]
    assert found["differing"] == []
    assert found["agree"] == dict.fromkeys(found["columns"], outcomes["ok"])
