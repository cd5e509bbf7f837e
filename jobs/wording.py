"""Counts and foreign texts in a sentence, a column or a terminal."""

import difflib
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import FrameType
from typing import Any

LONGEST = 2_000  # characters of an error
FINEST = 14  # decimals of a percentage
# what commands a terminal or reorders its text, and lone surrogates, which cannot be encoded; not
# tab and line feed
COMMANDING = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`. many: the plural, if it is not `one` with an s."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def requested(calls: int, jobs: int) -> str:
    """Return `8 calls`, `3 jobs` or `8 calls, 3 jobs`; `0 calls` without either."""
    both = ((calls, "call"), (jobs, "job"))
    return ", ".join(counted(*pair) for pair in both if pair[0]) or counted(0, "call")


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return `a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def money(amount: Decimal, currency: str) -> str:
    """`12,345.3201 USD`, `0.10 USD`: an exact amount, with at least two decimals."""
    whole, _, part = f"{amount:,f}".partition(".")
    return f"{whole}.{part.rstrip('0'):0<2} {currency}"


def priced(costs: Mapping[str, float | Decimal]) -> str:
    """`12.30 USD`, `0.004 USD`: costs by currency, below 1 by four digits; empty without."""
    return ", ".join(
        money(Decimal(f"{cost:.{'2f' if cost >= 1 else '4g'}}"), currency)
        for currency, cost in costs.items()
    )


def rounded(number: float, digits: int = 4) -> str:
    """`12,350`, `0.00005`: a number by its first digits, without an exponent."""
    return f"{Decimal(f'{number:.{digits}g}'):,f}"


def percent(share: float, places: int = 2) -> str:
    """`12.35%`, `0.001%`, `99.9996%`: with more decimals where a share is neither 0 nor 1."""
    text = f"{share:.{places}%}"
    while share not in (0, 1) and float(text[:-1]) in (0, 100) and places < FINEST:
        places += 1
        text = f"{share:.{places}%}"
    return text


def cell_text(value: Any) -> str:
    """Return a value of a row as text, and `null` for None."""
    return "null" if value is None else str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'status'?`; empty if no known name is close."""
    close = difflib.get_close_matches(name, [*known], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def described(error: BaseException) -> str:
    """`ValueError: no such town`, also where the text of a user's exception cannot be made."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a user's __str__
        text = "(without a text, as its __str__ fails)"
    return f"{type(error).__name__}: {text}"


def innermost_frame(error: BaseException, package: str) -> tuple[FrameType, int] | None:
    """Return the innermost frame of a package's code that an exception left, and its line."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    return frames[-1] if frames else None


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return `text` as a line of about `longest` characters at most, with control characters
    escaped as in Python.

    A lone surrogate, which no file can hold, becomes a question mark.
    """
    count = len(text)
    line = " ".join(text[: 4 * longest].encode("utf-8", "replace").decode().split())
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    if len(line) <= longest and count <= 4 * longest:
        return line
    return f"{line[:longest]}... ({count:,} characters)"


def printable(text: str) -> str:
    """Return `text` for a terminal, with control characters escaped, except tabs and line feeds.

    As in Python up to U+001F, which JSON escapes itself, then as in JSON, which so stays JSON.
    """
    return COMMANDING.sub(
        lambda found: ascii(found[0])[1:-1] if found[0] < " " else f"\\u{ord(found[0]):04x}", text
    )
