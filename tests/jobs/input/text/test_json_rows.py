"""JSON lines are read as Python's `json` reads them, however they come, or refused with line,
column and value.
"""

import datetime as dt
import decimal
import io
import json
import random

import pytest

from jobs.declare.answers.answer_types import read_ddl
from jobs.input.text import json_rows
from jobs.input.text.json_rows import read_json
from jobs.input.text.text_faults import TextFault

DDL = (
    "a BIGINT, b STRING, c DOUBLE, d DECIMAL(20,3), e ARRAY<STRUCT<x: INT, y: STRING>>, f "
    "STRUCT<l: ARRAY<BOOLEAN>>"
)


def read(text, ddl=DDL, at_once=json_rows.ROWS_AT_ONCE):
    data = text if isinstance(text, bytes) else text.encode()
    tables = list(read_json(io.BytesIO(data), read_ddl(ddl), at_once=at_once))
    return [row for table in tables for row in table.to_pylist()]


def fault(text, ddl=DDL):
    with pytest.raises(TextFault) as refused:
        read(text, ddl)
    return refused.value.sentence(hidden=False)


# -- random files
# --------------------------------------------------------------------------------------------------
def some_text(draw):
    return "".join(
        draw.choices(['"', "\\", "\n", "é", "\0", "😀", "a", "{", ","], k=draw.randint(0, 4))
    )


def some_object(draw):
    """An object as it is written, and the row that it is."""
    values = {
        "a": draw.choice([0, -5, 2**63 - 1]),
        "b": some_text(draw),
        "c": draw.choice([0.1, -1e300, 5, 1.5]),
        "d": draw.choice(["12345678901234567.891", "0.100", "-7"]),
        "e": [
            draw.choice([None, {"x": draw.randint(-9, 9), "y": some_text(draw)}])
            for _ in range(draw.randint(0, 3))
        ],
        "f": {"l": draw.choice([None, [], [True, None, False]])},
    }
    given = {name: draw.choice([value, value, value, None]) for name, value in values.items()}
    row = given | {"c": None if given["c"] is None else float(given["c"])}
    row |= {"d": None if given["d"] is None else decimal.Decimal(given["d"])}
    row |= {"e": given["e"] and [item and dict(item) for item in given["e"]]}
    left = {
        name: value for name, value in given.items() if value is not None or draw.random() < 0.5
    }
    more = {
        some_text(draw) + "z": draw.choice([1.5, "ten", [{"a": 1}], {"a": {"A": 2}}])
        for _ in range(2)
    }
    members = [
        (member(draw, name), text_of(draw, name, value)) for name, value in (left | more).items()
    ]
    draw.shuffle(members)
    return "{" + ", ".join(f"{name}:{value}" for name, value in members) + "}", row


def member(draw, name):
    return json.dumps(name.upper() if draw.random() < 0.1 and name in "abcdef" else name)


def text_of(draw, name, value):
    if name == "d" and value is not None and draw.random() < 0.5:
        return value  # as a number, with all its digits
    return json.dumps(value, ensure_ascii=draw.random() < 0.5)


def compare(seed):
    """A file with some lines that are no rows, and at times one that is no object."""
    draw = random.Random(seed)
    objects = [some_object(draw) for _ in range(draw.randint(1, 8))]
    lines = [text for text, _ in objects] + draw.choice([[], ["", " null", "\t"]])
    every = '{"a":null,"b":null,"c":null,"d":null,"e":null,"f":null}'
    text = "".join(line + draw.choice(["\n", "\r\n"]) for line in [every, *lines])
    found = read(text, at_once=draw.randint(1, 4))
    assert found == [dict.fromkeys("abcdef"), *(row for _, row in objects)], (seed, text)
    line = "".join(
        draw.choices(
            ["{", "}", '"a"', ":", "1", "[", "]", "null", " ", "NaN", ","], k=draw.randint(1, 9)
        )
    )
    try:
        wanted = (
            json.loads(line, object_pairs_hook=tuple, parse_constant=refuse)
            if line.strip()
            else None
        )
        is_object = wanted is None or isinstance(wanted, tuple)
    except ValueError:
        is_object = False
    try:
        found = read(f"{every}\n{line}\n")
    except TextFault as error:
        of_value = "expected BIGINT" in error.reason or error.reason == json_rows.TWICE
        found = None if error.line == 2 and (of_value or not is_object) else [error]
    if found is not None:
        assert is_object, (seed, line)
        assert found[1:] == ([] if wanted is None else [dict.fromkeys("abcdef") | dict(wanted)]), (
            seed,
            line,
        )


