"""JSON of raw answers, also of database rows and function results, with tags for what JSON lacks.

A value that JSON lacks becomes an object with a single tag, such as {"$decimal": "1.10"}; an
answer's object with a name that starts with $ becomes {"$object": [[name, value], ...]}. A UUID
becomes its text, an Enum its value. Everything else is unchanged, digit for digit, so that people
can query it.

Every answer can be stored, since it may have been paid for: an object of a user's class is stored
as {"$unstorable": <its class>}, and read as an `Unstorable`, which fits no column.
"""

import base64
import contextlib
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from jobs.declare.answers.json_text import ExactNumber, read_number

MOST_LEVELS = 500  # of JSON, which Python's parser reads wherever it is called
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_DOLLAR, _U = ord("$"), ord("u")  # searching for a number is three times as fast as for a text
SMALLEST, LARGEST = -(1 << 63), (1 << 64) - 1  # integers that orjson writes


@dataclass(frozen=True)
class Unstorable:
    """Stands for a value that the ledger cannot store.

    Attributes:
        what: Its class, or another reason.
    """

    what: str

    def __repr__(self) -> str:
        return f"{self.what}, which the ledger cannot store"


def dump(answer: Any) -> bytes:
    """Return UTF-8 JSON from which `load` returns an equal answer, with these exceptions.

    A tuple, a set, a numpy array or a database row becomes a list, a UUID its text, an Enum its
    value, a numpy scalar and a time with nanoseconds Python's types, NaT a NaN, and any other
    object an `Unstorable`.
    """
    try:
        # the copy frees the 4 KB that orjson's bytes keep
        data = bytes(memoryview(orjson.dumps(answer, _converted, _OPTIONS)))
        has_null = _U in data and data.find(b"null") >= 0
        # no tag, no name like a tag, and no null for NaN or infinity, which equal nothing read back
        is_plain = _DOLLAR not in data and not (has_null and orjson.loads(data) != answer)
    except Exception:  # noqa: BLE001  # an array that is compared, or code of an object's class
        is_plain = False
    return data if is_plain else _written(answer)


