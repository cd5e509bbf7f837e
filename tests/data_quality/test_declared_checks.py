"""Which declared expectations Great Expectations would refuse after the calls."""

import pytest

from data_quality.declared_checks import wrong_expectations
from jobs.schema.records import DeclaredFacts, ExpectationFacts

BETWEEN = "expect_column_values_to_be_between"


WHERE_M = {"row_condition": 'col("m") > 1', "condition_parser": "great_expectations"}


def declare(type_, **arguments):
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
        (
            declare(BETWEEN, column="_late_", min_value=3),
            "no column '_late_'. Did you mean '_late'",
        ),
        (declare(BETWEEN, column="n", min_value=3, **WHERE_M), "no column 'm'."),
        (declare(BETWEEN, column="_partition", min_value=3), None),
        (declare("expect_table_row_count_to_be_between", min_value=1), None),
    ],
)
def test_an_expectation_that_cannot_be_evaluated_is_found(declared, why):
    found = wrong_expectations(declared, ["n"])
    assert len(found) == (why is not None)
    assert all(why in one for one in found)
