"""Texts of numbers."""

import pytest

from jobs.wording import rounded


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (12_345, 4, "12,340"),
        (0.00005, 4, "0.00005"),
        (1e-05 / 3, 4, "0.000003333"),
        (0.5, 4, "0.5"),
        (0, 4, "0"),
        (-1_234_567.0, 15, "-1,234,567"),
    ],
)
def test_a_rounded_number_has_no_exponent(number, digits, text):
    assert rounded(number, digits) == text
