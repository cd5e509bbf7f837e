"""The command of an approved plan."""

import pytest

from jobs.commands.planning.approving import PricedPlan


@pytest.mark.parametrize(
    ("calls", "price", "most"),
    [(0, "free", "--max-calls=0"), (3, "free", "--max-calls=3"), (3, "1 USD", "--max-cost=1 USD")],
)
def test_an_approved_plan_makes_no_call_more_than_was_approved(calls, price, most):
    priced = PricedPlan("a" * 16, "towns", "2013-01-10", "", calls, price)
    assert priced.command[-1] == most
