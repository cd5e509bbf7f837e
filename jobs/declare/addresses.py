"""Restricts requests to addresses below the declared one, however a server decodes the path."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, unquote_plus

from yarl import URL

TOKEN_LENGTH = 6  # characters; a shorter text is not a token, and masking it would garble words
READINGS = 4  # a path may be decoded by a proxy, by the server, and by its framework


def leads_elsewhere(path: str) -> bool:
    """Whether a server may read a segment of the path as `.` or `..`: unchanged, decoded once or repeatedly, with a
    backslash for a slash, or with parameters after a semicolon.
    """
    if "." not in path and "%" not in path:
        return False
    for _ in range(READINGS):
        if any(segment.partition(";")[0].strip() in (".", "..") for segment in re.split(r"[/\\]", path)):
            return True
        path, before = unquote(path), path
        if path == before:
            return False
    return True  # no legitimate path is encoded so often


def is_below(base: str, url: URL) -> bool:
    """Whether the URL is the base address or below its path for every server.

    base: scheme, host, port and path, without a trailing slash.
    """
    declared = URL(base)
    path = declared.raw_path.rstrip("/")
    try:
        is_there = url.origin() == declared.origin() and url.user is None
    except ValueError:  # a relative address
        return False
    return is_there and f"{url.raw_path}/".startswith(f"{path}/") and not leads_elsewhere(url.raw_path)


def with_parameter(page: URL, parameter: str, value: str) -> URL:
    """The page with this parameter; the others stay unchanged to the character, because services read `+`
    differently.
    """
    address, _, query = str(page).partition("?")
    others = [part for part in query.split("&") if part and unquote_plus(part.partition("=")[0]) != parameter]
    added = f"{quote(parameter, safe='')}={quote(value, safe='')}"
    return URL(f"{address}?{'&'.join([*others, added])}", encoded=True)


def path_secrets(base: str, shown: str) -> tuple[str, ...]:
    """The secrets of a base address, longest first: itself, its path, and possible tokens in it."""
    path = base.removeprefix(shown)
    parts = [base, path, *(part for part in path.split("/") if any(map(str.isdigit, part)))] if path else []
    by_lower_name = {
        text for part in parts for text in (part, unquote(part), quote(unquote(part))) if len(text) >= TOKEN_LENGTH
    }
    return tuple(sorted(by_lower_name, key=len, reverse=True))
