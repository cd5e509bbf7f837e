"""Keeps requests below the declared address, whichever way a server decodes the path."""

import re
from urllib.parse import quote, unquote, unquote_plus

from yarl import URL

# characters; a shorter text is hardly a token, and masking it would garble other words
TOKEN_LENGTH = 6
# an escape of a dot or a percent sign, or a percent sign without two digits, which may get them by
# decoding the text after it
BECOMES_DOT = re.compile("%(?:2[5eE]|(?![0-9a-fA-F]{2}))")
NO_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
OF_PATHS, OF_ADDRESSES = "%/!$&'()*+,;=:@~", "%/!$&'()*+,;=:@~?#[]"  # characters that stay
DECODINGS = 4  # a proxy, the server and its framework may each decode the path once


def leads_elsewhere(path: str) -> bool:
    """Return whether a server may take a segment of a path for `.` or `..`.

    The path is percent-encoded as it is sent. The segment may match as sent or after decoding, with
    a backslash as separator, or with parameters after a semicolon.
    """
    if "." not in path and not BECOMES_DOT.search(path):
        return False
    for _ in range(DECODINGS):
        if any(
            segment.partition(";")[0].strip() in (".", "..") for segment in re.split(r"[/\\]", path)
        ):
            return True
        path, before = unquote(path), path
        if path == before:
            return False
    return True  # no legitimate path is encoded so often


def is_below(base: str, url: URL) -> bool:
    """Return whether every server takes a URL for the base address, which has no trailing slash, or
    an address below it.
    """
    declared = URL(base)
    path = declared.raw_path.rstrip("/")
    try:
        is_there = url.origin() == declared.origin() and url.user is None
    except ValueError:  # a relative address
        return False
    return (
        is_there and f"{url.raw_path}/".startswith(f"{path}/") and not leads_elsewhere(url.raw_path)
    )


def with_escapes(text: str, keeps: str) -> str:
    """Return a path or an address with escapes for what no URL holds; all else stays.

    yarl would undo escapes that some services need: to them `a;b` is `a` with a parameter.
    """
    return quote(NO_ESCAPE.sub("%25", text), safe=keeps)


def with_parameter(page: URL, parameter: str, value: str) -> URL:
    """Return the URL with a query parameter at its end, replacing earlier values.

    The other parameters keep their encoding character by character, because services decode `+` in
    different ways.
    """
    address, _, query = str(page).partition("?")
    others = [
        part
        for part in query.split("&")
        if part and unquote_plus(part.partition("=")[0]) != parameter
    ]
    added = f"{quote(parameter, safe='')}={quote(value, safe='')}"
    return URL(f"{address}?{'&'.join([*others, added])}", encoded=True)


def path_secrets(base: str, shown: str) -> tuple[str, ...]:
    """Return the texts of a base address that must not be shown, the longest first.

    They are the address, its path, and segments of it that may be tokens, also encoded and decoded.

    Args:
        base: The base address.
        shown: The start of it that may be shown.
    """
    path = base.removeprefix(shown)
    parts = (
        [base, path, *(part for part in path.split("/") if any(map(str.isdigit, part)))]
        if path
        else []
    )
    texts = {
        text
        for part in parts
        for text in (part, unquote(part), quote(unquote(part)))
        if len(text) >= TOKEN_LENGTH
    }
    return tuple(sorted(texts, key=len, reverse=True))
