"""Budgets of a service or an enrichment: the money that its runs may spend in a day or a month."""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from jobs.declare.values.prices import SENT, Money, Price, read_money
from jobs.errors import DeclarationError
from jobs.schema.records import PriceFacts

PERIODS = ("day", "month")
MONEY = "billionths of "  # prefix of the name of a money limit
PARTS = 1_000_000_000  # of a unit of money: a price has at most nine decimal places


@dataclass(frozen=True)
class Budget:
    """The most that all runs, or the runs of an enrichment, may spend at a service.

        Budget("100.00 USD", per="day")

    Attributes:
        amount: Decimal money, in the currency of the service's prices.
        per: day or month, in UTC; a run counts in the period in which it begins.
        at_most: The most that a call costs, as "0.05 USD": this amount is reserved before each
            call. By default the price of a request, of a batch's items, and of the `at_most` units
            of each price whose units only answers report; required where such a price has none.
    """

    amount: str
    per: str = field(kw_only=True)
    at_most: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.per not in PERIODS:
            raise DeclarationError(
                f"budget: per is {self.per!r}; it must be day or month. For a run: --max-cost."
            )
        if not self.parts:
            raise DeclarationError(f"budget: amount is {self.amount!r}; it must be over 0.")
        if self.at_most is None:
            return
        if read_money(self.at_most, "budget: at_most").currency != self.money.currency:
            raise DeclarationError(
                f"budget: at_most is {self.at_most!r}; it must be in the currency of the amount, "
                f"{self.money.currency}."
            )
        if not 0 < self.reserve_per_call <= self.parts:
            raise DeclarationError(
                f"budget: at_most is {self.at_most!r}; it must be over 0 and within the budget."
            )

    @property
    def money(self) -> Money:
        return read_money(self.amount, "budget: amount")

    @property
    def parts(self) -> int:
        """The amount in billionths."""
        return int(self.money.amount * PARTS)

    @property
    def reserve_per_call(self) -> int:
        """`at_most` in billionths; 0 without it."""
        if self.at_most is None:
            return 0
        return int(read_money(self.at_most, "budget: at_most").amount * PARTS)

    def name(self, today: dt.date, enrichment: str = "") -> str:
        """Return the name of its limit, the same for all runs whose spending counts together.

        Args:
            today: The day on which the run began.
            enrichment: The enrichment whose runs count; empty for all runs.
        """
        period = f"on {today}" if self.per == "day" else f"in {today:%Y-%m}"
        return f"{MONEY}{self.money.currency} {period}{enrichment and f' for {enrichment}'}"


def check_budgets(where: str, budgets: Sequence[Budget], prices: Sequence[Price]) -> None:
    """Raise DeclarationError if the prices, or a missing `at_most`, make a budget impossible."""
    if not budgets:
        return
    facts = [price.facts for price in prices]
    if not facts:
        raise DeclarationError(f"{where}: budget: the service has no price; declare prices.")
    for budget in budgets:
        if budget.money.currency != facts[0].currency:
            raise DeclarationError(
                f"{where}: budget: {budget.amount!r} is not in the currency of its prices, "
                f"{facts[0].currency}; give it in that currency."
            )
        open_ended = [fact.unit for fact in facts if fact.unit not in SENT and fact.at_most is None]
        if open_ended and budget.at_most is None:
            raise DeclarationError(
                f"{where}: budget: only an answer reports how many {open_ended[0]}s a call cost; "
                'declare at_most, the most that one call costs, such as at_most="0.05 USD", or the '
                f"most {open_ended[0]}s in the price, such as at_most=2_000."
            )
    for period in PERIODS:
        if sum(budget.per == period for budget in budgets) > 1:
            raise DeclarationError(
                f"{where}: budget: two are per {period}; keep only the smaller one."
            )


def parts_of(price: PriceFacts) -> Fraction:
    """Return the price of a unit in billionths."""
    return Fraction(Decimal(price.amount)) * PARTS / price.per


def most_parts(prices: Sequence[PriceFacts], items: int) -> int:
    """Return the most billionths that a call with so many items costs.

    It is 0 if a price has no `at_most` and only an answer tells its units.
    """
    units = {"item": items, "request": 1}
    most = [units.get(price.unit, price.at_most) for price in prices]
    if None in most:
        return 0
    each = zip(prices, most, strict=True)
    return math.ceil(sum(parts_of(price) * (many or 0) for price, many in each))
