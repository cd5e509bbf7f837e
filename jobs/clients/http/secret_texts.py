"""Secrets on an executor: read for headers, and masked in texts in each of their spellings."""

import base64
import functools
import html
import json
import re

from jobs.declare.values.env import Env
from jobs.errors import DeclarationError

SHORTEST_IN_WORDS = 4  # characters; a shorter secret is masked as a word only
SHORTEST_ENCODED = 6  # bytes of a secret whose base64 and hexadecimal digits are masked too
NEVER_ESCAPED = re.compile(r"[\w.-]", re.ASCII)
CUT = re.compile(r"(?:[\\&%][\w#\\%]*)?\.\.\.", re.ASCII)  # maybe after a part of an escape
URL_SAFE = str.maketrans("+/", "-_")
SHOWN_OF_A_SECRET = 3  # characters; a shorter start of a secret is not masked


def read_secret(variable: Env) -> str:
    """Return the text for a header. Raises DeclarationError if it is not set or not valid there."""
    value = variable.read()
    if not value.isprintable() or value != value.strip():
        raise DeclarationError(
            f"{variable.name} holds a line break, a space at an end, or another character that a "
            "header cannot hold."
        )
    return value


def base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return `text` with *** for each secret in any encoding.

    A short one, such as the user `me`, would make other words unreadable.
    """
    for secret in secrets:
        written = "".join(map(_in_any_escape, secret))
        if len(secret) < SHORTEST_IN_WORDS:
            text = re.sub(rf"(?<!\w){written}(?!\w)", "***", text)
            continue
        text = re.sub(written, "***", text)
        is_cut = "..." in text  # maybe in the middle of a secret
        if is_cut:
            text = _without_begin(text, secret)
        for digits in _digits(secret):
            text = text.replace(digits, "***")
            for length in range(len(digits) - 1, SHOWN_OF_A_SECRET, -1) if is_cut else ():
                text = text.replace(f"{digits[:length]}...", "***...")
    return text


def _without_begin(text: str, secret: str) -> str:
    """Return `text` with *** for a beginning of the secret before "..."."""
    letters = [*map(_in_any_escape, secret)]
    masked = SHOWN_OF_A_SECRET + 1
    kept, end = "", 0
    for found in re.finditer("".join(letters[:masked]), text):
        at = found.end()
        cut = CUT.match(text, at)
        for letter in letters[masked:]:
            if (more := re.compile(letter).match(text, at)) is None:
                break
            at = more.end()
            cut = CUT.match(text, at) or cut  # a letter may be a dot of the "..."
        if found.start() >= end and cut:
            kept, end = f"{kept}{text[end : found.start()]}***...", cut.end()
    return kept + text[end:]


@functools.cache
def _in_any_escape(letter: str) -> str:
    """Return a pattern of the forms in which a URL, JSON, HTML or a program writes a letter."""
    if NEVER_ESCAPED.fullmatch(letter):
        return re.escape(letter)
    octets, units, number = letter.encode(), letter.encode("utf-16-be").hex(), ord(letter)
    texts = {re.escape(json.dumps(letter)[1:-1]), re.escape(html.escape(letter))}
    escapes = [
        "".join(f"%{octet:02x}" for octet in octets),
        "".join(rf"\\x{octet:02x}" for octet in octets),
        "".join(rf"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)),
        rf"\\x{number:02x}",
        f"&#0*{number};",
        f"&#x0*{number:x};",
        # longest first, as of \\ for \: a beginning is read letter by letter
        *sorted(texts, key=len, reverse=True),
        r"\\{0,3}" + re.escape(letter),  # PHP writes \/
        *([r"\+"] if letter == " " else []),
    ]
    return f"(?i:{'|'.join(escapes)})"


def _digits(secret: str) -> list[str]:
    """Return the secret's hexadecimal and base64 digits, longest first: they overlap."""
    octets = secret.encode()
    if len(octets) < SHORTEST_ENCODED:  # shorter digits would mask other texts
        return []
    texts = {octets.hex(), octets.hex().upper()}
    for place in range(3):
        inside = _base64_inside(octets, place)
        texts |= {inside, inside.translate(URL_SAFE)}
    return sorted(texts, key=len, reverse=True)


def _base64_inside(octets: bytes, place: int) -> str:
    """Return the base64 characters that depend only on these bytes, wherever they are in the input,
    at this distance from a multiple of 3.
    """
    encoded = base64.b64encode(bytes(place) + octets).decode()
    end = (place + len(octets)) * 8 // 6
    return encoded[-(-place * 8 // 6) : end]
