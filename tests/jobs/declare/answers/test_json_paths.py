"""Paths that are walked step by step pick what the library picks."""

import jsonpath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.declare.answers.json_paths import JsonPath
from jobs.errors import DeclarationError
from tests.support.examples import examples

NAMES = st.sampled_from(["a", "b", "0", "1", "a b", "é", ""])
INDEXES = st.integers(-3, 3)
STEPS = st.lists(NAMES | INDEXES, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", "x", '{"a": 1}']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@examples(300)
@given(steps=STEPS, document=JSON, lenient=st.booleans())
def test_a_path_to_one_place_gives_the_same_value_as_the_library(steps, document, lenient):
    text = "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in steps)
    path = JsonPath("paths", text, lenient=lenient)
    assert path.picks_one
    if not isinstance(document, dict | list):
        assert path.value(document) is None
        assert path.values(document) == []
        return
    found = jsonpath.JSONPathEnvironment(strict=not lenient).compile(text).match(document)
    assert path.value(document) == (None if found is None else found.value)


@pytest.mark.parametrize(
    ("text", "first", "all_of"),
    [
        ("$.a[*].b", 1, [1, 2]),
        ("$..b", 1, [1, 2]),
        ("$.a[0:1]", {"b": 1}, [{"b": 1}]),
        ("$.a[?@.b > 1].b", 2, [2]),
        ("$.a[?@.b == 2.00000000000000000001].b", None, []),
    ],
)
def test_a_path_that_may_pick_several_gives_the_first_or_all(text, first, all_of):
    path = JsonPath("paths", text)
    document = {"a": [{"b": 1}, {"b": 2}]}
    assert not path.picks_one
    assert path.value(document) == first
    assert path.values(document) == all_of


@pytest.mark.parametrize("lenient", [False, True])
def test_a_text_has_no_slices(lenient):
    assert JsonPath("paths", "$.names[0:2]", lenient=lenient).values({"names": "Rome"}) == []


@pytest.mark.parametrize("text", ["a.b", "$.", "$[", "$[?@ < 1e999]", "", 7, None])
def test_a_malformed_path_is_refused_with_the_name_of_its_field(text):
    with pytest.raises(DeclarationError) as error:
        JsonPath("batch.match", text)
    assert str(error.value) == f"batch.match: {text!r} is not a JSON path; write it as $.a.b."


@pytest.mark.parametrize("text", ["$[?match(@.a, '(')].b", "$[?@.a =~ /(/].b"])
def test_a_path_with_a_pattern_that_cannot_be_read_is_refused(text):
    with pytest.raises(DeclarationError, match=r"^paths: x: '\(' is not a pattern: missing \)"):
        JsonPath("paths: x", text, lenient=True)
