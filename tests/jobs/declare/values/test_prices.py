"""Prices: how they are written, which one holds, what they come to, and that they ask
nothing anew.
"""

from decimal import Decimal

import pytest

from jobs.declare.values.fingerprint import fingerprint
from jobs.declare.values.prices import in_force, price_units
from jobs.errors import DeclarationError
from jobs.ledger.declared_folder import request_fingerprint
from tidegate import HttpLookup, Price, Service


def geo(*prices):
    service = Service(name="geo", url="http://127.0.0.1:1", max_concurrency=4, prices=prices)
    return HttpLookup(
        name="location",
        service=service,
        request="GET /{q}",
        keys={"q": "q"},
        returns="lat DOUBLE",
        timeout=1.0,
    )


def test_the_price_in_force_is_the_last_one_that_has_begun():
    prices = geo(
        Price("0.0046 USD", since="2026-12-01"),
        Price("0.0040 USD"),
        Price("0.0050 USD", since="2027-01-01"),
    ).prices
    assert [in_force(prices, day).amount for day in ("2026-11-30", "2026-12-01", "2027-02-01")] == [
        "0.0040",
        "0.0046",
        "0.0050",
    ]
    assert in_force(prices[:1], "2026-11-30") is None


def test_costs_are_exact_decimals_of_the_units_billed():
    (item,) = geo(Price("0.10 USD")).prices
    (many,) = geo(Price("2.50 EUR", per="1000 items")).prices
    assert price_units(item, 3) == Decimal("0.30")
    assert price_units(many, 1) == Decimal("0.0025")
    assert price_units(None, 10) == 0


def test_a_price_is_never_part_of_a_fingerprint():
    assert request_fingerprint(geo()) == request_fingerprint(geo(Price("1 USD")))
    assert fingerprint(geo()) == fingerprint(geo(Price("1 USD")))


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (lambda: [Price("0.004")], "price: amount is '0.004'; it must be an amount and a currency"),
        (lambda: [Price(0.004)], "price: amount is 0.004"),
        (lambda: [Price("-1 USD")], "price: amount is '-1 USD'"),
        (
            lambda: [Price("1 USD", per="0 items")],
            ("per is '0 items'; it must be item, request, a unit"),
        ),
        (
            lambda: [Price("1 USD", per="token")],
            ("its service has a price per token, which only a coroutine can report"),
        ),
        (
            lambda: [Price("1 USD"), Price("2 USD", per="request", since="2026-12-01")],
            "all must be .* same unit",
        ),
        (lambda: [Price("1 USD", since="2026-12-1")], "since is '2026-12-1'; it must be a date"),
        (
            lambda: [Price("1 USD"), Price("1 EUR", since="2026-12-01")],
            ("geo: prices: all must be in one currency"),
        ),
        (
            lambda: [Price("1 USD"), Price("2 USD")],
            ("service geo: prices: two begin on the same day"),
        ),
    ],
)
def test_a_price_that_cannot_be_is_refused_in_one_sentence(prices, message):
    with pytest.raises(DeclarationError, match=message):
        geo(*prices())
