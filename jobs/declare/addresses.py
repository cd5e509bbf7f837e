"""Which addresses of a service a request may go to: those below the declared one, however a server reads the path."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, unquote_plus

from yarl import URL

TOKEN_LENGTH = 6  # characters; fewer are no token, and hiding them would make holes in words
READINGS = 4  # a path may be decoded by a proxy, by the server, and by its framework


def leads_elsewhere(path: str) -> bool:
    """Whether a segment of the path is `.` or `..` for any server: as it stands, decoded, decoded again, with a
    backslash for a slash, or with parameters behind a semicolon.
    """
    if "." not in path and "%" not in path:
        return False
    for _ in range(READINGS):
        if any(segment.partition(";")[0].strip() in (".", "..") for segment in re.split(r"[/\\]", path)):
            return True
        path, before = unquote(path), path
        if path == before:
            return False
    return True  # nobody encodes an honest path so often


def is_below(base: str, url: URL) -> bool:
    """Whether the URL lies at the base address or below its path, and no server reads it as another one.

    base: scheme, host, port and path, without a slash at its end.
    """
    declared = URL(base)
    path = declared.raw_path.rstrip("/")
    try:
        is_there = url.origin() == declared.origin() and url.user is None
    except ValueError:  # a relative address
        return False
    return is_there and f"{url.raw_path}/".startswith(f"{path}/") and not leads_elsewhere(url.raw_path)


def with_parameter(page: URL, parameter: str, value: str) -> URL:
    """The page with this one parameter; of the others not a character changes: a service may read `+` its own way."""
    address, _, query = str(page).partition("?")
    others = [part for part in query.split("&") if part and unquote_plus(part.partition("=")[0]) != parameter]
    added = f"{quote(parameter, safe='')}={quote(value, safe='')}"
    return URL(f"{address}?{'&'.join([*others, added])}", encoded=True)


def path_secrets(base: str, shown: str) -> tuple[str, ...]:
    """What of a base address is not to be shown, longest first: itself, its path, and what may be a token in it."""
    path = base.removeprefix(shown)
    parts = [base, path, *(part for part in path.split("/") if any(map(str.isdigit, part)))] if path else []
    by_lower_name = {
        text for part in parts for text in (part, unquote(part), quote(unquote(part))) if len(text) >= TOKEN_LENGTH
    }
    return tuple(sorted(by_lower_name, key=len, reverse=True))
