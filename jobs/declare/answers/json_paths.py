"""JSON paths, compiled once.

Paths to a single place are walked step by step, because every answer of a day passes here.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jsonpath
from jsonpath.filter import StringLiteral
from jsonpath.parse import Parser
from jsonpath.segments import JSONPathChildSegment
from jsonpath.selectors import IndexSelector, NameSelector
from jsonpath.stream import TokenStream

from jobs.declare.answers.json_text import read_number
from jobs.errors import DeclarationError


class _ExactParser(Parser):
    """Reads the numbers of a filter exactly, and its patterns.

    The library reads numbers as 64-bit floats, and by a pattern that it cannot read finds nothing.
    """

    def parse_function_extension(self, stream: TokenStream) -> Any:
        called: Any = super().parse_function_extension(stream)
        for literal in called.args if called.name in ("match", "search") else ():
            if isinstance(literal, StringLiteral):
                re.compile(literal.value)
        return called

    def parse_integer_literal(self, stream: TokenStream) -> Any:
        return _exact(stream, super().parse_integer_literal)

    def parse_float_literal(self, stream: TokenStream) -> Any:
        return _exact(stream, super().parse_float_literal)


def _exact(stream: TokenStream, parse: Callable[[TokenStream], Any]) -> Any:
    digits = stream.current().value
    literal = parse(stream)
    is_whole = digits.removeprefix("-").isdecimal()
    literal.value = int(digits) if is_whole else read_number(digits)
    return literal


class _Environment(jsonpath.JSONPathEnvironment):
    parser_class = _ExactParser

    def getitem(self, obj: Any, key: Any) -> Any:
        """Return a part of a list or object; a text has no slices, which would be its letters."""
        is_cut = isinstance(obj, str) and isinstance(key, slice)
        return () if is_cut else super().getitem(obj, key)

    def compare(self, left: Any, operator: str, right: Any) -> bool:
        """Compare as RFC 9535, where booleans have no order: to Python False is less than 1."""
        if isinstance(left, bool) or isinstance(right, bool):
            operator = {"<": "", ">": "", "<=": "==", ">=": "=="}.get(operator, operator)
        return bool(super().compare(left, operator, right))


STRICT, LENIENT = _Environment(strict=True), _Environment()
# the last two: of a number beyond all floats
NOT_COMPILED = (jsonpath.JSONPathError, TypeError, ValueError, OverflowError)


def unread_pattern(where: str, error: re.error) -> DeclarationError:
    return DeclarationError(f"{where}: {error.pattern!r} is not a pattern: {error}.")


@contextmanager
def reading() -> Iterator[None]:
    """Turn the library's errors on a document into ValueError; nesting is the only known reason."""
    try:
        yield
    except (jsonpath.JSONPathError, RecursionError) as error:
        raise ValueError("the answer is nested too deeply for a path with ..") from error


class JsonPath:
    """A path of RFC 9535; if `lenient`, with python-jsonpath's extensions, as in `paths`.

    Attributes:
        steps: The path's names and indexes, if it has nothing else.
    """

    def __init__(self, where: str, path: str, *, lenient: bool = False) -> None:
        """Raise DeclarationError, with the declaring field, for an invalid path."""
        try:
            self._compiled = (LENIENT if lenient else STRICT).compile(path)
        except re.error as error:
            raise unread_pattern(where, error) from error
        except NOT_COMPILED as error:
            raise DeclarationError(
                f"{where}: {path!r} is not a JSON path; write it as $.a.b."
            ) from error
        self.steps = _steps(self._compiled)
        self._lenient = lenient

    @property
    def picks_one(self) -> bool:
        """Whether the path names a single place, or is a union, whose first place counts."""
        return not isinstance(self._compiled, jsonpath.JSONPath) or self._compiled.singular_query()

    def value(self, document: Any) -> Any:
        """Return the first matching value, or None, also if the document is not an object or array.

        Raises ValueError, like `values`, for a document in which the library cannot follow the
        path.
        """
        if not isinstance(document, dict | list):
            return None
        if self.steps is None:
            with reading():
                match = self._compiled.match(document)
            return None if match is None else match.value
        for step in self.steps:
            if isinstance(step, str):
                document = document.get(step) if isinstance(document, dict) else None
            elif isinstance(document, list):
                document = document[step] if -len(document) <= step < len(document) else None
            elif self._lenient and isinstance(document, dict):
                document = document.get(str(step))
            else:
                document = None
        return document

    def values(self, document: Any) -> list[Any]:
        if not isinstance(document, dict | list):
            return []
        with reading():
            return [match.value for match in self._compiled.finditer(document)]


def _steps(path: Any) -> list[str | int] | None:
    """Return the path's names and indexes, if it has nothing else."""
    steps: list[str | int] = []
    for segment in getattr(path, "segments", (None,)):
        selectors = segment.selectors if isinstance(segment, JSONPathChildSegment) else ()
        match selectors:
            case (NameSelector(name=name),):
                steps.append(name)
            case (IndexSelector(index=index),):
                steps.append(index)
            case _:
                return None
    return steps
