"""Holds answers to a JSON Schema, which a declaration gives as a dict, a file or a class."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.declare.answers.json_text import read_json
from jobs.declare.answers.times import shown
from jobs.errors import DeclarationError


def load_schema(declared: Any) -> dict[str, Any]:
    """Return a JSON Schema as a dict.

    Args:
        declared: The dict, the path of a JSON file, or a class of pydantic.

    Raises:
        DeclarationError: It is none of these, the file is unreadable, or the schema is invalid.
    """
    if isinstance(declared, str | Path):
        schema = _read_file(Path(declared))
    elif callable(made := getattr(declared, "model_json_schema", None)):
        schema = made()
    else:
        schema = declared
    if not isinstance(schema, Mapping):
        raise DeclarationError(
            f"schema is {shown(declared)}; it must be a JSON Schema: a dict, the path of a JSON "
            "file, or a class of pydantic."
        )
    try:
        found = read_json(json.dumps(schema))
        _validator(json.dumps(found))
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"schema is not a JSON Schema: {error}.") from error
    return dict(found)


def _read_file(path: Path) -> Any:
    try:
        return read_json(path.read_text())
    except OSError as error:
        raise DeclarationError(f"schema: {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise DeclarationError(f"schema: {path} is not JSON: {error}.") from error


def schema_check(schema: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return a function that raises ValueError, with the path, for an answer that does not fit."""
    validator = _validator(json.dumps(schema))

    def check(answer: Any) -> None:
        from jsonschema.exceptions import best_match  # with declared schemas only: 0.1 s

        error = best_match(validator.iter_errors(answer))
        if error is not None:
            rule = f"{error.json_path} ({error.validator})"
            raise ValueError(f"it breaks the schema at {rule}: {error.message}")

    return check


@functools.lru_cache
def _validator(schema: str) -> Any:
    """Return a validator, which reads no other schema from anywhere.

    Raises:
        ValueError: The schema is invalid, or refers to another schema.
    """
    from jsonschema import Draft202012Validator  # with declared schemas only: 0.1 s
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    read = json.loads(schema)
    kind = validator_for(read, default=Draft202012Validator)
    try:
        kind.check_schema(read)
    except SchemaError as error:
        raise ValueError(f"{error.json_path}: {error.message}") from error
    itself = Resource.from_contents(read, default_specification=DRAFT202012)
    resolver = Registry().with_resource("", itself).resolver()
    for reference in _references(read):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            raise ValueError(f"$ref {reference!r} leads to nothing inside it") from error
    return kind(read, registry=Registry())


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _references(item)
