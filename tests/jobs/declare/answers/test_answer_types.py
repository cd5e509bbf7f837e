"""Spark DDL read without Spark, and the strict cast of every value."""

import array
import base64
import datetime as dt
import decimal
import enum
import json
import math
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.declare.answers.answer_casts import cast_all
from jobs.declare.answers.answer_json import dump, load
from jobs.declare.answers.answer_types import read_ddl
from jobs.errors import DeclarationError

EVERY_TYPE = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "STRING",
    "BINARY", "TIMESTAMP", "DECIMAL(10,2)", "DECIMAL(38,10)", "ARRAY<INT>",
    "STRUCT<a: INT, b: STRING>", "ARRAY<STRUCT<at: TIMESTAMP>>", "MAP<STRING, INT>",
)  # fmt: skip

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**300, max_value=10**320)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(
        [
            "2013-01-10",
            "2013-01-10T05:00:00Z",
            "0001-01-01T00:00:00+14:00",
            "\ud800",
            "NaN",
            "1.005",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)
driver_values = (
    json_values
    | st.decimals()
    | st.builds("{}e{}".format, st.integers(-9, 9), st.integers(-500, 500)).map(decimal.Decimal)
    | st.dictionaries(st.none() | st.sampled_from("ab"), st.integers(-9, 9) | st.none())
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.binary(max_size=8)
    | st.binary(max_size=8).map(bytearray)
    | st.binary(max_size=8).map(memoryview)
)


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("a INT NOT NULL", "NOT NULL is not checked"),
        ("a INT DEFAULT 5", "DEFAULT 5 is not checked"),
        ("a STRUCT<b: INT NOT NULL>", "NOT NULL is not checked"),
        ("a VARCHAR(3)", r"the length in VARCHAR\(3\) is not checked; write STRING"),
        ("a ARRAY<CHAR(4)>", r"the length in CHAR\(4\) is not checked; write STRING"),
        ("a FLOAT(53)", r"the length in FLOAT\(53\) is not checked; write FLOAT"),
        ("a STRUCT<INT>", "INT in a STRUCT needs a name and a type"),
    ],
)
def test_a_ddl_constraint_that_no_run_checks_is_refused(ddl, message):
    with pytest.raises(DeclarationError, match=message):
        read_ddl(ddl)
    assert read_ddl("a INT COMMENT 'in C', b VARCHAR -- of 3")[1].spark_type == "STRING"


class Grade(enum.Enum):
    GOOD = "good"
    FIRST = 1
    SINCE = dt.date(2013, 1, 10)
    NONE = None


own_values = (
    st.uuids() | st.sampled_from(Grade) | st.frozensets(st.sampled_from(Grade) | st.integers(0, 9))
)
function_values = (
    own_values
    | driver_values
    | st.lists(own_values | st.integers(0, 9) | st.none(), max_size=2)
    | st.dictionaries(st.sampled_from("ab"), own_values | driver_values, max_size=2)
)


def column(ddl):
    (only,) = read_ddl(f"x {ddl}")
    return only


@pytest.mark.parametrize(("ddl", "text"), [("INT", "7"), ("DOUBLE", "52.5"), ("FLOAT", " 1e3")])
def test_a_number_given_as_text_is_refused_with_a_type_that_accepts_it(ddl, text):
    with pytest.raises(
        ValueError, match=f"got '{text}'; a number that comes as text needs a DECIM"
    ):
        column(ddl).cast(text)
    assert column("DECIMAL(9,2)").cast(text) == decimal.Decimal(text.strip())


def test_columns_come_in_the_order_of_the_ddl_with_sparks_names_and_arrows_types():
    columns = read_ddl(
        "temp_c DOUBLE, n bigint, tags ARRAY<STRING>, place STRUCT<lat: DOUBLE, lon: DOUBLE>"
    )
    assert [(c.name, c.spark_type, c.arrow_type) for c in columns] == [
        ("temp_c", "DOUBLE", pa.float64()),
        ("n", "BIGINT", pa.int64()),
        ("tags", "ARRAY<STRING>", pa.list_(pa.string())),
        (
            "place",
            "STRUCT<lat: DOUBLE, lon: DOUBLE>",
            pa.struct([("lat", pa.float64()), ("lon", pa.float64())]),
        ),
    ]


