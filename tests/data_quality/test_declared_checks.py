"""Which declared expectations Great Expectations would refuse after the calls."""

import pytest

from data_quality.declared_checks import wrong_expectations
from jobs.schema.records import DeclaredFacts, ExpectationFacts

BETWEEN = "expect_column_values_to_be_between"
NOT_NULL = "expect_column_values_to_not_be_null"
IN_SET = "expect_column_values_to_be_in_set"
NOT_IN_SET = "expect_column_values_to_not_be_in_set"
MATCH = "expect_column_values_to_match_like_pattern"
IN_REGEX = "expect_column_values_to_match_regex"
IN_REGEXES = "expect_column_values_to_match_regex_list"
QUANTILES = "expect_column_quantile_values_to_be_between"
KL = "expect_column_kl_divergence_to_be_less_than"
LENGTHS = "expect_column_value_lengths_to_be_between"
MAX = "expect_column_max_to_be_between"
PAIRS = "expect_column_pair_values_to_be_in_set"
QUOTED = {"row_condition": "col(n) =", "condition_parser": "great_expectations"}
# which Python's `re` refuses or reads otherwise
OF_JAVA = (r"\p{L}+", "(?<a>b)", r"\Q(\E", "x(?i)y", "[[a](]", "^*")

WHERE_M = {"row_condition": 'col("m") > 1', "condition_parser": "great_expectations"}


def declare(type_, **arguments):
    if type_ == PAIRS:
        arguments |= {"column_A": "n", "column_B": "n"}
    facts = (ExpectationFacts(type_, arguments),)
    return DeclaredFacts("towns", "t", "i", "date", "ordered", (), (), expectations=facts)


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (declare("expect_column_values_to_be_nice", column="n"), "has no expect_column_values_to_"),
        (declare(BETWEEN, column="n", min_val=3), "min_val extra fields not permitted"),
        (declare(BETWEEN, column="m", min_value=3), "the table has no column 'm'."),
        (declare("expect_compound_columns_to_be_unique", column_list=["n", "m"]), "no column 'm'."),
        (declare(BETWEEN, column="N", min_value=3), None),
        (declare(BETWEEN, column="_late_", min_value=3), "'_late_'. Did you mean '_late'?"),
        (declare("expect_compound_columns_to_be_unique", column_list=None), "column_list none is"),
        (declare(BETWEEN, column="n", min_value=3, **WHERE_M), "no column 'm'."),
        (declare(BETWEEN, column="_partition", min_value=3), None),
        (declare("expect_table_row_count_to_be_between", min_value=1), None),
        (declare(MATCH, column="n", like_pattern="a%"), "using SparkDFExecutionEngine"),
        (declare(NOT_NULL, column="n", mostly={"$PARAMETER": "x"}), "write the value instead of a"),
        (declare(NOT_NULL, column="n", **QUOTED), "unable to parse condition"),
        (declare(QUANTILES, column="n", quantile_ranges={"quantile": [1]}), "'quantiles'"),
        (declare(NOT_NULL, column="n", description="d", meta={}, notes="n", id="i"), None),
        (declare(KL, column="n", partition_object={"values": [1], "weights": [1]}), None),
        (declare(IN_REGEX, column="n", regex="a("), "regex 'a(' is broken: missing )"),
        (declare(IN_REGEX, column="n", regex="a)"), "regex 'a)' is broken: unbalanced"),
        (declare(IN_REGEXES, column="n", regex_list=["a", "[b"]), "regex '[b' is broken: untermin"),
        *((declare(IN_REGEX, column="n", regex=text), None) for text in OF_JAVA),
    ],
)
def test_an_expectation_that_cannot_be_evaluated_is_found(declared, why):
    found = wrong_expectations(declared, ["n"])
    assert len(found) == (why is not None)
    assert all(why in reason and "?." not in reason for reason in found)


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (
            declare(IN_SET, column="n", value_set=[1, None]),
            "None, which no rule about values finds",
        ),
        (declare(NOT_IN_SET, column="n", value_set=[1, None]), "None, which no rule about values"),
        (declare("expect_column_mean_to_be_between", column="n"), "needs min_value or max_value"),
        (declare("expect_table_row_count_to_be_between"), "needs min_value or max_value"),
        (declare(PAIRS, value_pairs_set=[(1, 2)], row_condition="n > 1"), "ignores row_condition"),
        (declare(BETWEEN, column="n", min_value=2**53 + 1), "is rounded to 9007199254740992;"),
        (declare("expect_table_row_count_to_equal", value=4.5), "value 4.5 is rounded to 4; write"),
        (declare(LENGTHS, column="n", min_value=2.5), "min_value 2.5 is rounded to 2; write a who"),
        (declare("expect_column_values_to_be_increasing", column="n"), "the rows have no order in"),
        (declare("expect_column_values_to_be_decreasing", column="n"), "the rows have no order in"),
        (declare(BETWEEN, column="n", min_value=3, max_value=1), "min_value is above max_value"),
        (declare(MAX, column="n", min_value=3, max_value=1), "min_value is above max_value"),
    ],
)
def test_an_expectation_that_never_or_always_fails_is_found(declared, why):
    (found,) = wrong_expectations(declared, ["n"])
    assert why in found
