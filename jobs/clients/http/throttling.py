"""Reads from an answer's headers how long a throttled service asks its clients to wait."""

import datetime as dt
import email.utils
import math
import re
from collections.abc import Callable, Mapping

UNSAID = 1.0  # s, for a throttled answer without a time
REMAINING = ("X-RateLimit-Remaining", "RateLimit-Remaining", "X-Rate-Limit-Remaining")
RESET = ("X-RateLimit-Reset", "RateLimit-Reset", "X-Rate-Limit-Reset")
NONE_LEFT = re.compile(r";\s*r\s*=\s*0+(?![\d.])")  # of the header RateLimit, as in the IETF draft
FREE_IN = re.compile(r";\s*t\s*=\s*(\d+)")
EPOCH_FROM = 1e9  # a greater number is a time since the epoch, not a duration
MILLISECONDS_FROM = 1e11

Now = Callable[[], dt.datetime]


def is_throttled(
    status: int, headers: Mapping[str, str], now: Now = lambda: dt.datetime.now(dt.UTC)
) -> bool:
    """Return whether a denial is about the rate: a 403 that names a time to retry."""
    return status == 403 and (
        _seconds_of_retry_after(headers, now) is not None or _is_used_up(headers)
    )


def pause(headers: Mapping[str, str], now: Now = lambda: dt.datetime.now(dt.UTC)) -> float:
    """Return the seconds to wait: Retry-After, else until a used-up limit's reset, else UNSAID."""
    seconds = _seconds_of_retry_after(headers, now)
    if seconds is None and _is_used_up(headers):
        seconds = _seconds_to_reset(headers, now)
    return UNSAID if seconds is None else max(0.0, seconds)


def _is_used_up(headers: Mapping[str, str]) -> bool:
    left = next((headers[name] for name in REMAINING if name in headers), "")
    return _number(left) == 0 or NONE_LEFT.search(headers.get("RateLimit", "")) is not None


def _seconds_to_reset(headers: Mapping[str, str], now: Now) -> float | None:
    if found := FREE_IN.search(headers.get("RateLimit", "")):
        return float(found[1])
    reset = _number(next((headers[name] for name in RESET if name in headers), ""))
    if reset is None or reset < EPOCH_FROM:
        return reset
    return reset / (1000 if reset >= MILLISECONDS_FROM else 1) - now().timestamp()


def _seconds_of_retry_after(headers: Mapping[str, str], now: Now) -> float | None:
    """Return the seconds of Retry-After in either form: a number of seconds, or a date."""
    header = headers.get("Retry-After", "")
    if (seconds := _number(header)) is not None:
        return seconds
    try:
        when = email.utils.parsedate_to_datetime(header)
        # "-0000": UTC of unknown origin
        when = when if when.tzinfo else when.replace(tzinfo=dt.UTC)
        return (when - now()).total_seconds()
    except (ValueError, OverflowError):  # OverflowError: a zone of too many digits
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
