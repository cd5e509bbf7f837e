"""Reads dates and times in text, for answers and for CSV and JSON files.

A date is 2013-01-10 or 20130110. A timestamp is a date, T or a space, and a time of day as 05:00:00
(050000 after a date without hyphens). Seconds and minutes may be left out; a fraction of a second
has up to nine digits, of which microseconds are kept. Z or an offset such as +01:00 may follow;
without an offset the timestamp is in UTC. A date alone is its midnight in UTC.

Nothing else is read. The parsers of Python and Arrow accept more forms, and read some texts as
another time than a person would: Python 3.11 takes "20260110120000Z" for 20:00.
"""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

DATE_FORMS = "as 2013-01-10 or 20130110"
TIMESTAMP_FORMS = "as 2013-01-10T05:00:00.123456+01:00, 2013-01-10 05:00:00 or 20130110T050000Z"
UTC = pa.timestamp("us", tz="UTC")
# µs since the epoch: years 1 to 9999
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
MESSAGE = 60  # characters of a value in a message

_OFFSET = "(?P<offset>[Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?"
_FRACTION = "(?:[.,](?P<fraction>[0-9]{1,9}))?"


def _date_form(hyphen: str) -> str:
    return f"(?P<year>[0-9]{{4}}){hyphen}(?P<month>[0-9]{{2}}){hyphen}(?P<day>[0-9]{{2}})"


def _timestamp_form(hyphen: str, colon: str) -> str:
    seconds = f"(?:{colon}(?P<second>[0-9]{{2}}){_FRACTION})?"
    minutes = f"(?:{colon}(?P<minute>[0-9]{{2}}){seconds})?"
    return f"{_date_form(hyphen)}(?:[Tt ](?P<hour>[0-9]{{2}}){minutes}{_OFFSET})?"


_DATES = (_date_form("-"), _date_form(""))
_TIMESTAMPS = (_timestamp_form("-", ":"), _timestamp_form("", ""))


def _matcher(forms: tuple[str, ...]) -> Callable[[str], Any]:
    return re.compile("|".join(re.sub(r"\?P<\w+>", "?:", form) for form in forms)).fullmatch


_is_date, _is_timestamp = _matcher(_DATES), _matcher(_TIMESTAMPS)


class UnreadText(ValueError):  # noqa: N818  # says what it is
    """A text in none of the forms.

    Attributes:
        text: The text.
        place: Its index in the array, from 0; None for a single text.
    """

    def __init__(self, text: Any, expected: str, place: int | None = None) -> None:
        super().__init__(f"expected {expected}, got {shown(text)}")
        self.text = text
        self.expected = expected
        self.place = place


def shown(value: Any) -> str:
    """Return a value for a message: one line, at most 60 characters."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except Exception:  # noqa: BLE001  # nested too deep, an integer of too many digits, a user's class
        text = f"a {type(value).__name__}"
    return shown_text(text)


def shown_text(text: str) -> str:
    """Return a printable text for a message: at most 60 characters."""
    return text if len(text) <= MESSAGE else f"{text[: MESSAGE - 3]}..."


def read_date(text: str) -> dt.date:
    """Return the date in a text.

    Raises:
        UnreadText: The text has another form, or its day does not exist.
    """
    try:
        if _is_date(text):
            return dt.date.fromisoformat(text)
    except ValueError:  # no such day
        pass
    raise UnreadText(text, f"DATE ({DATE_FORMS})")


def read_timestamp(text: str) -> dt.datetime:
    """Return the moment in a text, in UTC.

    Raises:
        UnreadText: The text has another form, its time does not exist, or its year in UTC is not 1
            to 9999.
    """
    try:
        if _is_timestamp(text):
            moment = dt.datetime.fromisoformat(text.upper())
            return moment.astimezone(dt.UTC) if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        pass
    raise UnreadText(text, f"TIMESTAMP ({TIMESTAMP_FORMS})")


def read_dates(texts: pa.StringArray) -> pa.Date32Array:
    """Return the dates in an array of texts, as `read_date` reads each; null stays null.

    Raises:
        UnreadText: With the first text that `read_date` refuses, and its place.
    """
    try:
        days = _written_date(_groups(texts, _DATES)).cast(pa.date32())
        _require_years(days.cast(pa.timestamp("us")))
    except ValueError as error:
        raise _first_unread(texts, read_date) from error
    return days


def read_timestamps(texts: pa.StringArray) -> pa.TimestampArray:
    """Return the moments in an array of texts, as `read_timestamp` reads each; null stays null.

    Raises:
        UnreadText: With the first text that `read_timestamp` refuses, and its place.
    """
    try:
        groups = _groups(texts, _TIMESTAMPS)
        clock = [_or_zeros(groups[name]) for name in ("hour", "minute", "second")]
        time = pc.binary_join_element_wise(*clock, ":")
        local = pc.binary_join_element_wise(_written_date(groups), time, " ").cast(
            pa.timestamp("s")
        )
        fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(groups["fraction"], 6, "0"), 0, 6)
        moments = pc.add(pc.multiply(local.cast(pa.int64()), 1_000_000), fraction.cast(pa.int64()))
        moments = pc.subtract(moments, pc.multiply(_offset(groups["offset"]), 1_000_000))
        _require_years(moments.cast(pa.timestamp("us")))
    except ValueError as error:
        raise _first_unread(texts, read_timestamp) from error
    return moments.cast(UTC)


def _groups(texts: pa.StringArray, forms: tuple[str, ...]) -> dict[str, pa.StringArray]:
    """Return the named groups of the form that each text has; an absent group is an empty text."""
    matches = pc.coalesce(*(pc.extract_regex(texts, f"^(?:{form})$") for form in forms))
    if matches.null_count > texts.null_count:
        raise ValueError("a text has none of the forms")
    names = re.findall(r"\?P<(\w+)>", forms[0])
    return {name: pc.struct_field(matches, name) for name in names}


def _written_date(groups: dict[str, pa.StringArray]) -> pa.StringArray:
    return pc.binary_join_element_wise(groups["year"], groups["month"], groups["day"], "-")


def _or_zeros(digits: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(digits, ""), "00", digits)


def _offset(offsets: pa.StringArray) -> pa.Int64Array:
    """Return the offsets in seconds."""
    digits = pc.utf8_rpad(pc.replace_substring_regex(offsets, "[^0-9]", ""), 4, "0")
    hours = pc.utf8_slice_codeunits(digits, 0, 2).cast(pa.int64())
    minutes = pc.utf8_slice_codeunits(digits, 2, 4).cast(pa.int64())
    seconds = pc.add(pc.multiply(hours, 3600), pc.multiply(minutes, 60))
    return pc.if_else(pc.starts_with(offsets, "-"), pc.negate(seconds), seconds)


def _require_years(moments: pa.TimestampArray) -> None:
    """Raise ValueError for a moment that is not in the years 1 to 9999."""
    ends = pc.min_max(moments.cast(pa.int64())).as_py()
    if ends["min"] is not None and not FIRST <= ends["min"] <= ends["max"] <= LAST:
        raise ValueError("a year is not 1 to 9999")


def _first_unread(texts: pa.StringArray, read: Callable[[str], Any]) -> UnreadText:
    for place, text in enumerate(texts.to_pylist()):
        try:
            if text is not None:
                read(text)
        except UnreadText as error:
            return UnreadText(text, error.expected, place)
    raise AssertionError("an array is refused, and none of its texts is")
