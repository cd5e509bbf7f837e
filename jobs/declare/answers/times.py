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
from typing import Any

from jobs.wording import one_line

DATE_FORMS = "such as 2013-01-10 or 20130110"
TIMESTAMP_FORMS = (
    "such as 2013-01-10T05:00:00.123456+01:00, 2013-01-10 05:00:00 or 20130110T050000Z"
)
MESSAGE = 60  # characters of a value in a message

_OFFSET = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?"
_FRACTION = "(?:[.,][0-9]{1,9})?"


def _date_form(hyphen: str) -> str:
    return f"[0-9]{{4}}{hyphen}[0-9]{{2}}{hyphen}[0-9]{{2}}"


def _timestamp_form(hyphen: str, colon: str) -> str:
    seconds = f"(?:{colon}[0-9]{{2}}{_FRACTION})?"
    minutes = f"(?:{colon}[0-9]{{2}}{seconds})?"
    return f"{_date_form(hyphen)}(?:[Tt ][0-9]{{2}}{minutes}{_OFFSET})?"


_is_date = re.compile(f"{_date_form('-')}|{_date_form('')}").fullmatch
_is_timestamp = re.compile(f"{_timestamp_form('-', ':')}|{_timestamp_form('', '')}").fullmatch


class UnreadText(ValueError):  # noqa: N818  # says what it is
    """A text in none of the forms."""

    def __init__(self, text: Any, expected: str) -> None:
        super().__init__(f"expected {expected}, got {shown(text)}")


def shown(value: Any) -> str:
    """Return a value for a message: one line, at most 60 characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # nested too deep, an integer of too many digits, a user's class
        text = f"a {type(value).__name__}"
    return shown_text(text if text.isprintable() else one_line(text))


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
