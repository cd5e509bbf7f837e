"""Prices: how they are written, which one holds, what they come to, and that they ask
nothing anew.
"""

from decimal import Decimal

import pytest

from jobs.declare.values.fingerprint import fingerprint
from jobs.declare.values.prices import cost_of, in_force, prices_of_model
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


def test_the_current_price_is_the_last_price_that_has_begun():
    prices = geo(
        Price("0.0046 USD", since="2026-12-01"),
        Price("0.0040 USD"),
        Price("0.0050 USD", since="2027-01-01"),
    ).prices
    assert [
        in_force(prices, day)[0].amount for day in ("2026-11-30", "2026-12-01", "2027-02-01")
    ] == [
        "0.0040",
        "0.0046",
        "0.0050",
    ]
    assert in_force(prices[:1], "2026-11-30") == ()


def test_costs_are_exact_decimals_of_the_units_billed():
    (item,) = geo(Price("0.10 USD")).prices
    (many,) = geo(Price("2.50 EUR", per="1000 items")).prices
    assert cost_of([item], {"item": 3, "request": 7}) == Decimal("0.30")
    assert cost_of([many], {"item": 1}) == Decimal("0.0025")
    assert cost_of([], {"item": 10}) == 0


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
            "per is '0 items'; it must be item, request, a unit",
        ),
        (
            lambda: [Price("1 USD", per="token")],
            "bill: its service has a price per token, and bill does not say where",
        ),
        (
            lambda: [Price("1 USD", model="large")],
            "model: its service has prices for the models large",
        ),
        (lambda: [Price("1 USD", model="")], "price 1 USD: model is ''; it must be the name"),
        (
            lambda: [Price("1 USD", per="token", at_most=0)],
            "price 1 USD: at_most is 0; it must be a whole number of tokens, at least 1",
        ),
        (
            lambda: [Price("1 USD", at_most=7)],
            "price 1 USD: at_most: items are counted before a call; leave it out",
        ),
        (lambda: [Price("1 USD", since="2026-12-1")], "since is '2026-12-1'; it must be a date"),
        (
            lambda: [Price("1 USD"), Price("1 EUR", since="2026-12-01")],
            "geo: prices: all must be in one currency",
        ),
        (
            lambda: [Price("1 USD"), Price("2 USD")],
            "service geo: prices: two per item begin on the same day",
        ),
    ],
)
def test_a_wrong_price_is_refused_in_one_sentence(prices, message):
    with pytest.raises(DeclarationError, match=message):
        geo(*prices())


def test_a_model_has_its_prices_and_for_other_units_the_general_prices():
    prices = [
        Price("1 USD", per="input_token"),
        Price("2 USD", per="input_token", model="large"),
        Price("3 USD", per="output_token", model="large", since="2026-12-01"),
        Price("4 USD", per="request"),
    ]
    facts = [price.facts for price in prices]
    for model, amounts in ((None, ["1", "4"]), ("small", ["1", "4"]), ("large", ["2", "3", "4"])):
        assert [price.amount for price in prices_of_model(facts, model)] == amounts
    large = prices_of_model(facts, "large")
    assert [price.amount for price in in_force(large, "2026-11-30")] == ["2", "4"]
    used = {"input_token": 3, "output_token": 5, "request": 1, "cached_token": 9}
    assert cost_of(in_force(large, "2026-12-01"), used) == 2 * 3 + 3 * 5 + 4
