"""Requests with places for values: what stands in them, and what is no request."""

import datetime as dt
import decimal
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.http.batch_items import dumped
from jobs.declare.values.templates import JsonTemplate
from jobs.errors import DeclarationError

UTC_HOUR = dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)


def sent(template, **values):
    """As it goes over the wire, read again."""
    return json.loads(
        dumped(JsonTemplate("body", template).filled(values)), parse_float=decimal.Decimal
    )


@pytest.mark.parametrize(
    ("value", "whole", "inside"),
    [
        ("a b", "a b", "a b"),
        ('"} {x}', '"} {x}', '"} {x}'),
        (7, 7, "7"),
        (True, True, "true"),
        (decimal.Decimal("12345678901234567890.10"), decimal.Decimal("12345678901234567890.10"),
         "12345678901234567890.10"),
        (UTC_HOUR, "2013-01-10T05:00:00Z", "2013-01-10T05:00:00Z"),
        (dt.date(2013, 1, 10), "2013-01-10", "2013-01-10"),
        (b"\x00\xff", "AP8=", "AP8="),
    ],
)  # fmt: skip
def test_a_placeholder_alone_keeps_its_type_and_inside_a_text_becomes_text(value, whole, inside):
    template = {"alone": "{k}", "inside": "<{k}>", "list": [1, {"k": "{k}"}], "{{k}}": "{{k}}"}
    assert sent(template, k=value) == {
        "alone": whole, "inside": f"<{inside}>", "list": [1, {"k": whole}], "{{k}}": "{k}",
    }  # fmt: skip


def test_arrays_and_structs_are_sent_as_json_has_them():
    assert sent("{k}", k=[{"at": UTC_HOUR, "n": [1, None]}]) == [
        {"at": "2013-01-10T05:00:00Z", "n": [1, None]}
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("nan")], "\ud800"])
def test_a_value_that_json_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match=r"is not a JSON number|cannot be written as JSON"):
        sent({"k": "{k}"}, k=value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{k", "a brace is unpaired"),
        ({"a": ["{k!r}"]}, "{k} has a format"),
        ({"a": float("nan")}, "body.a: nan is not valid JSON"),
        ({"a": {1, 2}}, "is not valid JSON"),
        ({1: "a"}, "is not valid JSON"),
    ],
)
def test_a_template_that_is_not_json_is_refused_with_its_place(template, message):
    with pytest.raises(DeclarationError) as error:
        JsonTemplate("body", template)
    assert message in str(error.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5).filter(str.isascii), inner)
    ),
    max_leaves=10,
)


@given(value=JSON)
def test_any_json_template_is_sent_unchanged(value):
    assert sent("{k}", k=value) == value
    assert sent({"a": ["x{k}"]}, k=json.dumps(value))["a"] == ["x" + json.dumps(value)]
