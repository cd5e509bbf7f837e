"""Secrets on an executor: read for headers, and masked in texts in each of their spellings."""

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

from jobs.declare.values.env import Env
from jobs.errors import DeclarationError

SHORTEST_IN_WORDS = 4  # characters; a shorter secret is masked as a word only
SHORTEST_ENCODED = 6  # bytes of a secret whose base64 and hexadecimal digits are masked too
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
        for written in _spellings(secret):
            if len(secret) < SHORTEST_IN_WORDS:
                text = re.sub(rf"(?<!\w){re.escape(written)}(?!\w)", "***", text)
                continue
            text = text.replace(written, "***")
            if "..." in text:  # a long value may have been cut in the middle of a secret
                for length in range(len(written) - 1, SHOWN_OF_A_SECRET, -1):
                    text = text.replace(f"{written[:length]}...", "***...")
    return text


def _spellings(secret: str) -> list[str]:
    """Return the forms in which an error may repeat a secret, longest first: they overlap."""
    octets = secret.encode()
    texts = {
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
        quote(secret, safe=""),
        quote_plus(secret),
    }
    if len(octets) >= SHORTEST_ENCODED:  # shorter digits would mask other texts
        texts |= {octets.hex(), octets.hex().upper()}
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
