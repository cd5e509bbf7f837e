"""Which declared expectations Spark fails to run, as found on rows that are made up."""

import datetime as dt
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from data_quality.declared_checks import wrong_expectations
from data_quality.slow_imports import quiet
from jobs.schema.records import DeclaredFacts, ExpectationFacts

with quiet():
    from data_quality import expectation_trials

pytestmark = pytest.mark.spark

TYPES = (
    "name string, n int, at timestamp, day date, share decimal(4,2), small tinyint, yes boolean, "
    "raw binary, many array<int>, part struct<x: int>, `a b` double"
)
NOT_NULL = "expect_column_values_to_not_be_null"
BETWEEN = "expect_column_values_to_be_between"
IN_SET = "expect_column_values_to_be_in_set"
REGEX = "expect_column_values_to_match_regex"
COLUMNS = ["name", "n", "at", "day", "share", "small", "yes", "raw", "many", "part", "a b"]


def find_wrong(spark, declared):
    facts = tuple(ExpectationFacts(type_, arguments) for type_, arguments in declared)
    day = DeclaredFacts("towns", "t", "i", "date", "ordered", (), (), expectations=facts)
    rows = spark.createDataFrame([], TYPES)
    return wrong_expectations(day, rows.columns, rows)


@pytest.mark.proof
def test_an_expectation_that_no_row_lets_run_is_refused_with_its_reason(spark):
    on_spark = {"condition_parser": "spark"}
    found = find_wrong(
        spark,
        [
            (REGEX, {"column": "name", "regex": "(?P<of_python>a)"}),
            (IN_SET, {"column": "n", "value_set": ["a", "b"]}),
            (NOT_NULL, {"column": "name", "row_condition": "nope > 1"} | on_spark),
            ("expect_column_mean_to_be_between", {"column": "many", "min_value": 1}),
        ],
    )
    reasons = ("pattern", "CAST_INVALID_INPUT", "nope", "array")
    assert len(found) == len(reasons), found
    for reason, part in zip(found, reasons, strict=True):
        assert part.lower() in reason.lower()


@pytest.mark.proof
def test_an_expectation_that_fails_on_the_rows_is_not_refused(spark):
    date = dt.date(2013, 1, 10)
    of_all = [(NOT_NULL, {"column": name}) for name in COLUMNS]
    unique = [("expect_column_values_to_be_unique", {"column": name}) for name in COLUMNS[:7]]
    found = find_wrong(
        spark,
        [
            *of_all,
            *unique,
            (REGEX, {"column": "name", "regex": r"^\p{L}+$"}),
            ("expect_column_values_to_be_json_parseable", {"column": "name"}),
            ("expect_column_values_to_match_strftime_format",
             {"column": "name", "strftime_format": "%d.%m.%Y"}),
            ("expect_column_values_to_match_json_schema",
             {"column": "name", "json_schema": {"type": "object"}}),
            ("expect_column_value_z_scores_to_be_less_than",
             {"column": "n", "threshold": 3, "double_sided": True}),
            (IN_SET, {"column": "name", "value_set": [1, 2]}),
            (IN_SET, {"column": "n", "value_set": ["1", "2"]}),
            (BETWEEN, {"column": "day", "min_value": "2013-01-01"}),
            (BETWEEN, {"column": "at", "min_value": date}),
            (BETWEEN, {"column": "share", "min_value": 0, "max_value": 1}),
            (BETWEEN, {"column": "small", "min_value": 0}),
            (NOT_NULL, {"column": "name", "row_condition": 'col("n") > 0'}
             | {"condition_parser": "great_expectations"}),
            ("expect_column_mean_to_be_between", {"column": "n", "min_value": 1}),
            ("expect_compound_columns_to_be_unique", {"column_list": ["name", "n"]}),
            ("expect_multicolumn_sum_to_equal", {"column_list": ["n", "small"], "sum_total": 3}),
            ("expect_column_pair_values_to_be_equal", {"column_A": "at", "column_B": "day"}),
            ("expect_column_median_to_be_between", {"column": "small", "min_value": 3}),
            ("expect_column_stdev_to_be_between", {"column": "a b", "min_value": 1}),
            ("expect_column_max_to_be_between", {"column": "small", "min_value": 1}),
            ("expect_column_unique_value_count_to_be_between", {"column": "yes", "min_value": 9}),
            ("expect_table_row_count_to_be_between", {"min_value": 100}),
        ],
    )  # fmt: skip
    assert found == []


@pytest.mark.proof
def test_sql_that_only_the_made_up_rows_break_is_not_refused(spark):
    on_date = {"row_condition": "to_date(name, 'dd.MM.yyyy') > date'2013-01-01'"}
    query = {"unexpected_rows_query": "SELECT * FROM {batch} WHERE 100 / (n - 2000) < 1"}
    found = find_wrong(
        spark,
        [
            (NOT_NULL, {"column": "n", "condition_parser": "spark"} | on_date),
            ("unexpected_rows_expectation", query),
        ],
    )
    assert found == []


LOST = "raise_error('executor lost') is null"


@pytest.mark.proof
def test_a_failure_of_spark_is_not_reported_as_a_wrong_expectation(spark):
    down = SimpleNamespace(range=lambda *to: spark.range(*to).where(LOST))
    facts = (ExpectationFacts(NOT_NULL, {"column": "down"}),)
    day = DeclaredFacts("towns", "t", "i", "date", "ordered", (), (), expectations=facts)
    rows = SimpleNamespace(schema=StructType.fromDDL("down int"), sparkSession=down)
    with pytest.raises(PySparkException, match="executor lost"):
        wrong_expectations(day, ["down"], rows)


@pytest.mark.proof
def test_a_rule_that_fails_for_a_moment_is_not_refused(spark, monkeypatch):
    moments, validate = iter([LOST, LOST]), expectation_trials.validate
    monkeypatch.setattr(
        expectation_trials,
        "validate",
        lambda specs, judge, rows: validate(specs, judge, rows.where(next(moments, "true"))),
    )
    assert find_wrong(spark, [(NOT_NULL, {"column": "small"})]) == []
