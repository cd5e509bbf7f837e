"""Expectations drawn from seeds, judged in plain Python as Great Expectations documents them."""

import datetime as dt
import math
import random
import re
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_quality.catalogue import CheckSpec, named_expectations
from data_quality.declared_checks import wrong_expectations
from data_quality.slow_imports import quiet
from jobs.schema.records import DeclaredFacts, ExpectationFacts

with quiet():
    from data_quality.suite import validate

pytestmark = pytest.mark.spark

PROOFS = (pytest.param(seed, 25, marks=pytest.mark.proof) for seed in range(20))
DRAWS = [(0, 10), *PROOFS]  # a seed, and how many expectations
TYPES = pa.schema(
    [
        ("n", pa.int64()),
        ("group", pa.int64()),
        ("part", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("text", pa.string()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("items", pa.list_(pa.int64())),
        ("nothing", pa.int64()),
    ]
)
VALUES = {
    "n": [0, 1, 2, 3, -5, 7, 2**53 + 1, -(10**15)],
    "group": [1, 2, 3],
    "part": [-0.0, 0.0, 0.1, 1.5, -3.25, 1e300, float("inf"), float("nan")],
    "price": [Decimal(text) for text in ("0.10", "0.30", "-2.50", "3.00", "1234567890.12")],
    "text": [
        "a",
        "ä",
        "Ärger",
        "it's",
        'say "x"',
        "",
        "10",
        "straße",
        "😀x",
        "a\nb",
        "NULL",
        "\\d",
    ],
    "yes": [True, False],
    "day": [
        dt.date(1999, 12, 31),
        dt.date(2012, 2, 29),
        dt.date(2013, 3, 30),
        dt.date(2013, 3, 31),
    ],
    "at": [
        dt.datetime(2013, month, day, *time, tzinfo=dt.UTC)
        for month, day in ((3, 31), (10, 27))
        for time in ((0, 59, 59, 999_999), (1,), (2,))
    ],
    "items": [[1], [1, 2], []],
    "nothing": [None],
}
BOUNDS = {
    name: [value for value in VALUES[name] if abs(value) < 2**53] for name in ("n", "part", "price")
}
BOUNDS |= {name: VALUES[name] for name in ("day", "at")}
# with what Python says of a row; None does not count
CONDITIONS = [
    ({}, lambda _: True),
    ({}, lambda _: True),
    (
        {"row_condition": "group > 1", "condition_parser": "spark"},
        lambda row: (row["group"] or 0) > 1,
    ),
    ({"row_condition": "text = 'it\\'s' or text = 'ä'"}, lambda row: row["text"] in ("it's", "ä")),
    (
        {"row_condition": 'col("text").notnull()', "condition_parser": "great_expectations"},
        lambda row: row["text"] is not None,
    ),
]
PATTERNS = ["^a", "[0-9]", "ä|ß", "'", '"$', "^$", "^[a-zäöüß ]*$", r"\n", ".b"]
QUERIES = [
    ("SELECT * FROM {batch} WHERE text RLIKE '^[0-9]{{2}}$'", lambda row: row["text"] == "10"),
    ("SELECT 1 FROM {batch} WHERE hour(at) = 1", lambda row: row["at"] and row["at"].hour == 1),
]


def place(value):
    """Where a value stands in Spark's order: equal values at the same place, NaN above all."""
    if isinstance(value, float | Decimal):
        return (True, 0.0) if math.isnan(value) else (False, float(value))
    return str(value) if isinstance(value, list) else value


def is_within(value, bounds):
    value, low, high = (
        place(bound) for bound in (value, bounds.get("min_value"), bounds.get("max_value"))
    )
    above = low is None or value > low or (value == low and not bounds.get("strict_min"))
    return above and (
        high is None or value < high or (value == high and not bounds.get("strict_max"))
    )


def draw_bounds(draw, name):
    low, high = sorted(draw.choices(BOUNDS[name], k=2))
    bounds = draw.choice(
        [{"min_value": low}, {"max_value": high}, {"min_value": low, "max_value": high}]
    )
    return bounds | draw.choice([{}, {"strict_min": True}, {"strict_max": True}])


def draw_of_value(draw):
    """Returns a rule about each value of a column, its arguments, and whether a value meets it."""
    kind = draw.choice(("null", "between", "set", "regex", "length", "unique"))
    is_not = draw.random() < 0.5
    infix = "to_not" if is_not else "to"
    if kind == "null":
        name = draw.choice(list(VALUES))
        return (
            f"values_{infix}_be_null",
            {"column": name},
            lambda value, _: (value is None) != is_not,
        )
    if kind == "between":
        name = draw.choice(list(BOUNDS))
        bounds = draw_bounds(draw, name)
        return (
            "values_to_be_between",
            {"column": name} | bounds,
            lambda value, _: is_within(value, bounds),
        )
    if kind == "set":
        name = draw.choice(("n", "price", "text", "yes", "day", "at"))
        given = draw.choices(VALUES[name], k=3)
        arguments = {"column": name, "value_set": given}
        return f"values_{infix}_be_in_set", arguments, lambda value, _: (value in given) != is_not
    if kind == "regex":
        (regex,) = draw.choices(PATTERNS)
        arguments = {"column": "text", "regex": regex}
        found = re.compile(regex).search
        return (
            f"values_{infix}_match_regex",
            arguments,
            lambda value, _: bool(found(value)) != is_not,
        )
    if kind == "length":
        length = draw.randrange(6)
        arguments = {"column": "text", "value": length}
        return "value_lengths_to_equal", arguments, lambda value, _: len(value) == length
    arguments = {"column": draw.choice(list(VALUES))}
    return "values_to_be_unique", arguments, lambda value, counts: counts[place(value)] == 1


def draw_of_rows(draw):
    """Returns a rule about values in rows, and its verdict with the number of rows at fault."""
    type_, arguments, meets = draw_of_value(draw)
    condition, applies = draw.choice(CONDITIONS)
    mostly = draw.choice((1, 1, 0.3, 0.5, 0.9))

    def judge(rows):
        values = [row[arguments["column"]] for row in rows if applies(row)]
        some = values if "null" in type_ else [value for value in values if value is not None]
        counts = Counter(map(place, some))
        wrong = sum(not meets(value, counts) for value in some)
        return not some or (len(some) - wrong) / len(some) >= mostly, wrong

    return f"expect_column_{type_}", arguments | condition | {"mostly": mostly}, judge


def draw_of_columns(draw):
    names, is_all = ["n", "group", "nothing"][: draw.choice((2, 3))], draw.random() < 0.5
    ignores = "all_values_are_missing" if is_all else "any_value_is_missing"
    kind = draw.choice(("compound_columns_to_be_unique", "multicolumn_sum_to_equal"))
    total = {"sum_total": draw.randrange(6)} if "sum" in kind else {}

    def judge(rows):
        every = [tuple(row[name] for name in names) for row in rows]
        missing = all if is_all else any
        some = [values for values in every if not missing(value is None for value in values)]
        counts = Counter(some)
        wrong = sum(
            sum(value or 0 for value in values) != total["sum_total"]
            if total
            else counts[values] > 1
            for values in some
        )
        return wrong == 0, wrong

    return f"expect_{kind}", {"column_list": names, "ignore_row_if": ignores} | total, judge


def draw_of_a_pair(draw):
    ignores = draw.choice(("both_values_are_missing", "either_value_is_missing"))

    def judge(rows):
        pairs = [(row["n"], row["group"]) for row in rows]
        least = 1 if ignores.startswith("either") else 2
        wrong = sum(one != other for one, other in pairs if (one, other).count(None) < least)
        return wrong == 0, wrong

    arguments = {"column_A": "n", "column_B": "group", "ignore_row_if": ignores}
    return "expect_column_pair_values_to_be_equal", arguments, judge


def draw_of_a_column(draw):
    """Returns a rule about a column as a whole, and its verdict."""
    kind = draw.choice(("max", "min", "unique_value_count", "distinct_values"))
    if kind == "distinct_values":
        name = draw.choice(("n", "group", "price", "text", "yes", "day"))
        given = draw.choices(VALUES[name], k=4)
        how = draw.choice(("be_in", "contain", "equal"))

        def judge_set(rows):
            there = {row[name] for row in rows} - {None}
            holds = {"be_in": there <= {*given}, "contain": there >= {*given}}
            return holds.get(how, there == {*given}), None

        type_ = f"expect_column_distinct_values_to_{how}_set"
        return type_, {"column": name, "value_set": given}, judge_set
    name = draw.choice(("n", "price", "day"))
    low, high = sorted((draw.randrange(8), draw.randrange(8)))
    is_count = kind == "unique_value_count"
    bounds = {"min_value": low, "max_value": high} if is_count else draw_bounds(draw, name)

    def judge(rows):
        values = [row[name] for row in rows if row[name] is not None]
        if is_count:
            return low <= len(set(values)) <= high, None
        return bool(values) and is_within(
            max(values) if kind == "max" else min(values), bounds
        ), None

    return f"expect_column_{kind}_to_be_between", {"column": name} | bounds, judge


def draw_of_the_table(draw):
    if draw.random() < 0.5:
        query, is_found = draw.choice(QUERIES)
        arguments = {"unexpected_rows_query": query}
        return (
            "unexpected_rows_expectation",
            arguments,
            lambda rows: (not any(map(is_found, rows)), None),
        )
    count = draw.choice((1, 8, 30))
    arguments = {"min_value": count}
    return (
        "expect_table_row_count_to_be_between",
        arguments,
        lambda rows: (len(rows) >= count, None),
    )


DRAWN = [draw_of_rows] * 4 + [draw_of_columns, draw_of_a_pair, draw_of_a_column, draw_of_the_table]


@pytest.mark.proof
@pytest.mark.parametrize(("seed", "number"), DRAWS)
def test_drawn_expectations_are_judged_as_documented(spark, tmp_path, seed, number):
    draw = random.Random(seed)
    nulls = draw.choice((0, 0.1, 0.5))
    rows = [
        {
            name: None if draw.random() < nulls else draw.choice(some)
            for name, some in VALUES.items()
        }
        for _ in range(draw.choice((1, 2, 8, 30)))
    ]
    drawn = [draw.choice(DRAWN)(draw) for _ in range(number)]
    facts = tuple(ExpectationFacts(type_, arguments) for type_, arguments, _ in drawn)
    day = DeclaredFacts("towns", "t", "i", "date", "ordered", (), (), expectations=facts)
    pq.write_table(pa.Table.from_pylist(rows, TYPES), tmp_path / "day.parquet")
    frame = spark.read.parquet(str(tmp_path))
    assert wrong_expectations(day, list(VALUES), frame) == []
    specs = [
        CheckSpec(name, "error", "", expectation=expectation)
        for name, expectation in named_expectations(day)
    ]
    with quiet():
        results, refused = validate(specs, dict, frame)
    assert refused == {}
    for spec, (type_, arguments, judge) in zip(specs, drawn, strict=True):
        result = results[spec.name]
        success, wrong = judge(rows)
        found = result.success, None if wrong is None else result.result["unexpected_count"] or 0
        assert found == (success, wrong), (type_, arguments, result.exception_info)
