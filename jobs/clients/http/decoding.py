"""Undoes the content coding of a body, gzip or deflate, once the whole body has arrived."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

GZIP, DEFLATE, RAW_DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
CODINGS = "gzip, deflate"  # for Accept-Encoding
# the registered codings; other words, such as utf-8, none or aws-chunked, change no body
REGISTERED = {
    "aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip",
    "x-compress", "x-gzip", "zstd",
}  # fmt: skip


class NotDecodable(ValueError):  # noqa: N818  # says what is wrong with it
    """The body is not in its Content-Encoding, or that coding is not supported."""


class TooLong(Exception):  # noqa: N818  # says what is wrong with it
    """The decoded body is longer than allowed."""


def read_coding(header: str) -> str:
    """Return the codings in the value of Content-Encoding that change a body, in lower case."""
    named = (word.strip().lower() for word in header.split(","))
    return ", ".join(word for word in named if word in REGISTERED)


def decoded(body: bytes, coding: str, largest: int) -> tuple[bytes, bool]:
    """Return the decoded body, and whether it has the coding's end marker.

    Args:
        body: The body as it arrived.
        coding: From `read_coding`.
        largest: Highest allowed number of bytes of the decoded body.

    Raises:
        NotDecodable: The body is not in this coding.
        TooLong: The decoded body is longer.
    """
    found, rest = bytearray(), body
    with refusing(coding):
        while rest:
            decoder = open_decoder(coding, body)
            if decoder is None:
                return body, True
            found += decoder.decompress(rest, largest + 1 - len(found))
            if len(found) > largest:
                raise TooLong
            if not decoder.eof:
                return bytes(found), False
            rest = decoder.unused_data.lstrip(b"\0")  # padding
            if not rest.startswith(b"\x1f\x8b"):  # no other member; other clients ignore it too
                break
    return bytes(found), True


@contextmanager
def refusing(coding: str) -> Iterator[None]:
    """Raise NotDecodable for bytes that are not in this coding."""
    try:
        yield
    except zlib.error as error:
        raise NotDecodable(f"it is not in its Content-Encoding, {coding!r}: {error}") from error


def decoded_start(body: bytes, coding: str, most: int) -> bytes:
    """Return the first `most` bytes of the decoded body; empty if it is not in this coding."""
    try:
        decoder = open_decoder(coding, body)
        return body if decoder is None else decoder.decompress(body, most)
    except (NotDecodable, zlib.error):
        return b""


def open_decoder(coding: str, body: bytes) -> Any:
    """Return the decoder of a body that begins so; None without a coding. Raises NotDecodable."""
    if not coding:
        return None
    if coding in ("gzip", "x-gzip"):
        return zlib.decompressobj(GZIP)
    if coding == "deflate":
        return zlib.decompressobj(
            DEFLATE if body[:1] and body[0] & 0xF == zlib.DEFLATED else RAW_DEFLATE
        )
    raise NotDecodable(f"its Content-Encoding is {coding[:40]!r}; only {CODINGS} are read")
