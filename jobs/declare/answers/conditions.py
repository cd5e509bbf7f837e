"""Conditions on an answer: an HTTP status, or a filter over the answer's JSON."""

from collections.abc import Iterable
from typing import Any

import jsonpath

from jobs.declare.answers.json_paths import reading
from jobs.errors import DeclarationError

RFC_9535 = jsonpath.JSONPathEnvironment(strict=True)


class Conditions:
    """Statuses, and filter expressions of RFC 9535 over the whole answer, such as "$.status == 'ZERO_RESULTS'"."""

    def __init__(self, where: str, declared: Iterable[int | str]) -> None:
        """Raises DeclarationError for a value that is neither a status nor a condition."""
        self.statuses: set[int] = set()
        self._filters = []
        for one in declared:
            if isinstance(one, str):
                self._filters.append(_filter(where, one))
            elif isinstance(one, bool) or not isinstance(one, int) or not 100 <= one <= 599:
                raise DeclarationError(
                    f"{where}: {one!r} is neither an HTTP status nor a condition; write 404, or \"$.status == 'NONE'\"."
                )
            else:
                self.statuses.add(one)

    def hold_for(self, answer: Any) -> bool:
        """Whether a condition holds for this answer. Raises ValueError if it cannot be evaluated."""
        if not self._filters:
            return False
        # a filter selects children, and its condition is about the root: when true it selects all, so add one child
        answer = answer or {"": None}
        with reading():
            return any(picked.match(answer) is not None for picked in self._filters)


def _filter(where: str, text: str) -> jsonpath.JSONPath | jsonpath.CompoundJSONPath:
    cure = "write a filter of RFC 9535 over the answer, as \"$.status == 'NONE'\"."
    if "$" not in text:
        raise DeclarationError(f"{where}: {text!r} reads nothing of the answer; {cure}")
    try:
        return RFC_9535.compile(f"$[?{text}]")
    except jsonpath.JSONPathError as error:
        raise DeclarationError(f"{where}: {text!r} is not a condition; {cure}") from error
