"""Conditions on an answer: RFC 9535 filters over the whole of it."""

import operator
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.declare.answers.conditions import Conditions
from jobs.declare.answers.json_paths import STRICT
from jobs.declare.answers.json_text import read_json
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
        ("length($) == 0", [], True),
        ("length($) == 0", {}, True),
        ("length($) == 0", [1], False),
        ("count($.*) == 0", {}, True),
        ("$ == 'NONE'", "NONE", True),
        ("$ == 5", 5, True),
        ("$ == null", None, True),
        ("$.x == 1", '{"x": 1}', False),
        ("$.x == 1", "{broken", False),
        ("$.items[?@.late == true]", {"items": [{"late": False}, {"late": True}]}, True),
        ("$ == 9007199254740993", 9007199254740992, False),
    ],
)
def test_a_condition_applies_to_the_whole_answer(condition, answer, holds):
    assert Conditions("miss_when", [404, condition]).hold_for(answer) is holds


ANSWERS = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.5, "", "a", "b", "1", "[]", '{"a": 1}']),
    lambda parts: (
        st.lists(parts, max_size=2) | st.dictionaries(st.sampled_from("ab"), parts, max_size=2)
    ),
    max_leaves=6,
)
TERMS = [f"$ {sign} {value}" for sign in ("==", "!=", "<", ">=") for value in (1, "'a'", "null")] + [
    "$.a", "!$.a", "!$[0]", "$..b", "$.a == $.b", "$[?@ == 1]", "$.*[?@.b]",
    "length($) == 0", "length($.a) < 2", "count($.*) == 0", "match($.a, 'a|b')", "value($..a) == 1",
]  # fmt: skip


@given(st.sampled_from(TERMS), st.sampled_from(["&&", "||"]), st.sampled_from(TERMS), ANSWERS)
def test_a_condition_holds_as_a_filter_over_a_parent_of_the_answer(first, both, second, answer):
    condition = f"{first} {both} ({second})"
    judge = STRICT.compile(f"$[?{condition.replace('$', '$.answer')}]")
    expected = judge.match({"answer": answer}) is not None
    assert Conditions("miss_when", [condition]).hold_for(answer) is expected


NUMBERS = st.builds(
    "{}{}".format,
    st.integers(2**53 - 2, 2**53 + 3),
    st.sampled_from(["", ".0", ".25", ".250000000000000001"]),
) | st.decimals(-2, 2, places=20).map("{:f}".format)
COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}  # fmt: skip


@given(st.sampled_from(list(COMPARISONS)), NUMBERS, NUMBERS)
def test_numbers_are_compared_digit_for_digit(sign, left, right):
    expected = COMPARISONS[sign](Decimal(left), Decimal(right))
    answer = read_json(
        f'{{"left": {left}, "right": {right}, "both": [{left}], "other": [{right}]}}'
    )
    for condition in (f"$.left {sign} {right}", f"$.left {sign} $.right"):
        assert Conditions("miss_when", [condition]).hold_for(answer) is expected
    is_equal = Decimal(left) == Decimal(right)
    assert Conditions("miss_when", ["$.both == $.other"]).hold_for(answer) is is_equal


@pytest.mark.parametrize(
    ("condition", "left", "holds"),
    [
        ("$.left < 1", False, False),
        ("$.left > 0", True, False),
        ("$.left <= 1", True, False),
        ("$.left < true", 0, False),
        ("$.left < true", False, False),
        ("$.left >= true", True, True),
        ("$.items[?@.left < 1]", False, False),
    ],
)
def test_a_boolean_is_neither_less_nor_greater_than_a_value(condition, left, holds):
    answer = {"left": left, "items": [{"left": left}]}
    assert Conditions("miss_when", [condition]).hold_for(answer) is holds


@pytest.mark.parametrize("wrong", ["$.a, ?$.b", "$.a][?$.b"])
def test_several_filters_are_not_a_condition(wrong):
    with pytest.raises(DeclarationError, match=r"^miss_when: .* is more than one condition"):
        Conditions("miss_when", [wrong])


@pytest.mark.parametrize("wrong", ["match($.a, 'NO(NE')", r"$.b && search($.a, '\\p{Lu}')"])
def test_a_pattern_that_no_answer_would_match_is_refused(wrong):
    with pytest.raises(DeclarationError, match=r"^miss_when: .* is not a pattern: "):
        Conditions("miss_when", [wrong])


def test_a_status_is_not_a_condition_on_an_answer():
    conditions = Conditions("miss_when", [404, 410])
    assert conditions.statuses == {404, 410}
    assert not conditions.hold_for({"status": 404})


@pytest.mark.parametrize(
    "wrong",
    [
        "status == 'ZERO'",
        "$.status = 'ZERO'",
        "$.a ==",
        "$.a == 1e400",
        "",
        "@.status == 'ZERO'",
        99,
        600,
        True,
        None,
        4.5,
    ],
)
def test_a_value_that_is_neither_status_nor_condition_is_refused_in_one_sentence(wrong):
    with pytest.raises(DeclarationError, match=r"^miss_when: .* write "):
        Conditions("miss_when", [wrong])
