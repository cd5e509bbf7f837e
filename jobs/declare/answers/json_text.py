"""Reads JSON text: numbers keep their digits, and an object with a repeated member is refused."""

import decimal
import json
import math
from collections.abc import Iterator
from typing import Any, Self

SPACES = " \t\n\r"
FEW_DIGITS = 16  # characters of a number, with its point: a float holds 15 digits
# a number closer to 0 could fill the memory when its digits are written out
SMALLEST_EXPONENT = -10_000


class ExactNumber(float):
    """A JSON number that a 64-bit float would round: a float that keeps its digits as text.

    Its comparisons with numbers are exact.

    Attributes:
        digits: The number as it stands in the JSON text.
    """

    __slots__ = ("digits",)
    digits: str

    def __new__(cls, digits: str) -> Self:
        number = super().__new__(cls, digits)
        number.digits = digits
        return number

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # a float has a number here
        return (self.digits,)

    def __repr__(self) -> str:
        return self.digits

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash(exact_digits(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and exact_digits(self) == exact_digits(other)

    def __lt__(self, other: float) -> bool:
        return exact_digits(self) < exact_digits(other)

    def __gt__(self, other: float) -> bool:
        return exact_digits(self) > exact_digits(other)

    def __le__(self, other: float) -> bool:
        return exact_digits(self) <= exact_digits(other)

    def __ge__(self, other: float) -> bool:
        return exact_digits(self) >= exact_digits(other)


class RepeatedMember(ValueError):  # noqa: N818  # says what is wrong with the text
    """An object names a member twice, and which of the two values counts is unknown."""

    def __init__(self, name: str) -> None:
        super().__init__(_sentence(name))


def _sentence(name: str) -> str:
    return f"an object has the member {json.dumps(name)[:60]} twice"


class Ambiguous(dict[str, Any]):
    """An object that has `member` twice."""

    member = ""


def read_number(digits: str) -> float:
    """Return the number: a float if its shortest text means the same, else an ExactNumber.

    Raises:
        ValueError: The number is larger than any float, or its exponent is far beyond floats'.
    """
    number = float(digits)
    if len(digits) <= FEW_DIGITS and "e" not in digits and "E" not in digits:
        return number
    if repr(number) == digits:
        return number
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is larger than any number of 64 bits")
    try:
        exact = decimal.Decimal(digits)
    except decimal.InvalidOperation:  # its exponent has too many digits
        exact = None
    if exact is None or exact.adjusted() < SMALLEST_EXPONENT:
        raise ValueError(f"the exponent of {digits[:40]} is out of range")
    return number if decimal.Decimal(repr(number)) == exact else ExactNumber(digits)


def exact_digits(number: float | decimal.Decimal) -> decimal.Decimal:
    """Return the decimal of a finite number's shortest text, or the digits of an ExactNumber."""
    return decimal.Decimal(str(number))


def read_json(text: str, *, ambiguous: bool = False) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The JSON.
        ambiguous: Whether an object with a repeated member becomes an `Ambiguous`, not an error.

    Raises:
        RepeatedMember: An object names a member twice.
        ValueError: The text is not JSON, has NaN or Infinity or a number beyond all floats, or is
            nested deeper than Python reads, over 900 levels.
    """
    decoder = _MARKING if ambiguous else _STRICT
    try:
        try:
            value, end = decoder.raw_decode(text)  # without decode's two searches for spaces
        except json.JSONDecodeError:
            return decoder.decode(text)
        return value if not text[end:].strip(SPACES) else decoder.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def repeated_member(value: Any, *, apart: Any = None) -> str | None:
    """Return a sentence about the first Ambiguous outside `apart`, or None."""
    for inner in _walk(value, apart):
        if isinstance(inner, Ambiguous):
            return _sentence(inner.member)
    return None


def _walk(value: Any, apart: Any) -> Iterator[Any]:
    left = [value]
    while left:
        inner = left.pop()
        if inner is apart and apart is not None:
            continue
        yield inner
        if isinstance(inner, dict):
            left.extend(inner.values())
        elif isinstance(inner, list):
            left.extend(inner)


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise RepeatedMember(_twice(members))
    return found


def _marked(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        found = Ambiguous(found)
        found.member = _twice(members)
    return found


def _twice(members: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(name for name, _ in members if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


# json.loads creates a decoder per call
_STRICT = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=read_number, object_pairs_hook=_unique
)
_MARKING = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=read_number, object_pairs_hook=_marked
)
