"""Keys told without Spark are what Spark gives, value by value; what is not known to be so is refused."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import DeclarationError
from jobs.trying.expressions import evaluate

TEXTS = ["  Main St 5 ", "", "straße", "ΑΣ", "\tx\u00a0", "N1", "İstanbul ŉ ı ſ", "😀 b c", "12", None, "a-b-c", "0"]
NUMBERS = [7, 0, -3, 12, 1, 2, 3, 100, -1, 5, None, 42]
DATES = ["2013-01-10", "2013-1-9", "2013", "1999-12-31 23:59", " 2020-02-29 ", "2013-01", None, *["0001-01-01"] * 5]
COMPACT = ["20130110", "19991231", None, "20240229", *["20000101"] * 8]
MOMENTS = [
    dt.datetime(2013, 1, 10, 5, 42, 7, 123_456, tzinfo=dt.UTC),
    dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2012, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    None,
    dt.datetime(1969, 12, 31, 23, 0, 0, 500_000, tzinfo=dt.UTC),
    dt.datetime(2024, 2, 29, 12, 30, 1, 100_000, tzinfo=dt.UTC),
    *[dt.datetime(2013, 1, day, 5, tzinfo=dt.timezone(dt.timedelta(hours=5))) for day in range(11, 17)],
]
DAYS = [None if moment is None else moment.date() for moment in MOMENTS]

EXPRESSIONS = [
    "t", "T", "`odd name`", "n", "small", "price", "at", "d", "naive", "flag", "raw",
    "trim(lower(t))", "upper(t)", "lower(upper(t))", "upper(lower(upper(t)))", "upper(trim(lower(t)))",
    "ltrim(t)", "rtrim(t)", "trim(BOTH FROM t)", "length(t)",
    "char_length(t)", "left(t, 2)", "right(t, 2)", "left(t, n)", "right(t, n)", "replace(t, 'a', 'xy')", "md5(t)",
    "replace(t, '', 'x')",
    "substring(t, 2)", "substring(t, 2, 3)", "substring(t, 0, 2)", "substring(t, -3, 2)", "substring(t, -100, 3)",
    "substr(t, n, 2)", "substring(t, -2)", "substring(t, 1, n)",
    "concat(t, '-', n)", "concat(t)", "t || ':' || d", "concat(flag, at)", "concat(t, null)",
    "coalesce(t, 'none')", "nvl(n, 0)", "ifnull(small, n)", "coalesce(null, t)", "coalesce(d, date'2013-01-01')",
    "nullif(t, '')", "nullif(n, 0)", "if(n > 2, t, 'few')", "if(flag, n, null)",
    "CASE WHEN n > 10 THEN 'many' WHEN n IS NULL THEN 'unknown' ELSE t END", "CASE n WHEN 7 THEN 'seven' END",
    "CASE WHEN flag THEN 1 ELSE n END", "n IS NULL", "t IS NOT NULL", "NOT flag", "flag AND n > 0", "flag OR n > 0",
    "t IN ('N1', '12')", "n IN (7, NULL)", "n NOT IN (7, 12)", "t = 'N1'", "t <> 'N1'", "t < 'a'", "at >= at", "d = d",
    "n + 1", "n - small", "n * 2 + small", "-n", "(n + 1) * -2",
    "cast(n AS string)", "cast(t AS string)", "string(at)", "at::string", "cast(d AS string)", "cast(flag AS string)",
    "cast(digits AS int)", "int(digits)", "cast(digits AS bigint)", "cast(flag AS int)", "cast(n AS boolean)",
    "cast(n AS double)", "cast(dates AS date)", "date(dates)", "cast(at AS date)", "to_date(at)", "to_date(dates)",
    "to_date(compact, 'yyyyMMdd')", "to_date(dashed, 'dd/MM/yyyy')", "cast(at AS timestamp)",
    "date_trunc('HOUR', at)", "date_trunc('hour', at)", "date_trunc('MINUTE', at)", "date_trunc('SECOND', at)",
    "date_trunc('DAY', at)", "date_trunc('WEEK', at)", "date_trunc('MONTH', at)", "date_trunc('QUARTER', at)",
    "date_trunc('YEAR', at)", "date_trunc('MONTH', d)",
    "date_format(at, 'yyyy-MM-dd HH:mm')", "date_format(at, \"yyyy-MM-dd'T'HH:mm:ss\")", "date_format(d, 'yyyyMMdd')",
    "year(at)", "month(at)", "day(d)", "hour(at)", "minute(at)", "year(d)", "month(dates)",
    "'text'", "5", "true", "NULL",
]  # fmt: skip
ONLY_SPARK = {
    "regexp_replace(t, 'a', 'b')": "is not among the functions that are known here",
    "sha2(t, 256)": "is not among the functions that are known here",
    "current_date()": "is not among the functions that are known here",
    "my_udf(t)": "is not among the functions that are known here",
    "t LIKE 'a%'": "is not among the functions that are known here",
    "trim(BOTH 'x' FROM t)": "is not among the functions that are known here",
    "n / 2": "is not among the functions that are known here",
    "place.street": "place.street is a field of a struct",
    "coalesce(n, 'none')": "values of different types (int, string) become one type in Spark",
    "coalesce(price, price)": "values of different types (other) become one type in Spark",
    "t = n": "values of different types (int, string) become one type in Spark",
    "concat(t, x)": "x is double, which Spark writes in its own way",
    "cast(price AS string)": "price is other, which Spark writes in its own way",
    "cast(t AS int)": "a value that is no whole number of 32 bits",
    "cast(t AS date)": "a text that is no date as 2013-01-10",
    "cast(n AS tinyint) + big": "is beyond what an INT holds",
    "cast(t AS varchar(3))": "a type with a size",
    "lower('\u1c89')": "a letter that Python's Unicode does not know",
    "lower(n)": "n is int, and string is wanted there",
    "1.5": "the number 1.5 is a decimal",
    "date_trunc('HOUR', naive)": "naive is ntz, and timestamp or date is wanted there",
    "date_trunc('DECADE', at)": "date_trunc to DECADE",
    "date_format(at, 'EEE')": "a pattern of more than yyyy, MM, dd, HH, mm, ss",
    "date_format(at, 'yyyy-MM-dd[ HH]')": "a pattern of more than",
    "to_date(t, 'yyyyMMdd')": "a text that is not a date of that pattern",
}


@pytest.fixture(scope="module")
def rows():
    columns = {
        "t": TEXTS,
        "odd name": TEXTS[::-1],
        "n": pa.array(NUMBERS, pa.int32()),
        "small": pa.array(NUMBERS[::-1], pa.int16()),
        "big": pa.array([2**40] * 12, pa.int64()),
        "x": pa.array([1.5, 2.0, None] * 4, pa.float64()),
        "price": pa.array([Decimal("1.50"), None, Decimal("3.00")] * 4, pa.decimal128(10, 2)),
        "digits": ["1", "-2", " 3 ", "+4", None, "0012", *["127"] * 6],
        "dates": DATES,
        "compact": COMPACT,
        "dashed": ["31/12/1999", None, "10/01/2013"] * 4,
        "at": pa.array(MOMENTS, pa.timestamp("us", tz="UTC")),
        "naive": pa.array([None if at is None else at.replace(tzinfo=None) for at in MOMENTS], pa.timestamp("us")),
        "d": DAYS,
        "flag": [True, False, None] * 4,
        "raw": [b"\x00\xff", None, b""] * 4,
        "place": [{"street": "Main"}] * 12,
    }
    return pa.table(columns)


@pytest.mark.spark
def test_every_expression_that_is_known_gives_what_spark_gives(spark, rows, tmp_path):
    pq.write_table(rows, tmp_path / "rows.parquet")
    named = [f"{expression} AS e{number}" for number, expression in enumerate(EXPRESSIONS)]
    told = spark.read.parquet(str(tmp_path)).selectExpr(*named).toArrow()
    different = {
        expression: (evaluate(expression, rows).to_pylist(), told.column(number).to_pylist())
        for number, expression in enumerate(EXPRESSIONS)
        if evaluate(expression, rows).to_pylist() != told.column(number).to_pylist()
    }
    assert different == {}


@pytest.mark.parametrize("expression", ONLY_SPARK)
def test_what_only_spark_can_be_trusted_with_is_refused_by_name(expression, rows):
    with pytest.raises(DeclarationError) as error:
        evaluate(expression, rows)
    assert str(error.value).startswith(f"{expression!r} cannot be told without Spark: ")
    assert ONLY_SPARK[expression] in str(error.value)
    assert "\n" not in str(error.value)
