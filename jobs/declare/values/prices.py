"""Prices of a service: decimal money per item, request or the service's unit, from a given day."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from jobs.declare.values.calendar import is_day
from jobs.errors import DeclarationError
from jobs.schema.records import PriceFacts

MONEY = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ([A-Z]{3})")
PER = re.compile(r"(?:([1-9]\d{0,8}) )?([a-z]+?)(?:(?<!s)s)?")
# units that are counted when sent; a coroutine reports others with http.bill
SENT = ("item", "request")


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
            f"{where} is {text!r}; it must be an amount and a currency, as '0.0040 USD'."
        )
    return Money(Decimal(found[1]), found[2])


@dataclass(frozen=True)
class Price:
    """The price of each attempt that reached the service: Price("0.0040 USD", per="item",
    since="2026-12-01").

    Attributes:
        amount: Decimal money, as "0.0040 USD".
        per: item (a key), request (a call; a retry is another call), a unit that a coroutine bills,
            such as token, or a multiple, such as "1000 items".
        since: The first day, in UTC, of the price, which applies until another price begins; None
            for the first price.
    """

    amount: str
    per: str = field(default="item", kw_only=True)
    since: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        read_money(self.amount, "price: amount")
        if not isinstance(self.per, str) or PER.fullmatch(self.per) is None:
            raise DeclarationError(
                f"price {self.amount}: per is {self.per!r}; it must be item, request, a unit of "
                "the service's own as "
                "token, or so many, as '1000 items'."
            )
        if self.since is not None and not (isinstance(self.since, str) and is_day(self.since)):
            raise DeclarationError(
                f"price {self.amount}: since is {self.since!r}; it must be a date, as 2026-12-01."
            )

    @property
    def facts(self) -> PriceFacts:
        """The price as plain data."""
        money = read_money(self.amount, "price: amount")
        found = PER.fullmatch(self.per)
        assert found is not None  # checked at construction
        return PriceFacts(
            str(money.amount), money.currency, found[2], int(found[1] or 1), self.since
        )


def check_prices(where: str, prices: Sequence[Price]) -> None:
    """Raise DeclarationError for prices with an ambiguous day or currency."""
    facts = [price.facts for price in prices]
    if len({(one.currency, one.unit) for one in facts}) > 1:
        raise DeclarationError(
            f"{where}: prices: all must be in one currency, and per the same unit."
        )
    begins = [one.since for one in facts]
    if len(set(begins)) < len(begins):
        raise DeclarationError(
            f"{where}: prices: two begin on the same day; each needs a different `since`."
        )


def in_force(prices: Sequence[PriceFacts], day: str) -> PriceFacts | None:
    """Return the price on a day such as 2026-12-01; None before the first price."""
    begun = [price for price in prices if price.since is None or price.since <= day]
    return max(begun, key=lambda price: price.since or "", default=None)


def price_units(price: PriceFacts | None, units: int) -> Decimal:
    return Decimal(0) if price is None else Decimal(price.amount) * units / price.per


def price_text(price: PriceFacts | None) -> str:
    """Return a price as `0.0040 USD per item`; empty without a price."""
    if price is None:
        return ""
    many = f"{price.per:,} {price.unit}s" if price.per > 1 else price.unit
    return f"{price.amount} {price.currency} per {many}"
