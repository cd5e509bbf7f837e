"""Conditions on an answer: an HTTP status, or a filter over the answer's JSON."""

import json
import re
from collections.abc import Iterable
from typing import Any

from jsonpath.filter import FilterExpression
from jsonpath.selectors import Filter, FilterContext

from jobs.declare.answers.json_paths import NOT_COMPILED, STRICT, reading, unread_pattern
from jobs.errors import DeclarationError


class Conditions:
    """Statuses, and RFC 9535 filters over the answer, such as "$.status == 'NONE'".

    Attributes:
        statuses: The statuses.
    """

    def __init__(self, where: str, declared: Iterable[int | str]) -> None:
        """Raise DeclarationError for a value that is neither a status nor a condition."""
        self.statuses: set[int] = set()
        self._filters = []
        for condition in declared:
            if isinstance(condition, str):
                self._filters.append(_filter(where, condition))
            elif (
                isinstance(condition, bool)
                or not isinstance(condition, int)
                or not 100 <= condition <= 599
            ):
                raise DeclarationError(
                    f"{where}: {condition!r} is neither an HTTP status nor a condition; write 404, "
                    "or \"$.status == 'NONE'\"."
                )
            else:
                self.statuses.add(condition)

    def hold_for(self, answer: Any) -> bool:
        """Return whether a condition holds for an answer. Raises ValueError if evaluation fails."""
        if not self._filters:
            return False
        # the library reads a text as a JSON document
        root = json.dumps(answer) if isinstance(answer, str) else answer
        context = FilterContext(env=STRICT, current=answer, root=root)
        with reading():
            return any(condition.evaluate(context) for condition in self._filters)


def _filter(where: str, text: str) -> FilterExpression:
    cure = "write a filter of RFC 9535 over the answer, such as \"$.status == 'NONE'\"."
    if "$" not in text:
        raise DeclarationError(f"{where}: {text!r} reads nothing of the answer; {cure}")
    try:
        path = STRICT.compile(f"$[?{text}]")
    except re.error as error:
        raise unread_pattern(where, error) from error
    except NOT_COMPILED as error:
        raise DeclarationError(f"{where}: {text!r} is not a condition; {cure}") from error
    match [selector for segment in getattr(path, "segments", ()) for selector in segment.selectors]:
        case [Filter(expression=expression)]:
            return expression
    raise DeclarationError(f"{where}: {text!r} is more than one condition; {cure}")
