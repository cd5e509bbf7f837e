"""Key expressions evaluated by Arrow give Spark's values. Spark itself is the judge of random
expressions.
"""

import datetime as dt
import math
import random

import pyarrow as pa
import pytest

from jobs.input.keys.arrow_expressions import arrow_expression
from jobs.schema.columns import arrow_schema

TYPES = pa.schema(
    [
        ("Name", pa.string()),
        ("city", pa.string()),
        ("tiny", pa.int8()),
        ("number", pa.int32()),
        ("large", pa.int64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("share", pa.float64()),
        ("other", pa.float64()),
    ]
)
TEXTS = [
    None,
    "",
    " ",
    "  a",
    "b  ",
    " a b ",
    "\ta",
    "\u00a0x",
    "x\n",
    "Zoë",
    "ÅNGSTRÖM",
    "ß",
    "a\u0301",
    "😀 y",
    "1",
    "01",
    "true",
    "'",
]
DOUBLES = [None, 0.0, -0.0, 0.7, 0.1 + 0.2, 1.0, -1.5, 7.0, math.nan, math.inf, -math.inf, 5e-324]
INTEGERS = [None, 0, 1, -1, 2, 7, 127, -128]
LITERALS = ["''", "' '", "'a'", "'1'", "'Zoë'", '"b"', "'😀 y'"]
BY_KIND = {
    "string": ["name", "CITY"],
    "int": ["tiny", "number", "large"],
    "boolean": ["flag"],
    "date": ["day"],
    "timestamp": ["`at`"],
}


class Expressions:
    """Draws expressions of the supported kind."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def draw(self, depth=3):
        return self._of(
            self._random.choice(["string", "string", "string", "int", "boolean", "date"]), depth
        )

    def _of(self, kind, depth):
        choose = self._random.choice
        if depth == 0 or self._random.random() < 0.2:
            return self._leaf(kind)
        deeper = depth - 1
        common = [
            lambda: (
                f"coalesce({self._of(kind, deeper)}, {self._of(kind, deeper)}, {self._leaf(kind)})"
            ),
            lambda: f"nullif({self._of(kind, deeper)}, {self._of(kind, deeper)})",
            lambda: (
                f"CASE WHEN {self._of('boolean', deeper)} THEN {self._of(kind, deeper)} "
                f"WHEN {self._of('boolean', deeper)} THEN {self._of(kind, deeper)} ELSE "
                f"{self._of(kind, deeper)} END"
            ),
            lambda: (
                f"if({self._of('boolean', deeper)}, {self._of(kind, deeper)}, "
                f"{self._of(kind, deeper)})"
            ),
            lambda: (
                f"CASE {self._of('string', deeper)} WHEN {self._leaf('string')} THEN "
                f"{self._of(kind, deeper)} END"
            ),
            lambda: f"({self._of(kind, deeper)})",
        ]
        of_kind = {
            "string": [
                lambda: f"{choose(['trim', 'ltrim', 'rtrim'])}({self._of('string', deeper)})",
                lambda: (
                    f"concat({self._of('string', deeper)}, "
                    f"{self._of(choose(['string', 'int', 'boolean']), deeper)})"
                ),
                lambda: f"({self._of('string', deeper)} || {self._of('int', deeper)})",
                lambda: (
                    f"substring({self._of('string', deeper)}, {choose([0, 1, 2, 5])}, "
                    f"{choose([0, 1, 3, 99])})"
                ),
                lambda: (
                    f"split_part({self._of('string', deeper)}, {choose(LITERALS[1:])}, "
                    f"{choose([1, 2, 3])})"
                ),
                lambda: (
                    f"replace({self._of('string', deeper)}, {choose(LITERALS[1:])}, "
                    f"{choose(LITERALS)})"
                ),
                lambda: f"substr({self._of('string', deeper)}, {choose([0, 1, 2])})",
                lambda: f"cast({self._of(choose(['int', 'boolean']), deeper)} as string)",
            ],
            "int": [lambda: f"cast({self._of('int', deeper)} as bigint)"],
            "boolean": [
                lambda: f"({self._compared(deeper)})",
                lambda: f"({self._of('boolean', deeper)} AND {self._of('boolean', deeper)})",
                lambda: f"({self._of('boolean', deeper)} OR {self._of('boolean', deeper)})",
                lambda: f"(NOT {self._of('boolean', deeper)})",
                lambda: (
                    f"({self._of(choose(list(BY_KIND)), deeper)} IS {choose(['', 'NOT '])}NULL)"
                ),
                lambda: (
                    f"({self._of('string', deeper)} IN ({self._leaf('string')}, "
                    f"{self._leaf('string')}, NULL))"
                ),
                lambda: f"({self._of('int', deeper)} NOT IN ({self._leaf('int')}, 7))",
                lambda: (
                    f"({self._of('int', deeper)} BETWEEN {self._leaf('int')} AND "
                    f"{self._leaf('int')})"
                ),
            ],
        }
        return choose(common + 2 * of_kind.get(kind, []))()

    def _compared(self, depth):
        kind = self._random.choice(["string", "int", "date", "timestamp", "double"])
        sign = self._random.choice(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
        if kind == "double":
            numbers = [
                "other",
                "share",
                "0.7",
                "-1.5",
                "(0.30)",
                "7",
                "-1",
                "tiny",
                "number",
                "NULL",
            ]
            left, right = "share", self._random.choice(numbers)
            if self._random.random() < 0.2:
                return f"share BETWEEN {right} AND {self._random.choice(numbers)}"
            left, right = self._random.choice([(left, right), (right, left)])
            return f"{left} {sign} {right}"
        return f"{self._of(kind, depth)} {sign} {self._of(kind, depth)}"

    def _leaf(self, kind):
        if self._random.random() < 0.7 or kind in ("date", "timestamp"):
            return self._random.choice(BY_KIND[kind])
        if kind == "string":
            return self._random.choice(LITERALS)
        if kind == "int":
            return str(
                self._random.choice(
                    [0, 1, -1, 7, 2147483647, -2147483648, 2147483648, 9223372036854775807]
                )
            )
        return self._random.choice(["true", "FALSE"])


def rows(count, seed):
    """Rows of TYPES, of which many are null, empty or odd."""
    draw = random.Random(seed)
    days = [
        None,
        dt.date(1970, 1, 1),
        dt.date(2026, 11, 26),
        dt.date(1600, 2, 29),
        dt.date(9999, 12, 31),
    ]
    times = [
        None,
        dt.datetime(2026, 11, 26, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ]
    columns = {
        "Name": TEXTS, "city": TEXTS, "tiny": INTEGERS, "number": [*INTEGERS, 2**31 - 1, -(2**31)],
        "large": [*INTEGERS, 2**63 - 1, -(2**63)], "flag": [None, True, False], "day": days,
        "at": times, "share": DOUBLES, "other": DOUBLES,
    }  # fmt: skip
    return pa.table(
        {name: [draw.choice(values) for _ in range(count)] for name, values in columns.items()},
        schema=TYPES,
    )


def compare(spark, texts, given):
    """Every expression in one Spark job, and by Arrow; returns the values compared."""
    numbered = [f"{text} AS e{number}" for number, text in enumerate(texts)]
    frame = spark.createDataFrame(given).selectExpr(*numbered)
    types, judged = arrow_schema(frame.schema), frame.toArrow()
    columns = {name: given[name].combine_chunks() for name in given.column_names}
    for number, text in enumerate(texts):
        expression = arrow_expression(text, TYPES)
        assert expression is not None, text
        values = expression.evaluate(columns, given.num_rows)
        assert expression.kind == types.field(number).type, text
        assert values.to_pylist() == judged[f"e{number}"].to_pylist(), text
    return len(texts) * given.num_rows


@pytest.mark.spark
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.proof), pytest.param(3, marks=pytest.mark.proof)]
)
def test_arrow_gives_the_values_of_spark_for_random_expressions(spark, seed):
    drawn = Expressions(seed)
    texts = list(dict.fromkeys(drawn.draw() for _ in range(300)))
    assert compare(spark, texts, rows(150, seed)) > 30_000


@pytest.mark.spark
@pytest.mark.proof
def test_upper_and_lower_give_each_letter_the_case_of_spark(spark):
    letters = [chr(code) for code in range(1, 0x20000) if not 0xD800 <= code < 0xE000]
    draw = random.Random(1)
    cased = [letter for letter in letters if letter.lower() != letter or letter.upper() != letter]
    odd = [*cased, *"ΣΣΣσς' .-\u0301\u0308\u00ad:İıﬁŉǰΐ" * 20]
    words = ["".join(draw.choices(odd, k=draw.randint(2, 6))) for _ in range(100_000)]
    given = pa.table(
        {
            name: letters + words
            if name == "Name"
            else pa.nulls(len(letters + words), TYPES.field(name).type)
            for name in TYPES.names
        },
        schema=TYPES,
    )
    assert compare(spark, ["lower(name)", "upper(name)"], given) > 400_000


@pytest.mark.parametrize(
    "text",
    [
        "lower(number)", "initcap(name)", "trim('x' FROM name)", "name = 1", "number = '1'",
        "substring(name, -2)", "substring(name, number)", "concat(name, day)", "cast(name as int)",
        "cast(large as int)", "number + 1", "day = '2026-11-26'", "day = `at`", "name LIKE 'a%'",
        "'a\\n'", "name < true", "NULL", "coalesce(NULL, NULL)", "1.5", "rand()", "current_date",
        "1.5 IS NULL", "coalesce(share, 0.5)", "large < share", "number < 1.5", "share IN (0.7)",
        "share = '1'", "1.5 < 2.5", "no_column", "name.first", "flag < true", "coalesce(name, 1)",
        "name = 'O''Neil'", "concat('a' 'b', name)", "if(flag, name)",
        "columns(name)", "flag = name IN ('a')", "flag = number < 7", "flag = number BETWEEN 1 AND 2",
        "number BETWEEN 1 AND 2 = flag", "flag = NOT flag", "flag <=> name IN ('a')",
    ],
)  # fmt: skip
def test_an_expression_whose_value_may_differ_in_arrow_needs_spark(text):
    assert arrow_expression(text, TYPES) is None


def test_a_text_that_is_no_utf8_gets_the_case_of_java():
    given = {"Name": pa.array([b"Z\xfcRICH", b"\xc3\x84 \xc3"], pa.binary()).view(pa.string())}
    for text, wanted in {"lower(name)": ["z\ufffdrich", "ä \ufffd"],
                         "upper(name)": ["Z\ufffdRICH", "Ä \ufffd"]}.items():  # fmt: skip
        assert arrow_expression(text, TYPES).evaluate(given, 2).to_pylist() == wanted


def test_an_expression_names_the_columns_that_it_reads():
    expression = arrow_expression("CASE WHEN flag THEN trim(NAME) ELSE 'none' END", TYPES)
    assert expression.reads == {"Name", "flag"}
