"""A raw answer as JSON and back."""

import datetime as dt
import decimal
import enum
import json
import math
import uuid

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.declare.answer_json import dump, load

SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None, exclude_categories=()))
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.timezones())
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
NAMES = st.text(max_size=5) | st.sampled_from(["$date", "$object", "$", "$int", "$json"])
ANSWERS = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANSWERS)
def test_every_answer_comes_back_as_it_was(answer):
    data = dump(answer)
    assert same(load(data), answer)
    json.loads(data.decode())  # and is JSON in UTF-8


def same(back, answer):
    """Equal, and of the same types all through: 1 is not 1.0 and no True."""
    if isinstance(answer, dict):
        return list(back) == list(answer) and all(same(back[name], answer[name]) for name in answer)
    if isinstance(answer, list):
        return type(back) is list and len(back) == len(answer) and all(map(same, back, answer))
    if isinstance(answer, uuid.UUID):
        return back == str(answer)
    if isinstance(answer, dt.datetime) and answer.tzinfo:  # a zone's hour that comes twice equals no other (PEP 495)
        return back.utcoffset() == answer.utcoffset() and back.replace(tzinfo=None) == answer.replace(tzinfo=None)
    return type(back) is type(answer) and back == answer


def test_what_json_can_say_stands_as_it_came():
    answer = {"temp_c": 3.9, "wind": {"speed": 5.1}, "visibility": None, "tags": ["a", 1, True]}
    assert json.loads(dump(answer)) == answer


def test_not_a_number_is_kept_and_does_not_become_null():
    back = load(dump({"a": math.nan, "b": None, "c": -math.inf}))
    assert math.isnan(back["a"])
    assert back["b"] is None
    assert back["c"] == -math.inf


class Grade(enum.Enum):
    GOOD = "good"
    SINCE = dt.date(2013, 1, 10)


@pytest.mark.parametrize("beside", [1, None, 1 << 70])
def test_a_uuid_is_kept_as_its_text_and_an_enum_as_its_value_whatever_stands_beside_them(beside):
    answer = {"id": uuid.UUID(int=1), "grade": Grade.GOOD, "since": [Grade.SINCE], "n": beside}
    assert load(dump(answer)) == {
        "id": "00000000-0000-0000-0000-000000000001", "grade": "good", "since": [dt.date(2013, 1, 10)], "n": beside,
    }  # fmt: skip


def test_names_that_are_no_text_are_kept():
    answer = {1: "a", (dt.date(2013, 1, 10)): "b"}
    assert load(dump(answer)) == answer


def test_a_row_of_a_database_comes_back_as_a_list_of_its_values():
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        row = connection.execute(sa.text("select 1 as a, 'x' as b, null as c")).one()
    engine.dispose()
    assert load(dump(row)) == [1, "x", None]
    assert load(dump((decimal.Decimal("1.10"), dt.date(2013, 1, 10)))) == [
        decimal.Decimal("1.10"),
        dt.date(2013, 1, 10),
    ]


@pytest.mark.parametrize("answer", [{"a": object()}, [1 << 70, object()], {"a": None, "b": object()}])
def test_what_cannot_be_kept_is_said(answer):
    with pytest.raises(ValueError, match=r"^a builtins.object cannot be stored in the ledger; return plain values"):
        dump(answer)


@pytest.mark.parametrize("levels", [255, 5_000])
def test_what_is_nested_too_deep_is_refused_with_a_sentence(levels):
    answer = "deep"
    for _ in range(levels):
        answer = {"inner": answer}
    with pytest.raises(ValueError, match="the ledger stores at most 254 levels"):
        dump(answer)