def load(data: bytes) -> Any:
    """Return the answer of `dump`, also of older records.

    Raises:
        ValueError: The data is not from `dump`.
    """
    if _DOLLAR not in data:
        answer = orjson.loads(data)
        with contextlib.suppress(orjson.JSONEncodeError):  # nested deeper than orjson writes
            if orjson.dumps(answer) == data:  # no number lost a digit
                return answer
    try:
        return _DECODER.decode(data.decode())
    except (TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def require_readable(data: bytes) -> None:
    """Raise ValueError if `load` does, in a third of its time."""
    if _DOLLAR in data:
        load(data)
    else:
        orjson.loads(data)


class _Tag(dict[str, Any]):
    """An object with a tag."""


class _Written(bytes):
    """JSON text."""


def _written(answer: Any) -> bytes:
    """Return the JSON with tags and escapes, so that no part of the answer looks like a tag.

    It does not recurse, because an answer may be nested deeper than Python's stack.
    """
    text = bytearray()
    left: list[tuple[Any, int]] = [(answer, 0)]  # what is not written yet, with its level
    while left:
        value, level = left.pop()
        form = _form(value)
        if level >= MOST_LEVELS and not isinstance(form, bytes):
            form = orjson.dumps(_unstorable(f"more than {MOST_LEVELS} levels"))
        if isinstance(form, bytes):
            text += form
            continue
        opening, closing = b"{}" if isinstance(form, dict) else b"[]"
        text.append(opening)
        inner: list[Any] = []
        for place, item in enumerate(form):
            comma = b"," if place else b""
            if isinstance(form, dict):
                inner += (_Written(comma + orjson.dumps(item) + b":"), form[item])
            else:
                inner += (_Written(comma), item)
        left.append((_Written([closing]), level))
        left.extend((element, level + 1) for element in reversed(inner))
    return bytes(text)


def _form(value: Any) -> bytes | list[Any] | dict[str, Any]:
    """Return JSON text, or a list or an object whose items have no form yet."""
    try:
        while isinstance(value, enum.Enum):
            value = value.value  # as orjson does
        if not isinstance(value, _PLAIN):
            value = _converted(value)
        match value:
            case _Written() | _Tag():
                return value
            case list() | tuple():
                return list(value)
            case Mapping():
                return _members(dict(value))
        return _simple(value)
    except Exception as error:  # noqa: BLE001  # code of an object's class may raise anything
        return _unstorable(f"a {_class_name(value)} ({type(error).__name__})")


def _simple(value: Any) -> bytes | _Tag:
    match value:
        case str():
            return _text(value)
        case ExactNumber():
            return value.digits.encode()
        case float() if not math.isfinite(value):
            return _Tag({"$float": str(float(value))})
        case int() if not SMALLEST <= value <= LARGEST:
            return _Tag({"$int": str(int(value))})
    return orjson.dumps(float(value) if isinstance(value, float) else value)


def _text(value: str) -> bytes | _Tag:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # a lone surrogate: JSON can escape it, but no file can hold it
        return _Tag({"$text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()})


def _members(members: dict[Any, Any]) -> dict[str, Any]:
    if all(isinstance(name, str) and name[:1] != "$" and name.isprintable() for name in members):
        return members
    return _Tag({"$object": [[_name(name), item] for name, item in members.items()]})


def _name(name: Any) -> Any:
    """Return a hashable name as it is; a tuple, which `load` would make a list, as Unstorable."""
    return Unstorable(f"a {_class_name(name)}") if isinstance(name, tuple | frozenset) else name


def _unstorable(what: str) -> _Tag:
    return _Tag({"$unstorable": what})


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _converted(value: Any) -> Any:
    """Return the JSON form of a value that orjson does not write as it should."""
    for kind, convert in _CONVERT:
        if isinstance(value, kind):
            return convert(value)
    if hasattr(value, "_mapping"):  # SQLAlchemy's Row is not a tuple subclass
        return list(value)
    if type(value).__module__ == "numpy" and value.dtype.kind not in "mM":
        return value.tolist()
    return _unstorable(f"a {_class_name(value)}")


def _moment(value: dt.datetime) -> Any:
    if value != value:  # noqa: PLR0124  # pandas' NaT
        return math.nan
    # the base class's: without pandas' nanoseconds
    return _Tag({"$datetime": dt.datetime.isoformat(value)})


_PLAIN = (type(None), bool, int, float, str, list, tuple, Mapping, _Written)
_CONVERT: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (ExactNumber, lambda value: orjson.Fragment(value.digits)),
    (dt.datetime, _moment),
    (dt.date, lambda value: _Tag({"$date": dt.date.isoformat(value)})),
    (dt.time, lambda value: _Tag({"$time": value.isoformat()})),
    (
        dt.timedelta,
        lambda value: _Tag({"$microseconds": str(value // dt.timedelta(microseconds=1))}),
    ),
    (decimal.Decimal, lambda value: _Tag({"$decimal": str(value)})),
    (
        bytes | bytearray | memoryview,
        lambda value: _Tag({"$bytes": base64.b64encode(bytes(value)).decode()}),
    ),
    (Unstorable, lambda value: _unstorable(value.what)),
    (float, float),
    (uuid.UUID, str),
    (Mapping, dict),
    (set | frozenset | tuple, list),
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
    "$object": dict,
    "$unstorable": Unstorable,
}


def _restored(members: dict[str, Any]) -> Any:
    """Return the value of a tag, or the object itself. Its items are restored already."""
    if len(members) == 1:
        ((name, item),) = members.items()
        if name in _RESTORE:
            return _RESTORE[name](item)
    return members


_DECODER = json.JSONDecoder(parse_float=read_number, object_hook=_restored)
