"""Texts of numbers."""

from decimal import Decimal

import pytest

from jobs.wording import money, percent, priced, rounded


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


@pytest.mark.parametrize(
    ("cost", "exact", "rounds_to"),
    [
        ("0.1000", "0.10 EUR", "0.10 EUR"),
        ("0.0040", "0.004 EUR", "0.004 EUR"),
        ("0.0000345678", "0.0000345678 EUR", "0.00003457 EUR"),
        ("0.99996", "0.99996 EUR", "1.00 EUR"),
        ("12345.3201", "12,345.3201 EUR", "12,345.32 EUR"),
        ("7", "7.00 EUR", "7.00 EUR"),
        ("0", "0.00 EUR", "0.00 EUR"),
    ],
)
def test_a_cost_has_two_decimals_and_a_cost_below_one_its_first_four_digits(cost, exact, rounds_to):
    assert money(Decimal(cost), "EUR") == exact
    assert priced({"EUR": Decimal(cost)}) == priced({"EUR": float(cost)}) == rounds_to


def test_a_share_reads_as_none_or_all_only_if_it_is():
    shown = {
        0.0: "0.00%", 1.0: "100.00%", 0.125: "12.50%", 0.00001: "0.001%", 0.0012: "0.12%",
        0.999996: "99.9996%", 1e-15: "0.0000000000001%",
    }  # fmt: skip
    for share, text in shown.items():
        assert percent(share) == text
    assert [percent(share, 0) for share in (0.5, 0.996, 0.004)] == ["50%", "99.6%", "0.4%"]
    assert percent(0.99996, 1) == "99.996%"
