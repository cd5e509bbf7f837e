"""Conditions on an answer: RFC 9535 filters over the whole of it."""

import pytest

from jobs.declare.answers.conditions import Conditions
from jobs.errors import DeclarationError


@pytest.mark.parametrize(
    ("condition", "answer", "holds"),
    [
        ("$.status == 'ZERO'", {"status": "ZERO"}, True),
        ("$.status == 'ZERO'", {"status": "OK", "other": "ZERO"}, False),
        ("$.status == 'ZERO'", {}, False),
        ("$.status == 'ZERO'", [], False),
        ("$.status == 'ZERO'", None, False),
        ("$.status == 'ZERO'", "ZERO", False),
        ("!$.results[0]", {"results": []}, True),
        ("!$.results[0]", {"results": [1]}, False),
        ("!$.results", {}, True),
        ("!$[0]", [], True),
        ("!$[0]", [1], False),
        ("$.left < 1 && $.kind == 'quota'", {"left": 0, "kind": "quota"}, True),
        ("$.left < 1 && $.kind == 'quota'", {"left": 0, "kind": "rate"}, False),
        ("$.error.code == 7 || $.error.code == 8", {"error": {"code": 8}}, True),
        ("length($.results) == 0", {"results": []}, True),
        ("$.results == null", {"results": None}, True),
        ("$.items[?@.late == true]", {"items": [{"late": False}, {"late": True}]}, True),
    ],
)
def test_a_condition_speaks_of_the_whole_answer(condition, answer, holds):
    assert Conditions("miss_when", [404, condition]).hold_for(answer) is holds


def test_statuses_are_no_conditions_on_an_answer():
    conditions = Conditions("miss_when", [404, 410])
    assert conditions.statuses == {404, 410}
    assert not conditions.hold_for({"status": 404})


@pytest.mark.parametrize(
    "wrong",
    [
        "status == 'ZERO'",
        "$.status = 'ZERO'",
        "$.a ==",
        "",
        "@.status == 'ZERO'",
        99,
        600,
        True,
        None,
        4.5,
    ],
)
def test_what_is_neither_a_status_nor_a_condition_is_refused_in_one_sentence(wrong):
    with pytest.raises(DeclarationError, match=r"^miss_when: .* write "):
        Conditions("miss_when", [wrong])
