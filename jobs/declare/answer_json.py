"""Lossless JSON of raw answers, also of database rows and function results, with tags for types that JSON lacks.

A value that JSON lacks becomes an object with one tag, such as {"$decimal": "1.10"}; an answer's own object with a name
that starts with $ becomes {"$object": [[name, value], ...]}. A UUID becomes its text, an Enum its value. Everything
else is unchanged, so that people can query it.
"""

import base64
import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import orjson

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_DOLLAR, _U = ord("$"), ord("u")  # searching for a number is three times as fast as for a text
_BITS_64 = range(-(1 << 63), 1 << 64)


def dump(answer: Any) -> bytes:
    """UTF-8 JSON from which `load` returns an equal answer, except that a tuple, a set or a database row becomes a
    list, a UUID its text, an Enum its value.

    Raises ValueError with a sentence for a value that cannot be stored, such as an object of a user's class.
    """
    try:
        data = orjson.dumps(answer, _tagged, _OPTIONS)
    except orjson.JSONEncodeError as error:
        if isinstance(error.__cause__, ValueError):
            raise error.__cause__ from None
        return _by_hand(answer)
    # a tag or a similar name is possible; or null for NaN or infinity, which equal nothing
    if _DOLLAR in data or (_U in data and data.find(b"null") >= 0 and orjson.loads(data) != answer):
        return _by_hand(answer)
    return data


def _by_hand(answer: Any) -> bytes:
    try:
        return orjson.dumps(_escaped(answer))
    except (orjson.JSONEncodeError, RecursionError):  # the only remaining reason for orjson to fail
        raise ValueError("it is nested too deep; the ledger stores at most 254 levels.") from None


def load(data: bytes) -> Any:
    answer = orjson.loads(data)
    return _restored(answer) if _DOLLAR in data else answer


def _tagged(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return {"$datetime": value.isoformat()}
    for kind, tag, text in _TAGS:
        if isinstance(value, kind):
            return {tag: text(value)}
    for kind, plain in _PLAIN:
        if isinstance(value, kind):
            return plain(value)
    if isinstance(value, tuple) or hasattr(value, "_mapping"):  # SQLAlchemy's Row is not a tuple subclass
        return list(value)
    named = type(value)
    raise ValueError(
        f"a {named.__module__}.{named.__qualname__} cannot be stored in the ledger; return plain values: text, "
        "numbers, dates, bytes, lists, dicts."
    )


_TAGS: tuple[tuple[Any, str, Callable[[Any], str]], ...] = (
    (dt.date, "$date", dt.date.isoformat),
    (dt.time, "$time", dt.time.isoformat),
    (dt.timedelta, "$microseconds", lambda value: str(value // dt.timedelta(microseconds=1))),
    (decimal.Decimal, "$decimal", str),
    (bytes | bytearray | memoryview, "$bytes", lambda value: base64.b64encode(value).decode()),
)
_PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (float, float),
    (uuid.UUID, str),
    (Mapping, dict),
    (set | frozenset, list),
)
_RESTORE: dict[str, Callable[[Any], Any]] = {
    "$datetime": dt.datetime.fromisoformat,
    "$date": dt.date.fromisoformat,
    "$time": dt.time.fromisoformat,
    "$microseconds": lambda text: dt.timedelta(microseconds=int(text)),
    "$decimal": decimal.Decimal,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$uuid": str,  # of older records
    "$float": float,
    "$int": int,
    "$text": lambda text: base64.b64decode(text).decode("utf-8", "surrogatepass"),
    "$object": lambda items: {_restored(name): _restored(item) for name, item in items},
}


def _escaped(value: Any) -> Any:
    """The value in JSON with tags and escapes, so that no part of the answer looks like a tag."""
    if value is None or isinstance(value, bool | int | float | str):
        return _escaped_simple(value)
    if isinstance(value, Mapping):
        if all(isinstance(name, str) and name[:1] != "$" and name.isprintable() for name in value):
            return {str(name): _escaped(item) for name, item in value.items()}
        return {"$object": [[_escaped(name), _escaped(item)] for name, item in value.items()]}
    if isinstance(value, enum.Enum):
        return _escaped(value.value)  # what orjson writes
    found = value if isinstance(value, list | tuple | set | frozenset) else _tagged(value)
    return found if isinstance(found, dict | str) else list(map(_escaped, found))


def _escaped_simple(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # a lone surrogate: JSON can escape it, but no file can hold it
            return {"$text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    elif isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    elif isinstance(value, int) and value not in _BITS_64:
        return {"$int": str(value)}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, item),) = value.items()
        if name in _RESTORE:
            return _RESTORE[name](item)
    return {name: _restored(item) for name, item in value.items()}
