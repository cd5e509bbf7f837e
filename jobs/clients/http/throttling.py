"""Reads from an answer's headers how long a throttled service asks its clients to wait."""

import datetime as dt
import email.utils
import math
import re
from collections.abc import Callable, Mapping

DEFAULT_PAUSE = 1.0  # s, for a throttled answer without a time
IN_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")
PARTS = ("requests", "tokens", "input-tokens", "output-tokens")  # of vendors of language models
# for each limit: the headers with what is left of it, and the headers with the time of its reset
LIMITS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("X-RateLimit-Remaining", "RateLimit-Remaining", "X-Rate-Limit-Remaining"),
        ("X-RateLimit-Reset", "RateLimit-Reset", "X-Rate-Limit-Reset"),
    ),
    *(((f"x-ratelimit-remaining-{part}",), (f"x-ratelimit-reset-{part}",)) for part in PARTS),
    *(
        ((f"anthropic-ratelimit-{part}-remaining",), (f"anthropic-ratelimit-{part}-reset",))
        for part in PARTS
    ),
)
# of the header RateLimit, in the forms of two IETF drafts: `"a";r=0;t=30`, and
# `limit=9, remaining=0, reset=30`
POLICY = re.compile(r',(?=\s*")')
NONE_LEFT = re.compile(r"(?:;\s*r|\bremaining)\s*=\s*0+(?![\d.])")
FREE_IN = re.compile(r"(?:;\s*t|\breset)\s*=\s*(\d+)")
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")  # as in 6m0s or 250ms
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
EPOCH_FROM = 1e9  # a greater number is a time since the epoch, not a duration
MILLISECONDS_FROM = 1e11

Now = Callable[[], dt.datetime]


def is_throttled(
    status: int, headers: Mapping[str, str], now: Now = lambda: dt.datetime.now(dt.UTC)
) -> bool:
    """Return whether a denial is about the rate: a 403 that names a time to retry."""
    return status == 403 and (_retry_after(headers, now) is not None or bool(_resets(headers, now)))


def pause(headers: Mapping[str, str], now: Now = lambda: dt.datetime.now(dt.UTC)) -> float:
    """Return the seconds to wait: Retry-After, also in ms, else until a used-up limit's reset, else
    DEFAULT_PAUSE.

    It is DEFAULT_PAUSE too for 0, and for a time that is past, as a wrong clock gives: without a
    pause all other calls would go on, and be throttled.
    """
    seconds = _retry_after(headers, now)
    if seconds is None:
        seconds = until_reset(headers, now)
    return seconds if seconds is not None and seconds > 0 else DEFAULT_PAUSE


def until_reset(
    headers: Mapping[str, str], now: Now = lambda: dt.datetime.now(dt.UTC)
) -> float | None:
    """Return the seconds until all used-up limits are reset; None if no header tells any."""
    if "limit" not in "".join(headers).lower():  # most answers have no such header
        return None
    return max((reset for reset in _resets(headers, now) if reset is not None), default=None)


def _resets(headers: Mapping[str, str], now: Now) -> list[float | None]:
    """Return for each used-up limit the seconds until its reset; None where no header tells."""
    found: list[float | None] = []
    for policy in POLICY.split(headers.get("RateLimit", "")):
        if NONE_LEFT.search(policy):
            free_in = FREE_IN.search(policy)
            found.append(None if free_in is None else float(free_in[1]))
    for remaining, reset in LIMITS:
        left = next((headers[name] for name in remaining if name in headers), "")
        if left and _number(left) == 0:
            text = next((headers[name] for name in reset if name in headers), "")
            found.append(_seconds_to(text, now))
    return found


def _retry_after(headers: Mapping[str, str], now: Now) -> float | None:
    """Return the named seconds to wait: in milliseconds, which some vendors add, they are exact."""
    exact = next(filter(None, (_number(headers.get(name, "")) for name in IN_MILLISECONDS)), None)
    return exact / 1000 if exact else _seconds_to(headers.get("Retry-After", ""), now)


def _seconds_to(moment: str, now: Now) -> float | None:
    """Return the seconds to a moment: a number of them, a duration, or a time in any form."""
    number = _number(moment)
    if number is not None and number >= EPOCH_FROM:
        return number / (1000 if number >= MILLISECONDS_FROM else 1) - now().timestamp()
    if number is not None:
        return number
    parts = DURATION.findall(moment)
    if parts and "".join(map("".join, parts)) == moment:
        return sum(float(many) * SECONDS[unit] for many, unit in parts)
    try:
        return (dt.datetime.fromisoformat(moment) - now()).total_seconds()
    except (ValueError, TypeError):  # TypeError: without a zone
        return _seconds_to_date(moment, now)


def _seconds_to_date(date: str, now: Now) -> float | None:
    try:
        when = email.utils.parsedate_to_datetime(date)
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
