"""The functions of Spark SQL that are known without Spark, value by value; nulls never get here.

Each raises ValueError, with what is wrong, for a value that Spark refuses or may take otherwise.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq,
    "NEQ": operator.ne,
    "LT": operator.lt,
    "LTE": operator.le,
    "GT": operator.gt,
    "GTE": operator.ge,
}
ARITHMETIC: dict[str, Callable[[int, int], int]] = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul}
KINDS = {  # a type of Spark's -> what it is here
    "string": "string",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "int",
    "date": "date",
    "timestamp": "timestamp",
    "boolean": "boolean",
    "double": "double",
}
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
NUMBER = re.compile(r"[+-]?\d{1,19}")
FORMAT = re.compile(r"%([YmdHMS])(?:strict)?|([-/.:, _])|'([^'%]+)'")
DIGITS = {
    "Y": (4, "year"),
    "m": (2, "month"),
    "d": (2, "day"),
    "H": (2, "hour"),
    "M": (2, "minute"),
    "S": (2, "second"),
}


@dataclass(frozen=True)
class Function:
    """arguments: sqlglot's name -> the kinds that it may have, in the order of `compute`. ignored: say nothing more."""

    compute: Callable[..., Any]
    gives: str
    arguments: Mapping[str, tuple[str, ...]]
    ignored: tuple[str, ...] = ()


def trim(text: str, position: str = "BOTH") -> str:
    """Spaces only: tabs and line breaks stay, as in Spark."""
    return {"BOTH": text.strip, "LEADING": text.lstrip, "TRAILING": text.rstrip}[position](" ")


def lower(text: str) -> str:
    return _of_known_letters(text).lower()


def upper(text: str) -> str:
    return _of_known_letters(text).upper()


def _of_known_letters(text: str) -> str:
    """Java may know of another case for letters of a later Unicode than Python's, and for two that got one since."""
    if not text.isascii() and any(letter in "\u019b\u0264" or unicodedata.category(letter) == "Cn" for letter in text):
        raise ValueError("a letter that Python's Unicode does not know")
    return text


def substring(text: str, start: int, length: int | None = None) -> str:
    """From 1, or from the end; what lies before the text counts in the length."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(first, 0) : max(last, 0)] if last > first else ""


def replace(text: str, wanted: str, new: str) -> str:
    return text.replace(wanted, new) if wanted else text


def moment(value: dt.datetime | dt.date) -> dt.datetime:
    """In UTC; a date is its first moment."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)


def first_of(value: dt.datetime | dt.date, unit: str) -> dt.datetime:
    """date_trunc, in UTC."""
    at = moment(value)
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    firsts = {
        "SECOND": at.replace(microsecond=0),
        "MINUTE": at.replace(second=0, microsecond=0),
        "HOUR": at.replace(minute=0, second=0, microsecond=0),
        "DAY": midnight,
        "WEEK": midnight - dt.timedelta(days=midnight.weekday()),
        "MONTH": midnight.replace(day=1),
        "QUARTER": midnight.replace(day=1, month=at.month - (at.month - 1) % 3),
        "YEAR": midnight.replace(day=1, month=1),
    }
    if unit.upper() not in firsts:
        raise ValueError(f"date_trunc to {unit}")
    return firsts[unit.upper()]


def to_date(value: Any, pattern: str | None = None) -> dt.date:
    if isinstance(value, dt.datetime):
        return moment(value).date()
    if isinstance(value, dt.date):
        return value
    return date_of_text(value) if pattern is None else dt.datetime.strptime(value, checked(value, pattern)).date()  # noqa: DTZ007


def checked(text: str, pattern: str) -> str:
    """The pattern for strptime, if the text has as many digits as it says: Spark wants them all."""
    parts = _read(pattern)
    wanted = "".join(rf"[0-9]{{{DIGITS[letter][0]}}}" if letter else re.escape(between) for letter, between in parts)
    if not re.fullmatch(wanted, text):
        raise ValueError(f"a text that is not a date of that pattern ({len(text)} letters)")
    return "".join(f"%{letter}" if letter else between for letter, between in parts)


def date_format(value: dt.datetime | dt.date, pattern: str) -> str:
    at = moment(value)
    return "".join(
        f"{getattr(at, DIGITS[letter][1]):0{DIGITS[letter][0]}d}" if letter else between
        for letter, between in _read(pattern)
    )


