"""The content coding of a body: gzip or deflate, undone once the body has arrived whole."""

import zlib
from typing import Any

GZIP, DEFLATE, RAW_DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
CODINGS = "gzip, deflate"  # of Accept-Encoding


class NotDecodable(ValueError):  # noqa: N818  # says what is wrong with it
    """The body is not in the coding that its Content-Encoding names, or no coding that is read."""


class TooLong(Exception):  # noqa: N818  # says what is wrong with it
    """The decoded body is longer than allowed."""


def is_coded(coding: str) -> bool:
    """Whether a Content-Encoding of this value changes the body."""
    return coding.strip().lower() not in ("", "identity")


def decoded(body: bytes, coding: str, largest: int) -> tuple[bytes, bool]:
    """The body without its content coding, and whether the coding's own end is in it.

    Args:
        body: As it arrived.
        coding: The value of Content-Encoding; empty without one.
        largest: Bytes of the decoded body that are allowed.

    Raises:
        NotDecodable: The body is not in this coding.
        TooLong: The decoded body is longer.
    """
    found, rest = bytearray(), body
    try:
        while rest:
            decoder = _decoder(coding, body)
            if decoder is None:
                return body, True
            found += decoder.decompress(rest, largest + 1 - len(found))
            if len(found) > largest:
                raise TooLong
            if not decoder.eof:
                return bytes(found), False
            rest = decoder.unused_data.lstrip(b"\0")  # another member of gzip, or padding
    except zlib.error as error:
        raise NotDecodable(f"it is not in its Content-Encoding, {coding[:40]!r}: {error}") from error
    return bytes(found), True


def decoded_start(body: bytes, coding: str, most: int) -> bytes:
    """At most so many bytes of the decoded body; empty if it is not in this coding."""
    try:
        decoder = _decoder(coding, body)
        return body if decoder is None else decoder.decompress(body, most)
    except (NotDecodable, zlib.error):
        return b""


def _decoder(coding: str, body: bytes) -> Any:
    if not is_coded(coding):
        return None
    name = coding.strip().lower()
    if name in ("gzip", "x-gzip"):
        return zlib.decompressobj(GZIP)
    if name == "deflate":
        return zlib.decompressobj(DEFLATE if body[:1] and body[0] & 0xF == zlib.DEFLATED else RAW_DEFLATE)
    raise NotDecodable(f"its Content-Encoding is {coding[:40]!r}; only {CODINGS} are read")
