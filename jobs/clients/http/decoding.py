"""Undoes the content coding of a body, gzip or deflate, once the whole body has arrived."""

import zlib
from typing import Any

GZIP, DEFLATE, RAW_DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
CODINGS = "gzip, deflate"  # for Accept-Encoding


class NotDecodable(ValueError):  # noqa: N818  # says what is wrong with it
    """The body is not in its Content-Encoding, or that coding is not supported."""


class TooLong(Exception):  # noqa: N818  # says what is wrong with it
    """The decoded body is longer than allowed."""


def is_coded(coding: str) -> bool:
    """Return whether a Content-Encoding of this value changes the body."""
    return coding.strip().lower() not in ("", "identity")


def decoded(body: bytes, coding: str, largest: int) -> tuple[bytes, bool]:
    """Return the decoded body, and whether it has the coding's end marker.

    Args:
        body: The body as it arrived.
        coding: The value of Content-Encoding; empty without the header.
        largest: Highest allowed number of bytes of the decoded body.

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
        raise NotDecodable(
            f"it is not in its Content-Encoding, {coding[:40]!r}: {error}"
        ) from error
    return bytes(found), True


def decoded_start(body: bytes, coding: str, most: int) -> bytes:
    """Return the first `most` bytes of the decoded body; empty if it is not in this coding."""
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
        return zlib.decompressobj(
            DEFLATE if body[:1] and body[0] & 0xF == zlib.DEFLATED else RAW_DEFLATE
        )
    raise NotDecodable(f"its Content-Encoding is {coding[:40]!r}; only {CODINGS} are read")