def _read(pattern: str) -> list[tuple[str, str]]:
    """A field's letter, or the text that stands there, in turns."""
    found = list(FORMAT.finditer(pattern))
    if "".join(match.group() for match in found) != pattern:
        raise ValueError(f"a pattern of more than yyyy, MM, dd, HH, mm, ss and signs between them ({pattern!r})")
    return [(match[1] or "", match[2] or match[3] or "") for match in found]


def date_of_text(text: str) -> dt.date:
    found = DATE.fullmatch(text.strip(" \t\n\r"))
    if found is None:
        raise ValueError("a text that is no date as 2013-01-10")
    return dt.date(int(found[1]), int(found[2] or 1), int(found[3] or 1))


def text_of_moment(value: dt.datetime) -> str:
    at = moment(value)
    seconds = f"{at.year:04d}-{at.month:02d}-{at.day:02d} {at.hour:02d}:{at.minute:02d}:{at.second:02d}"
    return f"{seconds}.{at.microsecond:06d}".rstrip("0") if at.microsecond else seconds


def whole_number(bits: int) -> Callable[[Any], int]:
    largest = 1 << bits - 1

    def cast(value: Any) -> int:
        text = str(int(value)) if isinstance(value, int) else value.strip(" \t\n\r")
        if not NUMBER.fullmatch(text) or not -largest <= int(text) < largest:
            raise ValueError(f"a value that is no whole number of {bits} bits")
        return int(text)

    return cast


AS_TEXT: dict[str, Callable[[Any], str]] = {
    "string": str,
    "int": str,
    "boolean": lambda value: "true" if value else "false",
    "date": lambda value: f"{value.year:04d}-{value.month:02d}-{value.day:02d}",
    "timestamp": text_of_moment,
    "null": str,
}
CASTS: dict[tuple[str, str], Callable[[Any], Any]] = {
    **{(kind, name): whole_number(bits) for kind in ("string", "int", "boolean") for name, bits in BITS.items()},
    ("int", "double"): float,
    ("int", "boolean"): bool,
    **{(kind, "date"): to_date for kind in ("string", "date", "timestamp")},
    ("timestamp", "timestamp"): lambda value: value,
    ("boolean", "boolean"): lambda value: value,
    ("double", "double"): lambda value: value,
}
TEXT, NUMBERS, TIMES = ("string",), ("int",), ("timestamp", "date")
FUNCTIONS: dict[str, Function] = {
    "Trim": Function(trim, "string", {"this": TEXT, "position": ("unit",)}),
    "Lower": Function(lower, "string", {"this": TEXT}),
    "Upper": Function(upper, "string", {"this": TEXT}),
    "Length": Function(len, "int", {"this": TEXT}),
    "Substring": Function(substring, "string", {"this": TEXT, "start": NUMBERS, "length": NUMBERS}),
    "Left": Function(lambda text, count: text[: max(count, 0)], "string", {"this": TEXT, "expression": NUMBERS}),
    "Right": Function(
        lambda text, count: text[-count:] if count > 0 else "", "string", {"this": TEXT, "expression": NUMBERS}
    ),
    "Replace": Function(replace, "string", {"this": TEXT, "expression": TEXT, "replacement": TEXT}),
    "MD5": Function(
        lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), "string", {"this": TEXT}
    ),
    "TimestampTrunc": Function(first_of, "timestamp", {"this": TIMES, "unit": ("unit",)}),
    "TsOrDsToDate": Function(to_date, "date", {"this": ("string", *TIMES), "format": TEXT}, ("safe",)),
    "TimeToStr": Function(date_format, "string", {"this": TIMES, "format": TEXT}),
    "TimeStrToTime": Function(moment, "timestamp", {"this": TIMES}),
    "Year": Function(lambda value: to_date(value).year, "int", {"this": TIMES}),
    "Month": Function(lambda value: to_date(value).month, "int", {"this": TIMES}),
    "Day": Function(lambda value: to_date(value).day, "int", {"this": TIMES}),
    "DayOfMonth": Function(lambda value: to_date(value).day, "int", {"this": TIMES}),
    "Hour": Function(lambda value: moment(value).hour, "int", {"this": TIMES}),
    "Minute": Function(lambda value: moment(value).minute, "int", {"this": TIMES}),
}
