"""Request templates: a path, or any JSON with "{key}" in its strings."""

import base64
import datetime as dt
import decimal
import math
import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from jobs.declare.values.env import Env
from jobs.errors import DeclarationError
from jobs.wording import did_you_mean, listed


def placeholders(where: str, text: str) -> list[tuple[str, str | None]]:
    """Return pairs of literal text and the name in braces after it. Raises DeclarationError."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise DeclarationError(
            f"{where} {text!r}: a brace is unpaired; write {{key}} for a key, "
            "{{ and }} for a brace."
        ) from error
    for _, name, form, conversion in parts:
        if form or conversion:
            raise DeclarationError(
                f"{where} {text!r}: {{{name}}} has a format; shape the value in keys, by Spark SQL."
            )
    return [(literal, name) for literal, name, _, _ in parts]


def require_same_names(
    where: str, place: str, used: Collection[str], keys: Collection[str]
) -> None:
    """Raise DeclarationError for a name in a request that is not a key, or an unused key.

    Args:
        where: The start of the message.
        place: What holds the names, such as "the request".
        used: The names in it.
        keys: The names of the keys.
    """
    strange, unused = sorted({*used} - {*keys}), sorted({*keys} - {*used})
    if strange:
        close = did_you_mean(strange[0], keys) or f" The keys: {listed([*keys])}."
        raise DeclarationError(f"{where}: {strange[0]!r} is in {place}, but is not a key.{close}")
    if unused:
        raise DeclarationError(f"{where}: {unused[0]!r} is in keys, but {place} does not use it.")


def filled_path(parts: Sequence[tuple[str, str | None]], values: Mapping[str, Any]) -> str:
    """Return the path of a request; `parts` is from `placeholders`, and values are escaped."""
    return "".join([text if name is None else text + escaped(values[name]) for text, name in parts])


def without_placeholder(template: Any, name: str) -> Any:
    """Return a template without "{name}" in its strings; invalid strings stay as they are."""
    if isinstance(template, str):
        literal_or_place = re.compile(r"\{\{|\}\}|\{" + re.escape(name) + r"\}")
        return literal_or_place.sub(lambda found: found[0] if len(found[0]) == 2 else "", template)
    if isinstance(template, Mapping):
        return {key: without_placeholder(item, name) for key, item in template.items()}
    if isinstance(template, list | tuple):
        return [without_placeholder(item, name) for item in template]
    return template


class JsonTemplate:
    """Any JSON whose strings may contain "{key}"; names of fields are literal.

    An Env in place of a string is a secret, read when it is sent. A string that is only a
    placeholder becomes the key's JSON value: a number stays a number, a timestamp is UTC text. A
    placeholder inside longer text becomes text. `{{` and `}}` are braces.
    """

    def __init__(self, where: str, template: Any) -> None:
        """Raise DeclarationError for invalid JSON, and for braces other than placeholders."""
        self.variables: list[Env] = []
        self._template = self._read(where, template)
        self.names = {name for name, _ in _places(self._template)}
        # placeholders that fill a string
        self.whole = [name for name, is_whole in _places(self._template) if is_whole]

    def _read(self, where: str, value: Any) -> Any:
        if isinstance(value, Env):
            self.variables.append(value)
            return value
        if (
            value is None
            or isinstance(value, bool | int)
            or (isinstance(value, float) and math.isfinite(value))
        ):
            return value
        if isinstance(value, str):
            return _Text(placeholders(where, value))
        if isinstance(value, list | tuple):
            return [self._read(where, item) for item in value]
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {name: self._read(f"{where}.{name}", item) for name, item in value.items()}
        raise DeclarationError(
            f"{where}: {value!r} is not valid JSON; write dicts with text as names, lists, text, "
            "finite numbers, true, false and null."
        )

    def filled(self, values: Mapping[str, Any]) -> Any:
        """Return the JSON with these values, for `json` and `orjson`.

        A Decimal stays a Decimal, so that it can be written with all its digits. Raises ValueError
        for a value that JSON cannot represent.
        """
        return _filled(self._template, values)


class _Text:
    def __init__(self, parts: list[tuple[str, str | None]]) -> None:
        self.parts = parts

    @property
    def whole(self) -> str | None:
        """The placeholder's name, if the text has nothing else."""
        return self.parts[0][1] if len(self.parts) == 1 and not self.parts[0][0] else None

    def filled(self, values: Mapping[str, Any]) -> Any:
        if self.whole is not None:
            return as_json(values[self.whole])
        return "".join(
            literal + ("" if name is None else as_text(values[name]))
            for literal, name in self.parts
        )


def _places(template: Any) -> Iterator[tuple[str, bool]]:
    match template:
        case _Text():
            yield from (
                (name, name == template.whole) for _, name in template.parts if name is not None
            )
        case dict():
            for item in template.values():
                yield from _places(item)
        case list():
            for item in template:
                yield from _places(item)


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    match template:
        case _Text():
            return template.filled(values)
        case Env():
            return template.read()
        case dict():
            return {name: _filled(item, values) for name, item in template.items()}
        case list():
            return [_filled(item, values) for item in template]
    return template


def as_text(value: Any) -> str:
    """Return a value as text for a path or string: timestamps in UTC, bytes as base64.

    An array or a struct is its JSON. Raises ValueError where that has a number that is not finite.
    """
    if type(value) is str:
        return value
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.UTC) if value.tzinfo else value
        return f"{utc.replace(tzinfo=None).isoformat()}Z"
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"  # never 0E-8
    if isinstance(value, bool | list | tuple | Mapping):
        return dumped(as_json(value)).decode()
    return str(value)


def as_json(value: Any) -> Any:
    """Return a key's JSON value; a type that JSON lacks becomes the text of `as_text`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if value is None or isinstance(value, bool | int | float | str | decimal.Decimal):
        return value
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {as_text(name): as_json(item) for name, item in value.items()}
    return as_text(value)


def dumped(value: Any) -> bytes:
    """Return JSON with all digits of a Decimal. Raises ValueError for types that JSON lacks."""
    try:
        return orjson.dumps(value, default=_number)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the request cannot be written as JSON: {error}") from error


def _number(value: Any) -> orjson.Fragment:
    if isinstance(value, decimal.Decimal | float):  # orjson leaves subclasses of float to us
        return orjson.Fragment(str(value).encode())
    raise TypeError(f"{type(value).__name__} is not valid JSON")


def escaped(value: Any) -> str:
    text = as_text(value)
    return text.translate(_ESCAPES) if text.isascii() else quote(text, safe="")


# quote() handles each character in Python
_ESCAPES = {code: quote(chr(code), safe="") for code in range(128)}
