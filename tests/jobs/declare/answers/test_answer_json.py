"""A raw answer as JSON and back."""

import datetime as dt
import decimal
import enum
import json
import math
import pickle
import random
import uuid
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.declare.answers.answer_json import Unstorable, dump, load, require_readable
from jobs.declare.answers.json_text import ExactNumber, read_json

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
    SIMPLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
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
    # a zone's hour that comes twice equals no other (PEP 495)
    if isinstance(answer, dt.datetime) and answer.tzinfo:
        return back.utcoffset() == answer.utcoffset() and back.replace(
            tzinfo=None
        ) == answer.replace(tzinfo=None)
    return type(back) is type(answer) and back == answer


def test_a_json_answer_is_stored_unchanged():
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
def test_a_uuid_is_stored_as_its_text_and_an_enum_as_its_value(beside):
    answer = {"id": uuid.UUID(int=1), "grade": Grade.GOOD, "since": [Grade.SINCE], "n": beside}
    assert load(dump(answer)) == {
        "id": "00000000-0000-0000-0000-000000000001", "grade": "good",
        "since": [dt.date(2013, 1, 10)], "n": beside,
    }  # fmt: skip


@pytest.mark.parametrize("answer", [{1: "a", dt.date(2013, 1, 10): "b"}, {"\ud800": "c"}])
def test_keys_of_an_object_that_are_not_texts_are_kept(answer):
    assert load(dump(answer)) == answer


def test_a_row_of_a_database_is_stored_as_a_list_of_its_values():
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        row = connection.execute(sa.text("select 1 as a, 'x' as b, null as c")).one()
    engine.dispose()
    assert load(dump(row)) == [1, "x", None]
    assert load(dump((decimal.Decimal("1.10"), dt.date(2013, 1, 10)))) == [
        decimal.Decimal("1.10"),
        dt.date(2013, 1, 10),
    ]


class Mapped(Mapping):
    """A mapping that fails when it is read."""

    def __getitem__(self, name):
        raise KeyError(name)

    def __iter__(self):
        raise RuntimeError

    def __len__(self):
        return 1


class Huge(int):
    """A number that Python writes as no text."""

    def __repr__(self):
        return "huge"

    __str__ = __repr__


@pytest.mark.parametrize(
    "value", [object(), Mapped(), lambda: None, np.datetime64("2013-01-10"), Huge(10**5000)]
)
@pytest.mark.parametrize("beside", [1, None, 1 << 70, dt.date(2013, 1, 10)])
def test_what_cannot_be_stored_is_named_in_the_stored_answer(value, beside):
    back = load(dump({"a": [value], "b": beside}))
    assert back["b"] == beside
    assert isinstance(back["a"][0], Unstorable)
    assert type(value).__qualname__ in repr(back["a"][0])
    assert load(dump(back)) == back


@pytest.mark.parametrize("levels", [255, 495])
@pytest.mark.parametrize(
    "value", ["deep", ExactNumber("0.12345678901234567890"), dt.date(2013, 1, 10), None]
)
def test_a_deeply_nested_answer_comes_back_on_a_deep_stack(levels, value):
    answer = value
    for number in range(levels - isinstance(value, dt.date)):
        answer = (
            {"inner": answer, "$": 1}
            if number == 200
            else [answer]
            if number % 2
            else {"inner": answer}
        )

    def at_depth(frames):
        return at_depth(frames - 1) if frames else load(dump(answer))

    back = at_depth(300)
    while isinstance(back, dict | list):
        back = back["inner"] if isinstance(back, dict) else back[0]
    assert back == value
    assert str(back) == str(value)


def test_an_endlessly_nested_answer_is_cut_and_named():
    answer = []
    answer.append(answer)
    back = load(dump(answer))
    while isinstance(back, list):
        (back,) = back
    assert repr(back) == "more than 500 levels, which the ledger cannot store"


def test_the_digits_of_a_number_are_stored_as_they_came():
    digits = [
        "12345678901234567.89",
        "3.141592653589793238",
        "9007199254740993.0",
        "1e-400",
        "-0.1234567890123456789",
    ]
    text = '{"n": [' + ", ".join(digits) + "]}"
    answer = read_json(text)
    assert dump(answer) == text.replace(" ", "").encode()
    assert [str(number) for number in load(dump(answer))["n"]] == digits
    assert [str(number) for number in pickle.loads(pickle.dumps(answer))["n"]] == digits


def test_random_numbers_keep_their_value_when_stored_and_loaded():
    draw = random.Random(6)
    for _ in range(3_000):
        digits = _random_number(draw)
        for _ in range(2):
            number = read_json(digits)
            assert decimal.Decimal(str(number)) == decimal.Decimal(digits)
            assert load(b"[" + dump(number) + b"]") == [number]
            assert type(load(dump(number))) is type(number)
            digits = str(load(dump(number)))


def _random_number(draw):
    def some(most):
        return "".join(draw.choices("0123456789", k=draw.randint(1, most)))

    whole = str(int(some(draw.choice((3, 16, 25)))))
    fraction = "." + some(draw.choice((2, 8, 25))) if draw.random() < 0.8 else ""
    power = (
        draw.choice("eE") + draw.choice(("", "+", "-")) + str(draw.randint(0, 280))
        if draw.random() < 0.3
        else ""
    )
    return draw.choice(("", "-")) + whole + fraction + power


@pytest.mark.parametrize(
    "text", ['{"$datetime": "NaT"}', '{"$decimal": "x"}', '{"$int": []}', '{"$object": 1}', "{", ""]
)
def test_a_stored_text_that_is_not_an_answer_is_a_value_error(text):
    for read in (load, require_readable):
        with pytest.raises(ValueError):  # of any sentence
            read(text.encode())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answer=ANSWERS, changes=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=2))))
def test_a_damaged_answer_is_readable_where_it_can_be_read(answer, changes):
    data = dump(answer)
    for place, damage in changes:
        data = data[:place] + damage + data[place + 1 :]
    assert _fails(require_readable, data) == _fails(load, data)


def _fails(read, data):
    try:
        read(data)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.int64(7), 7),
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("é"), "é"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (
            pd.Timestamp("2013-01-10T05:00:00.123456789Z"),
            dt.datetime(2013, 1, 10, 5, 0, 0, 123456, dt.UTC),
        ),
        (pd.Timedelta("1h"), dt.timedelta(hours=1)),
        (memoryview(b"abcd")[::2], b"ac"),
        (frozenset({1}), [1]),
    ],
)
def test_values_of_numpy_and_pandas_are_stored_as_pythons_own(value, stored):
    for answer in ({"a": value}, {"a": value, "$": None}, {"a": value, "b": None}):
        back = load(dump(answer))["a"]
        assert (type(back), back) == (type(stored), stored)


def test_nat_is_stored_as_nan():
    assert math.isnan(load(dump({"a": pd.NaT}))["a"])
