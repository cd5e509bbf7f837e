"""Values are equal, and columns get a type, by one rule at any depth."""

import math
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import arrow_values
from jobs.arrow_values import conform, differ, digest, gather, plus_zero, readable_values

NAN = float("nan")
LISTS = [pa.list_, pa.large_list]
LEAVES = {
    pa.int64(): [0, 1, -1],
    pa.float64(): [0.0, -0.0, NAN, -NAN, 1.5],
    pa.string(): ["", "a", "é"],
    pa.bool_(): [True, False],
}


def is_list(kind):
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def some_type(draw, depth=3):
    kind = draw.choice(["leaf", "list", "struct", "map"]) if depth else "leaf"
    if kind == "list":
        return draw.choice(LISTS)(some_type(draw, depth - 1))
    if kind == "map":
        return pa.map_(pa.string(), some_type(draw, depth - 1))
    if kind == "struct":
        return pa.struct(
            [(name, some_type(draw, depth - 1)) for name in "xyz"[: draw.randint(1, 3)]]
        )
    return draw.choice(list(LEAVES))


def some_value(draw, kind):
    if draw.random() < 0.15:
        return None
    if is_list(kind):
        return [some_value(draw, kind.value_type) for _ in range(draw.randint(0, 2))]
    if pa.types.is_map(kind):
        return [
            (draw.choice("kl"), some_value(draw, kind.item_type)) for _ in range(draw.randint(0, 2))
        ]
    if pa.types.is_struct(kind):
        return {field.name: some_value(draw, field.type) for field in kind}
    return draw.choice(LEAVES[kind])


def bits(value):
    """The value in a form that Python compares as it should be."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    if isinstance(value, dict):
        return [bits(part) for part in value.values()]
    return [bits(part) for part in value] if isinstance(value, list | tuple) else value


def compare(seed):
    draw = random.Random(seed)
    kind = some_type(draw)
    values = [some_value(draw, kind) for _ in range(8)]
    others = [value if draw.random() < 0.5 else some_value(draw, kind) for value in values]
    wanted = [bits(value) != bits(other) for value, other in zip(values, others, strict=True)]
    at = draw.randint(0, 4)
    one, other = pa.array(values, kind)[at:], pa.array([None, *others], kind)[1:][at:]
    assert differ(one, other).tolist() == wanted[at:], seed
    wide = widened(draw, kind)
    found = conform(one, wide)
    assert found.type == wide, seed
    found.validate(full=True)
    assert str(found.to_pylist()) == str([as_read(value, kind, wide) for value in values[at:]]), (
        seed
    )


def test_zeros_have_one_sign_at_any_depth_and_nothing_else_changes():
    kind = pa.struct([("x", pa.float32()), ("of", pa.list_(pa.struct([("y", pa.float64())])))])
    values = [None, {"x": -0.0, "of": [{"y": -0.0}, None, {"y": 2.5}]}, {"x": NAN, "of": None}]
    column = pa.array([{"x": 9.0, "of": []}, *values], kind)[1:]
    found = plus_zero(column)
    assert found.type == kind
    assert str(found.to_pylist()) == str(values).replace("-0.0", "0.0")
    assert plus_zero(pa.array(["-0.0"])).to_pylist() == ["-0.0"]


def widened(draw, kind):
    """The type with names in other case, fields in another order, one more and maybe one less, and
    wider numbers.
    """
    if is_list(kind):
        return draw.choice(LISTS)(widened(draw, kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), widened(draw, kind.item_type))
    if pa.types.is_struct(kind):
        fields = [
            (draw.choice([str.upper, str.lower])(field.name), widened(draw, field.type))
            for field in kind
        ]
        fields = [*fields[draw.randint(0, 1) :], ("more", pa.list_(pa.int32()))]
        draw.shuffle(fields)
        return pa.struct(fields)
    return pa.float64() if kind == pa.int64() else kind


def as_read(value, kind, wide):
    if value is None:
        return None
    if is_list(kind):
        return [as_read(item, kind.value_type, wide.value_type) for item in value]
    if pa.types.is_map(kind):
        return [(key, as_read(item, kind.item_type, wide.item_type)) for key, item in value]
    if pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        return {
            field.name: as_read(value[name], types[name], field.type)
            if (name := field.name.lower()) in types
            else None
            for field in wide
        }
    return float(value) if kind == pa.int64() else value


def test_random_columns_differ_and_are_cast_as_a_model_says():
    for seed in range(300):
        compare(seed)


@pytest.mark.proof
def test_many_random_columns_differ_and_are_cast_as_a_model_says():
    for seed in range(5_000):
        compare(seed)


@pytest.mark.parametrize("inner", [pa.list_(pa.null()), pa.large_list(pa.null())])
def test_maps_of_lists_without_a_type_are_cast_and_differ(inner):
    values = [[("a", [None, None]), ("b", None)], None, [("c", [None, None])]]
    column = pa.array([None, *values], pa.map_(pa.string(), inner))[1:]
    wide = pa.map_(pa.string(), pa.list_(pa.int32()))
    assert conform(column, wide).to_pylist() == values
    assert differ(column, column.take(pa.array([0, 1, 0]))).tolist() == [False, False, True]


def test_a_nan_equals_a_nan_at_any_depth():
    kind = pa.struct([("a", pa.list_(pa.float64()))])
    column = pa.array([{"a": [NAN, 1.0]}, {"a": [1.0]}, None], kind)
    other = pa.array([{"a": [NAN, 1.0]}, {"a": [NAN]}, {"a": None}], kind)
    assert differ(column, other).tolist() == [False, True, True]
    assert not np.any(differ(column, column))


def test_a_value_that_does_not_fit_is_an_error_at_any_depth():
    with pytest.raises(pa.ArrowInvalid):
        conform(pa.array([[{"a": 300}]]), pa.list_(pa.struct([("A", pa.int8())])))


def test_a_dictionary_text_that_is_not_utf_8_is_reported_as_unreadable():
    texts = pa.array([b"caf\xe9", None, b"a"], pa.binary()).view(pa.string())
    found = readable_values(texts.dictionary_encode())
    assert found == [r"b'caf\xe9'", None, "a"]
    assert found[0].reason == "not UTF-8 text"


@pytest.mark.process
def test_a_digest_is_the_same_in_every_process():
    """Tasks digest values that the driver compares."""
    program = (
        "import pyarrow as pa; from jobs.arrow_values import digest; print(digest([pa.array(['a', "
        "'', None, 'é']), pa.array([b'x', None, b'', b'\\0'])]).tolist())"
    )
    found = set()
    for seed in ("1", "2"):
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


@given(st.lists(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=4)), st.data())
def test_rows_are_gathered_from_chunks_in_the_requested_order(chunks, data):
    column = pa.chunked_array(chunks, pa.string())
    places = (
        st.lists(st.sampled_from(range(len(column))), max_size=6) if len(column) else st.just([])
    )
    rows = data.draw(places)
    found = gather(column, np.array(rows, np.int64))
    assert found.to_pylist() == [column[row].as_py() for row in rows]


def test_a_digest_does_not_depend_on_the_number_of_rows_hashed_at_once(monkeypatch):
    column = pa.array(["a", None, "bb", "a", "", "ccc" * 9])
    whole = digest([column])
    monkeypatch.setattr(arrow_values, "TEXTS_AT_ONCE", 5)
    assert digest([column]).tolist() == whole.tolist()