def test_fields_of_a_struct_may_have_any_name_that_ddl_can_write():
    written = "STRUCT<`a.b`: INT, `no 1`: STRUCT<c: INT>>"
    assert column(written).spark_type == written


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("temp_c DUBBLE", "DUBBLE"),
        ("temp_c", "every column needs a name and a type"),
        ("a STRING, b INTT", "cannot read 'a STRING, b INTT'"),
        ("a INT b STRING", "cannot read 'a INT b STRING'"),
        ("a STRUCT<b: INT", "cannot read 'a STRUCT<b: INT'"),
        ("", "cannot read"),
        ("a INT; DROP TABLE x", "cannot read"),
        ("a INT, A STRING", "names a column twice; rename one of them"),
        ("a MAP<INT, STRING>", "the keys of MAP<INT, STRING> must be STRING"),
        ("a INTERVAL", "INTERVAL"),
        ("a DECIMAL(50,2)", "DECIMAL(50,2)"),
        ("a DECIMAL(5,10)", "DECIMAL(5,10)"),
        ("a ARRAY", "ARRAY"),
        ("a STRUCT<b: INT, B: INT>", "b"),
        ("a TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("`` INT", "'' is not a name: it must not be empty"),
        ("`a``b` INT", "'a`b' is not a name"),
    ],
)
def test_ddl_that_an_answer_cannot_have_is_refused_with_a_cure(ddl, message):
    with pytest.raises(DeclarationError) as refused:
        read_ddl(ddl)
    sentence = str(refused.value)
    assert sentence.startswith("returns: ")
    assert message in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("ddl", "value", "given_back"),
    [
        ("INT", 3.0, 3),
        ("INT", decimal.Decimal("3.00"), 3),
        ("BIGINT", -(2**63), -(2**63)),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", decimal.Decimal("0.1"), 0.1),
        ("DATE", "2013-01-10", dt.date(2013, 1, 10)),
        ("TIMESTAMP", "2013-01-10T05:00:00Z", dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)),
        ("TIMESTAMP", "2013-01-10T05:00:00+02:00", dt.datetime(2013, 1, 10, 3, tzinfo=dt.UTC)),
        ("TIMESTAMP", "2013-01-10 05:00:00", dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)),
        ("BINARY", base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        ("BINARY", bytearray(b"ab"), b"ab"),
        ("BINARY", memoryview(b"ab"), b"ab"),
        ("DECIMAL(4,2)", "12.34", decimal.Decimal("12.34")),
        ("DECIMAL(4,2)", 12.34, decimal.Decimal("12.34")),
        ("DECIMAL(38,10)", "1234567890123456789012345678.0123456789",
         decimal.Decimal("1234567890123456789012345678.0123456789")),
        ("ARRAY<INT>", [1, None], [1, None]),
        ("MAP<STRING, INT>", {"b": 1, "a": None}, [("b", 1), ("a", None)]),
        ("STRUCT<a: INT, b: STRING>", {"a": 1, "c": 2}, {"a": 1, "b": None}),
    ],
)  # fmt: skip
def test_a_fitting_value_is_cast_to_the_value_that_arrow_stores(ddl, value, given_back):
    found = column(ddl)
    assert found.cast(value) == given_back
    assert pa.array([found.cast(value)], found.arrow_type)[0].as_py() == given_back


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("INT", 2**31),
        ("INT", 1.5),
        ("INT", decimal.Decimal("1.5")),
        ("INT", decimal.Decimal("1e999999999")),
        ("INT", "1"),
        ("INT", True),
        ("TINYINT", 128),
        ("DOUBLE", "1.5"),
        ("DOUBLE", 10**400),
        ("DOUBLE", decimal.Decimal("1e400")),
        ("FLOAT", decimal.Decimal("-1e999999999")),
        ("DOUBLE", True),
        ("FLOAT", 1e300),
        ("BOOLEAN", 1),
        ("BOOLEAN", "true"),
        ("STRING", 1),
        ("STRING", "\ud800"),
        ("BINARY", "no base64!"),
        ("BINARY", "ü"),
        ("BINARY", 7),
        ("BINARY", array.array("B", b"AAEC")),
        ("DATE", "10.01.2013"),
        ("DATE", dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)),
        ("TIMESTAMP", 1357794000),
        ("TIMESTAMP", "0001-01-01T00:00:00+14:00"),
        ("TIMESTAMP", dt.date(2013, 1, 10)),
        ("DECIMAL(4,2)", "123.45"),
        ("DECIMAL(4,2)", "NaN"),
        ("DECIMAL(4,2)", "Infinity"),
        ("DECIMAL(4,2)", "much"),
        ("DECIMAL(4,2)", True),
        ("ARRAY<INT>", "abc"),
        ("MAP<STRING, INT>", [("a", 1)]),
        ("MAP<STRING, INT>", {"a": "b"}),
        ("MAP<STRING, INT>", {None: 1}),
        ("ARRAY<INT>", ["a"]),
        ("STRUCT<a: INT>", [1]),
        ("STRUCT<a: INT>", {"a": "x"}),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_named_in_a_short_sentence(ddl, value):
    with pytest.raises(ValueError, match=r"expected .*, got .*") as refused:
        column(ddl).cast(value)
    assert len(str(refused.value)) < 160
    str(refused.value).encode()