def refuse(name):
    raise ValueError(name)


@pytest.mark.proof
def test_random_json_files_are_read_as_python_reads_them():
    for seed in range(700):
        compare(seed)


@pytest.mark.proof
def test_twenty_thousand_random_json_files_are_read_as_python_reads_them():
    for seed in range(20_000):
        compare(seed)


# -- names
# --------------------------------------------------------------------------------------------------
def test_names_match_without_regard_to_case_at_any_depth():
    text = (
        '{"Order_ID": 1, "Place": {"ZIP": "x", "more": 1}}\n{"order_id": 2, "place": {"zip": '
        '"y"}}\n'
    )
    assert read(text, "order_id BIGINT, place STRUCT<zip: STRING>") == [
        {"order_id": 1, "place": {"zip": "x"}},
        {"order_id": 2, "place": {"zip": "y"}},
    ]


def test_a_map_has_the_names_of_its_object_as_keys():
    text = '{"m":{"b":{"x":1.5},"B":null}}\n{"m":{}}\n{"m":null}\n'
    assert [row["m"] for row in read(text, "m MAP<STRING, STRUCT<x: DOUBLE>>")] == [
        [("b", {"x": 1.5}), ("B", None)], [], None,
    ]  # fmt: skip


def test_a_declared_column_that_no_object_has_is_refused():
    sentence = fault('{"id": 1, "name": "x"}\n{"id": 2}\n', "id INT, customer STRING")
    assert sentence == (
        "no object of the file has a column customer, found 'id, name'. Write it as null in an "
        "object, or leave it out of Input.schema."
    )
    assert read('{"id": 1}\n{"customer": null}\n', "id INT, customer STRING")[1] == {
        "id": None,
        "customer": None,
    }
    assert read("\nnull\n", "id INT") == []


def test_a_repeated_member_is_refused_if_its_column_is_declared():
    assert fault('{"a":1}\n{"a":1,"A":2}\n', "a INT").startswith(
        "line 2, column a: a name stands twice in an object"
    )
    assert fault('{"f":{"x":1,"x":1}}\n', "f STRUCT<x: INT>").startswith(
        "line 1, column f: a name stands twice"
    )
    assert fault('{"m":{"x":1,"x":2}}\n', "m MAP<STRING, INT>").startswith(
        "line 1, column m: a name stands twice"
    )
    assert read('{"a":1,"b":2,"b":3}\n', "a INT") == [{"a": 1}]


# -- values
# --------------------------------------------------------------------------------------------------
def test_a_time_without_an_offset_is_in_utc_at_any_depth():
    ten = dt.datetime(2026, 11, 19, 10, tzinfo=dt.UTC)
    text = (
        '{"at":"2026-11-19 10:00:00","seen":["2026-11-19 '
        '10:00:00"],"last":{"at":"2026-11-19T11:00:00+01:00"}}\n'
    )
    ddl = "at TIMESTAMP, seen ARRAY<TIMESTAMP>, last STRUCT<at: TIMESTAMP>"
    assert read(text, ddl) == [{"at": ten, "seen": [ten], "last": {"at": ten}}]


