"""Reads from an answer how many units its call used, such as a model's tokens."""

import re
from collections.abc import Mapping
from typing import Any

from jobs.declare.answers.json_paths import JsonPath
from jobs.declare.values.prices import SENT, UNIT, singular
from jobs.errors import DeclarationError

MOST = 10**12  # units of an answer
MINUS = re.compile(r"\s*-\s*(?=\$)")  # a name may have a hyphen, but no $


class UsageReader:
    """Reads the numbers that a lookup's `bill` declares.

    Args:
        bill: Unit -> JSON path of its number, or a difference such as "$.total - $.cached"; or the
            number itself, which each answer costs.

    Raises:
        DeclarationError: A unit, a path or a number is invalid.
    """

    def __init__(self, bill: Mapping[str, str | int]) -> None:
        paths = {name: text for name, text in bill.items() if isinstance(text, str)}
        self._paths = {_unit(name): _terms(name, text) for name, text in paths.items()}
        self._each = {
            _unit(name): _at_least_1(name, many)
            for name, many in bill.items()
            if not isinstance(many, str)
        }
        if len(self._paths | self._each) < len(bill):
            raise DeclarationError("bill: two of its names mean the same unit; leave one out.")

    def read(self, answer: Any, *, is_refused: bool = False) -> dict[str, int] | None:
        """Return the number of each unit; None if a number is absent or is not a count.

        A null, also on the way to the number, counts 0: services write it for a part that they did
        not use. If all paths lead to null, as with `"usage": null`, the use is unknown.

        Args:
            answer: The response.
            is_refused: It has a status of an error, which costs no declared number.
        """
        used = dict.fromkeys(self._each, 0) if is_refused else dict(self._each)
        has_number = not self._paths
        for unit, terms in self._paths.items():
            try:
                numbers = [_number(answer, term) for term in terms]
            except (TypeError, ValueError, LookupError):
                return None
            first, *less = (number or 0 for number in numbers)
            many = as_count(first - sum(less))
            if many is None:
                return None
            used[unit] = many
            has_number |= numbers != [None] * len(numbers)
        return used if has_number else None


def as_count(many: Any) -> int | None:
    """Return a whole number from 0 to MOST, also from 100.0 or numpy's types; None for others."""
    try:
        count = int(many)
    except (TypeError, ValueError, OverflowError):
        return None
    is_count = not isinstance(many, bool | str) and count == many and 0 <= count <= MOST
    return count if is_count else None


def _unit(name: str) -> str:
    if not UNIT.fullmatch(name) or singular(name) in SENT:
        raise DeclarationError(
            f"bill: {name!r} is not a unit that answers report; write lower-case letters and _, "
            "such as input_tokens. Requests and items are counted when they are sent."
        )
    return singular(name)


def _at_least_1(name: str, many: int) -> int:
    if isinstance(many, bool) or not 1 <= many <= MOST:
        raise DeclarationError(
            f"bill: {name} is {many!r}; it must be a JSON path, or the number of units of each "
            "answer, at least 1."
        )
    return many


def _terms(name: str, text: str) -> list[tuple[str | int, ...]]:
    where = f"bill: {name}"
    steps = [JsonPath(where, part).steps for part in MINUS.split(text)]
    if None in steps:
        raise DeclarationError(
            f"{where}: {text!r} may match several values; name one, such as $.usage.total_tokens."
        )
    return [tuple(step) for step in steps if step is not None]


def _number(answer: Any, steps: tuple[str | int, ...]) -> int | None:
    """Return the number at the end of these steps; None for a null there or on the way.

    Raises:
        LookupError, TypeError, ValueError: It is absent, or is not a whole number.
    """
    for step in steps:
        if answer is None:
            return None
        answer = answer[step]
    count = as_count(answer)
    if count is None and answer is not None:
        raise ValueError("it is not a count")
    return count
