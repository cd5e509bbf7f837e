"""Rates of a service: how many requests, or other units, it allows per period."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.declare.values.prices import UNIT, singular
from jobs.declare.values.type_checks import require_count
from jobs.errors import DeclarationError

SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}  # longest first
PERIOD = re.compile(r"(?:([1-9]\d{0,5}) )?(second|minute|hour|day)s?")
REQUEST = "request"
CALLS_PER_LIMIT = 100  # without `at_most`, a call reserves a hundredth of a limit of units


@dataclass(frozen=True)
class Rate:
    """The most that a service allows in any period of a length.

        Rate(600, per="minute")
        Rate(90_000, per="minute", of="tokens")

    Attributes:
        amount: What the service allows in a period.
        per: second, minute, hour or day, or a multiple, such as "10 seconds".
        of: requests, or a unit that answers report (through the lookup's `bill`, or http.bill in a
            coroutine), such as tokens.
        at_most: The most that a call uses. It is reserved before each call, and the unused part is
            free again after the call. By default 1 request, or a hundredth of the amount of another
            unit.
    """

    amount: int
    per: str = field(kw_only=True)
    of: str = field(default="requests", kw_only=True)
    at_most: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require_count("rate: amount", self.amount)
        if not isinstance(self.per, str) or PERIOD.fullmatch(self.per) is None:
            raise DeclarationError(
                f"rate: per is {self.per!r}; it must be second, minute, hour or day, or a "
                "multiple, such as '10 seconds'."
            )
        if not isinstance(self.of, str) or not UNIT.fullmatch(self.of) or self.unit == "item":
            raise DeclarationError(
                f"rate: of is {self.of!r}; it must be requests, or a unit that answers report, "
                "such as tokens."
            )
        most = self.at_most
        if most is not None and (
            isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= self.amount
        ):
            raise DeclarationError(
                f"rate: at_most is {most!r}; it must be a whole number from 1 to {self.amount:,}."
            )

    @property
    def unit(self) -> str:
        """The unit in the singular, as http.bill names it."""
        return singular(self.of)

    @property
    def seconds(self) -> int:
        """The length of a period."""
        found = PERIOD.fullmatch(self.per)
        assert found is not None  # checked at construction
        return int(found[1] or 1) * SECONDS[found[2]]

    @property
    def name(self) -> str:
        """The name, equal for limits of the same unit and period, however the period is written.

        Runs that share the limit find it by this name.
        """
        period = next(name for name in SECONDS if self.seconds % SECONDS[name] == 0)
        many = self.seconds // SECONDS[period]
        return f"{self.unit}s per {period if many == 1 else f'{many} {period}s'}"

    @property
    def reserve_per_call(self) -> int:
        """The amount that is reserved before each call."""
        return self.at_most or (
            1 if self.unit == REQUEST else max(1, self.amount // CALLS_PER_LIMIT)
        )


def check_rates(where: str, rates: Sequence[Rate]) -> None:
    """Raise DeclarationError for two rates of the same unit and period."""
    names = [rate.name for rate in rates]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DeclarationError(f"{where}: rate: two rates limit {twice}; keep the smaller.")
