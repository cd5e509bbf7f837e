"""Sums of money."""

from collections.abc import Iterable
from decimal import Decimal
from typing import TypeVar

Amount = TypeVar("Amount", Decimal, float)


def sum_by_currency(costs: Iterable[tuple[str, Amount]]) -> dict[str, Amount]:
    """Return the sum of each currency's amounts, in the order in which the currencies appear."""
    found: dict[str, Amount] = {}
    for currency, amount in costs:
        found[currency] = found[currency] + amount if currency in found else amount
    return found