@pytest.mark.parametrize(
    ("value", "kind", "where", "found"),
    [
        ('"5"', "BIGINT", "x: expected BIGINT", "'5'"),
        ("1.5", "BIGINT", "x: expected BIGINT", "'1.5'"),
        (str(2**63), "BIGINT", "x: expected BIGINT", f"'{2**63}'"),
        ("1e400", "DOUBLE", "x: the number is too large", "'Infinity'"),
        ("1e39", "FLOAT", "x: expected FLOAT", "'1e+39'"),
        ("1.005", "DECIMAL(10,2)", "x: expected at most 2 digits after the point", "'1.005'"),
        ("5", "STRING", "x: expected STRING", "'5'"),
        ('"\\ud800"', "STRING", "x: expected STRING", "'\\ud800'"),
        ("{}", "STRING", "x: expected STRING", "'{}'"),
        (
            '"20260110120000Z"',
            "TIMESTAMP",
            "x: expected TIMESTAMP (such as 2013-",
            "'20260110120000Z'",
        ),
        ('[1,"ten"]', "ARRAY<INT>", "x: expected INT", "'ten'"),
        (
            '{"Y":[{"z":"ten"}]}',
            "STRUCT<y: ARRAY<STRUCT<z: DATE>>>",
            "x.y.z: expected DATE (such as 2013-",
            "'ten'",
        ),
        ("[]", "STRUCT<y: INT>", "x: expected STRUCT", "'[]'"),
        ("[]", "MAP<STRING, INT>", "x: expected MAP", "'[]'"),
        ('{"\\ud800":1}', "MAP<STRING, INT>", "x: expected STRING", """'{"\\\\ud800": 1}'"""),
        ('{"a":1,"b":{"z":"ten"}}', "MAP<STRING, INT>", "x.b: expected INT", """'{"z": "ten"}'"""),
    ],
)
def test_a_value_of_another_type_is_refused_with_line_column_and_value(value, kind, where, found):
    sentence = fault(f'{{"x":null}}\n\n{{"x":{value}}}\n{{"x":null}}\n', f"x {kind}")
    assert sentence.startswith(f"line 3, column {where}")
    assert f"found {found}. Correct it" in sentence


def test_a_value_that_is_nested_too_deep_to_be_shown_is_refused_without_it():
    deep = "[" * 900 + "]" * 900
    sentence = "expected INT. Correct it, or declare another type in Input.schema."
    assert fault(f'{{"x":{deep}}}', "x INT") == f"line 1, column x: {sentence}"
    assert fault(deep, "x INT") == "line 1: expected an object."


@pytest.mark.parametrize("also", ["", ", d DECIMAL(5,2)"])
@pytest.mark.parametrize(
    ("number", "expected"),
    [("9007199254740993.0", 9007199254740993), ("1.0", 1), ("1e3", 1000), ("7", 7)],
)
def test_a_number_is_read_alike_whatever_other_columns_are_declared(number, expected, also):
    every = '{"a":null,"d":null}'
    rows = read(f'{every}\n{{"a":{number},"z":1e400}}\n', ddl=f"a BIGINT{also}")
    assert rows[1]["a"] == expected


@pytest.mark.parametrize("number", ["1e99999999999999999999", "-1e-99999999999999999999"])
def test_a_number_out_of_range_is_named_with_its_line(number):
    sentence = fault(f'{{"a":null}}\n{{"a":{number}}}\n', "a DECIMAL(5,2)")
    assert sentence.startswith("line 2")


def test_a_line_that_is_not_json_is_named():
    assert fault('{"a":1}\n{"a":NaN}\n', "a DOUBLE") == "line 2: no JSON: JSON has no NaN."
    assert fault(b'{"a":1}\n{"a":"caf\xe9"}\n', "a STRING") == (
        "line 2: no UTF-8 at byte 9 of the line."
    )
    assert fault('{"a":1}{"a":2}\n', "a INT") == "line 1: no JSON at character 8: Extra data."
    assert fault("[" * 100_000, "a INT") == "line 1: the object is nested too deep."
    assert fault('{"a":' + "1" * 5000 + "}", "a INT").startswith(
        "line 1: no JSON: Exceeds the limit"
    )


def test_a_line_longer_than_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(json_rows, "LONGEST_ROW", 20)
    assert fault('{"a":1}\n{"a":"' + "x" * 30 + '"}\n', "a STRING").startswith(
        "line 2: the line is longer than 20 bytes"
    )


def test_bytes_in_json_are_read_from_base64():
    assert read('\ufeff{"a":"aGk="}\n', "a BINARY") == [{"a": b"hi"}]
