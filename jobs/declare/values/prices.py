"""Prices of a service: decimal money per item, request or the service's unit, from a given day."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from jobs.declare.values.calendar import is_day
from jobs.errors import DeclarationError
from jobs.schema.records import PriceFacts

MONEY = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ([A-Z]{3})")
UNIT = re.compile(r"[a-z]+(?:_[a-z]+)*")
PER = re.compile(rf"(?:([1-9]\d{{0,8}}) )?({UNIT.pattern})")
SENT = ("item", "request")  # units that are counted when sent; only answers report others
Unit = tuple[str, str | None]  # a unit, and the model whose calls use it; None: of any model


@dataclass(frozen=True)
class Money:
    """An exact decimal amount in a currency."""

    amount: Decimal
    currency: str

    def __str__(self) -> str:
        return f"{self.amount:,f} {self.currency}"


def read_money(text: str, where: str) -> Money:
    """Return `0.0040 USD` as money. Raises DeclarationError for any other text."""
    found = MONEY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise DeclarationError(
            f"{where} is {text!r}; it must be an amount and a currency, such as '0.0040 USD'."
        )
    return Money(Decimal(found[1]), found[2])


def singular(unit: str) -> str:
    """Return the name of a unit: `token` for tokens, `address` for address."""
    return unit if unit.endswith("ss") else unit.removesuffix("s") or unit


@dataclass(frozen=True)
class Price:
    """The price of each attempt that reached the service: Price("0.0040 USD", per="item",
    since="2026-12-01"). Prices per different units add up.

    Attributes:
        amount: Decimal money, as "0.0040 USD".
        per: item (a key), request (a call; a retry is another call), a unit that answers report
            (`bill` of the lookup, or http.bill), such as input_token, or a multiple, such as
            "1000 items".
        since: The first day, in UTC, of the price, which applies until another price per this unit
            begins; None for the first price.
        model: The model whose calls have this price; None: any model without a price of its own.
        at_most: The highest number of units that answers report of one call, such as a model's
            max_tokens; of a batch, the number of the whole request. Budgets and --max-cost reserve
            its price before each call.
    """

    amount: str
    per: str = field(default="item", kw_only=True)
    since: str | None = field(default=None, kw_only=True)
    model: str | None = field(default=None, kw_only=True)
    at_most: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        read_money(self.amount, "price: amount")
        if not isinstance(self.per, str) or PER.fullmatch(self.per) is None:
            raise DeclarationError(
                f"price {self.amount}: per is {self.per!r}; it must be item, request, a unit of "
                "the service's own as token, or so many, such as '1000 items'."
            )
        if self.since is not None and not (isinstance(self.since, str) and is_day(self.since)):
            raise DeclarationError(
                f"price {self.amount}: since is {self.since!r}; it must be a date, such as "
                "2026-12-01."
            )
        if self.model is not None and not (isinstance(self.model, str) and self.model):
            raise DeclarationError(
                f"price {self.amount}: model is {self.model!r}; it must be the name of a model."
            )
        self._check_at_most()

    def _check_at_most(self) -> None:
        most, unit = self.at_most, self.facts.unit
        if most is None:
            return
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise DeclarationError(
                f"price {self.amount}: at_most is {most!r}; it must be a whole number of {unit}s, "
                "at least 1."
            )
        if unit in SENT:
            raise DeclarationError(
                f"price {self.amount}: at_most: {unit}s are counted before a call; leave it out."
            )

    @property
    def facts(self) -> PriceFacts:
        """The price as plain data."""
        money = read_money(self.amount, "price: amount")
        found = PER.fullmatch(self.per)
        assert found is not None  # checked at construction
        return PriceFacts(
            str(money.amount), money.currency, singular(found[2]), int(found[1] or 1), self.since,
            self.model, self.at_most,
        )  # fmt: skip


def check_prices(where: str, prices: Sequence[Price]) -> None:
    """Raise DeclarationError for prices with an ambiguous day or currency."""
    facts = [price.facts for price in prices]
    if len({fact.currency for fact in facts}) > 1:
        raise DeclarationError(f"{where}: prices: all must be in one currency.")
    begins = [(fact.unit, fact.model, fact.since) for fact in facts]
    twice = next((begin for begin in begins if begins.count(begin) > 1), None)
    if twice is not None:
        raise DeclarationError(
            f"{where}: prices: two per {twice[0]} begin on the same day; each needs a different "
            "`since` or `model`."
        )


def prices_of_model(prices: Sequence[PriceFacts], model: str | None) -> tuple[PriceFacts, ...]:
    """Return the prices of a lookup's calls: for each unit its model's, else those of no model."""
    its = {price.unit for price in prices if price.model == model}
    return tuple(price for price in prices if price.model == (model if price.unit in its else None))


def in_force(prices: Sequence[PriceFacts], day: str) -> tuple[PriceFacts, ...]:
    """Return the price of each unit on a day such as 2026-12-01; () before the first price."""
    begun = [price for price in prices if price.since is None or price.since <= day]
    latest = {price.unit: price for price in sorted(begun, key=lambda price: price.since or "")}
    return tuple(latest.values())


def price_text(prices: Sequence[PriceFacts]) -> str:
    """Return prices as `0.0040 USD per item`; empty without a price."""
    units = (f"{price.per:,} {price.unit}s" if price.per > 1 else price.unit for price in prices)
    return ", ".join(
        f"{price.amount} {price.currency} per {unit}"
        for price, unit in zip(prices, units, strict=True)
    )


def priced_units(prices: Sequence[PriceFacts]) -> tuple[str, ...]:
    """Return the units with a price, each once."""
    return tuple(dict.fromkeys(price.unit for price in prices))


def reported_units(prices: Sequence[PriceFacts]) -> tuple[str, ...]:
    """Return the units with a price whose number only answers report."""
    return tuple(unit for unit in priced_units(prices) if unit not in SENT)


def cost_of(prices: Sequence[PriceFacts], units: Mapping[str, int]) -> Decimal:
    """Return what these units cost at the prices in force."""
    return sum(
        (Decimal(price.amount) * units.get(price.unit, 0) / price.per for price in prices), _NOTHING
    )


_NOTHING = Decimal(0)
