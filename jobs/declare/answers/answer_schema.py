"""Checks answers against a JSON Schema: a dict, a file or a pydantic model of a declaration."""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from jobs.declare.answers.json_text import read_json
from jobs.declare.answers.times import shown
from jobs.errors import DeclarationError

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")  # keywords
# parts of a pattern that match more in Python than in ECMA 262, whose patterns JSON Schema uses: in
# Python, $ matches before a final line break, the dot matches three of the four line ends, and \d
# and \w match digits and letters of every script
WIDER = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.|[$.]", re.DOTALL)
AS_ECMA = {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]"} | {
    rf"\{letter}": rf"(?a:\{letter})" for letter in "dDwWbB"
}
IN_BRACKETS = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}


def load_schema(declared: Any) -> dict[str, Any]:
    """Return a JSON Schema as a dict, from a dict, the path of a JSON file, or a pydantic model.

    Raises:
        DeclarationError: It is none of these, the file is unreadable, or the schema is invalid.
    """
    if isinstance(declared, str | Path):
        schema = _read_file(Path(declared))
    elif callable(made := getattr(declared, "model_json_schema", None)):
        schema = _of_model(declared, made)
    else:
        schema = declared
    if not isinstance(schema, Mapping):
        raise DeclarationError(
            f"schema is {shown(declared)}; it must be a JSON Schema: a dict, the path of a JSON "
            "file, or a pydantic model."
        )
    try:
        copied = read_json(json.dumps(schema))  # plain, with exact numbers; refuses other values
        _validator(json.dumps(copied))
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"schema is not a JSON Schema: {error}.") from error
    except RecursionError as error:
        raise DeclarationError(
            "schema is nested too deep to be checked. Give its inner parts names below $defs, and "
            "refer to them."
        ) from error
    return dict(copied)


def _of_model(model: Any, make_schema: Callable[[], Any]) -> Any:
    try:
        return make_schema()
    except Exception as error:  # of pydantic, or of methods of the user's types
        reason = str(error).partition("\n")[0].rstrip(".")
        name = getattr(model, "__name__", type(model).__name__)
        raise DeclarationError(f"schema: {name} has no JSON Schema: {reason}.") from error


def _read_file(path: Path) -> Any:
    try:
        return read_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeclarationError(f"schema: {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise DeclarationError(f"schema: {path} is not JSON: {error}.") from error


def schema_check(schema: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return a function that raises ValueError, with the path, for an answer that does not fit."""
    validator = _validator(json.dumps(schema))

    def check(answer: Any) -> None:
        from jsonschema.exceptions import best_match  # imported here, because it takes 0.1 s
        from referencing.exceptions import Unresolvable

        try:
            error = best_match(validator.iter_errors(answer))
        except RecursionError as failure:
            raise ValueError(
                "it cannot be checked against the schema: it is nested too deep, or the schema "
                "refers to itself without end"
            ) from failure
        except Unresolvable as failure:
            raise ValueError(f"the schema has no {failure.ref!r}, to which it refers") from failure
        if error is not None:
            rule = f"{error.json_path} ({error.validator})"
            raise ValueError(f"it breaks the schema at {rule}: {error.message}")

    return check


@functools.lru_cache
def _validator(schema: str) -> Any:
    """Return a validator, which reads no other schema from anywhere.

    Raises:
        ValueError: The schema is invalid, refers to another schema, or to itself without end.
    """
    # imported here, because it takes 0.1 s
    from jsonschema import Draft3Validator, Draft7Validator, Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012, specification_with

    loaded = json.loads(schema)
    dialect = loaded.get("$schema", "")
    if not isinstance(dialect, str):
        raise ValueError(f"$.$schema: {dialect!r} is not of type 'string'")  # noqa: TRY004
    validator_class = validator_for(loaded, default=Draft202012Validator)
    if validator_class is Draft3Validator:
        raise ValueError(f"$.$schema: {dialect!r} is too old; write a schema of draft 4 or newer")
    _require_valid(loaded, validator_class)
    specification = specification_with(dialect, default=DRAFT202012)
    resource = specification.create_resource(loaded)
    _References(validator_class, specification).require(
        resource, Registry().resolver_with_root(resource)
    )
    loaded.pop("$schema", None)  # by which the library would choose its class again at a reference
    keywords = {
        # newer drafts have other names for it, and the library would ignore the old one
        "dependencies": Draft7Validator.VALIDATORS["dependencies"],
        **validator_class.VALIDATORS,
        "multipleOf": _multiple_of,
        "pattern": _pattern,
    }
    exact_class = extend(validator_class, keywords)
    validator = exact_class(loaded, registry=Registry())
    try:
        probes: tuple[Any, ...] = (None, {})
        for probe in probes:
            validator.is_valid(probe)
    except RecursionError as error:
        raise ValueError("it refers to itself without end") from error
    return validator


def _multiple_of(validator: Any, unit: float, value: Any, _schema: Any) -> Iterator[Exception]:
    """Check the digits: the library divides floats, and takes 4.02 for no multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "number") and Fraction(str(value)) % Fraction(str(unit)):
        yield ValidationError(f"{value!r} is not a multiple of {unit!r}")


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Exception]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "string") and not _compiled(pattern).search(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


@functools.lru_cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_translated(pattern))


def _translated(pattern: str) -> str:
    """Return the pattern that matches in Python what this pattern matches in ECMA 262."""
    return WIDER.sub(_translated_part, pattern)


def _require_regex(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"patternProperties {pattern!r} is not a regex: {error}") from error


def _translated_part(part: re.Match[str]) -> str:
    if part[0].startswith("["):
        return re.sub(r"\\.", lambda inner: IN_BRACKETS.get(inner[0], inner[0]), part[0])
    return AS_ECMA.get(part[0], part[0])


def _require_valid(schema: Any, validator_class: Any) -> None:
    """Raise ValueError for a schema that its dialect does not allow."""
    from jsonschema.exceptions import SchemaError

    try:
        validator_class.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"{error.json_path}: {error.message}") from error


class _References:
    """Visits each part of a schema, also those that only a reference makes a part.

    It translates the names of `patternProperties`, which several keywords of the library read.
    """

    def __init__(self, validator_class: Any, specification: Any) -> None:
        self._validator_class = validator_class
        self._specification = specification  # of the library `referencing`
        self._seen: set[int] = set()  # ids of parts

    def require(self, schema: Any, resolver: Any) -> None:
        """Raise ValueError for a reference out of the schema, or to a part that is no schema."""
        from referencing.exceptions import Unresolvable

        if id(schema.contents) in self._seen:
            return
        self._seen.add(id(schema.contents))
        keywords = schema.contents if isinstance(schema.contents, dict) else {}
        if named := keywords.get("patternProperties"):
            for pattern in named:  # the schema of draft 4 for schemas leaves them unchecked
                _require_regex(pattern)
            keywords["patternProperties"] = {
                _translated(pattern): part for pattern, part in named.items()
            }
        for keyword in REFERENCES:
            if isinstance(reference := keywords.get(keyword), str):
                try:
                    found = resolver.lookup(reference)
                except Unresolvable as error:
                    raise ValueError(
                        f"{keyword} {reference!r} is not in this schema; others are not read"
                    ) from error
                _require_valid(found.contents, self._validator_class)
                self.require(self._specification.create_resource(found.contents), found.resolver)
        # newer drafts have other names for it, and answers are checked by it all the same
        for part in keywords.get("dependencies", {}).values():
            if not isinstance(part, list):
                self.require(self._specification.create_resource(part), resolver)
        for part in schema.subresources():
            self.require(part, resolver.in_subresource(part))