@pytest.mark.parametrize("ddl", EVERY_TYPE)
def test_null_fits_every_type(ddl):
    assert column(ddl).cast(None) is None


@pytest.mark.parametrize("ddl", EVERY_TYPE)
@given(value=driver_values)
def test_arrow_stores_each_cast_value_unchanged(ddl, value):
    found = column(ddl)
    try:
        given_back = found.cast(value)
    except ValueError as refused:
        str(refused).encode()  # it is written into the error column
    else:
        stored = pa.array([given_back], found.arrow_type)[0].as_py()
        expected = (
            np.float32(given_back).item()
            if ddl == "FLOAT" and given_back is not None
            else given_back
        )
        assert stored == expected or repr(stored) == repr(expected)  # NaN is not equal to itself
        if isinstance(value, float | decimal.Decimal) and isinstance(stored, float):
            assert math.isinf(stored) == (value in (math.inf, -math.inf))


@given(value=st.integers(-(2**31), 2**31 - 1) | st.none())
def test_a_whole_number_survives_json(value):
    assert column("INT").cast(json.loads(json.dumps(value))) == value


class NoZone(dt.tzinfo):
    """A zone of a user, with a bug."""

    def utcoffset(self, moment):
        raise RuntimeError("no such zone")


def taken(ddl, value):
    """The value as it is written, or that it is refused."""
    found = column(ddl)
    try:
        # NaN is not equal to itself
        return repr(pa.array(cast_all([found], [value]), found.arrow_type)[0].as_py())
    except ValueError:
        return "refused"


@pytest.mark.parametrize("ddl", EVERY_TYPE)
@given(value=function_values)
def test_a_stored_answer_gives_the_same_values_as_the_call(ddl, value):
    try:
        kept = load(dump(value))
    except ValueError:
        return  # it is in no ledger
    assert taken(ddl, kept) == taken(ddl, value)


@pytest.mark.parametrize(
    ("ddl", "value", "given_back"),
    [
        ("STRING", uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("STRING", Grade.GOOD, "good"),
        ("INT", Grade.FIRST, 1),
        ("DATE", Grade.SINCE, dt.date(2013, 1, 10)),
        ("INT", Grade.NONE, None),
        ("ARRAY<INT>", {7}, [7]),
        ("STRUCT<a: INT, b: STRING>", {"a": None, "b": Grade.GOOD}, {"a": None, "b": "good"}),
    ],
)
def test_a_value_that_json_lacks_is_cast_as_the_ledger_stores_it(ddl, value, given_back):
    assert cast_all([column(ddl)], [value]) == (given_back,)


def test_the_column_that_a_value_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"^b: expected INT, got 'good'$"):
        cast_all(read_ddl("a STRING, b INT"), [Grade.GOOD, Grade.GOOD])
    with pytest.raises(ValueError, match=r"^b: expected INT, got a builtins.object, which"):
        cast_all(read_ddl("a STRING, b INT"), ["x", object()])
    with pytest.raises(ValueError, match=r"^b: expected TIMESTAMP .*, got a datetime.datetime"):
        cast_all(
            read_ddl("a STRING, b TIMESTAMP"), ["x", dt.datetime(2013, 1, 10, tzinfo=NoZone())]
        )
