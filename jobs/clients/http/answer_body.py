"""Reads the body of an answer: its bytes, its JSON, and the start of an error's body."""

import asyncio
import functools
import json
import re
from contextlib import suppress
from typing import Any

import aiohttp

from jobs.clients.client import CallFailed, Unclear
from jobs.clients.http.decoding import TooLong, decoded, decoded_start, read_coding
from jobs.declare.answers.json_text import read_json

CODING_ADDS = 1_024  # highest number of bytes by which a coding lengthens a body
SHOWN = 500  # displayed characters of an error's body
READ_BYTES = 8_192  # of an error's body
ERROR_BODY_TIMEOUT = 2.0  # s; the status alone is enough
TAG = re.compile(r"<(?:style|script)[^<>]*>[^<]*|<[^<>]*>", re.IGNORECASE)
BEGUN_ESCAPE = re.compile(r"\\?u?[0-9a-fA-F]{0,4}")
BEGUN_NUMBER = re.compile(r"-?\d+(?:\.|(?:\.\d+)?[eE][-+]?)")
OF_NUMBERS = "+-.0123456789eE"
# labels that servers put on UTF-8; a text of theirs, beyond ASCII, is hardly ever valid UTF-8
WESTERN = {"iso8859-1", "latin1", "latin-1", "windows-1252", "cp1252", "us-ascii", "ascii"}
# reasons of Python's codecs for an incomplete last character
INCOMPLETE = {"unexpected end of data", "truncated data", "incomplete multibyte sequence"}


class BrokenOff(ValueError):  # noqa: N818  # says what is wrong with it
    """The body ends inside its JSON."""


class AnswerTooLarge(Unclear):
    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest:,} bytes (max_answer_bytes)")


async def read_body(
    response: aiohttp.ClientResponse, received: int, most: int
) -> tuple[bytes, bool]:
    """Return the decoded body, and whether it is known to be whole.

    A body above the size limit is dropped with its connection.

    Args:
        response: The response.
        received: Bytes of this answer's earlier pages.
        most: Bytes of all its pages.

    Raises:
        CallFailed: The body breaks off inside its coding, or is too large.
        NotDecodable: The body is not in its coding.
    """
    coding = read_coding(response.headers.get("Content-Encoding", ""))
    largest, content = most - received, response.content
    at_most = largest + (CODING_ADDS if coding else 0)
    arrived = content.read_nowait()  # data that came with the headers, often the whole answer
    if not content.at_eof():
        arrived = await read_on(content, arrived, at_most)
    if len(arrived) > at_most:
        raise AnswerTooLarge(most)
    if not arrived or not coding:  # no coding marks the end of this body
        return arrived, is_sized(response)
    try:
        body, has_end = decoded(arrived, coding, largest)
    except TooLong:
        raise AnswerTooLarge(most) from None
    if not has_end:
        where = f"inside its {coding} after {len(arrived):,} bytes"
        raise CallFailed(f"the answer broke off {where}", passing=True)
    return body, True


async def read_on(content: aiohttp.StreamReader, begin: bytes, at_most: int) -> bytes:
    """Return `begin` and the data after it, up to the end or just over `at_most` bytes."""
    arrived = bytearray(begin)
    while len(arrived) <= at_most and not content.at_eof():
        arrived += await content.readany()
    return bytes(arrived)


def is_sized(response: aiohttp.ClientResponse) -> bool:
    """Return whether HTTP marks the body's end. If not, a broken connection looks like the end."""
    coding = response.headers.get("Transfer-Encoding", "").lower()
    # a 204 has no body
    return "Content-Length" in response.headers or "chunked" in coding or response.status == 204


def loaded(body: bytes, charset: str | None = None, *, ambiguous: bool = False) -> Any:
    """Return the JSON of a body.

    Args:
        body: The bytes.
        charset: From Content-Type; without it, or if it does not exist, the first bytes tell, as in
            RFC 4627. UTF-8 under a Western label is UTF-8.
        ambiguous: Whether an object may name a member twice, as in `read_json`.

    Raises:
        BrokenOff: The body is truncated.
        ValueError: The JSON is invalid, or has NaN or infinity (also as 1e999).
    """
    text = _text(body, charset)
    try:
        return read_json(text, ambiguous=ambiguous)
    except json.JSONDecodeError as error:
        if _is_broken_off(text, error):
            raise BrokenOff(str(error)) from error
        raise


def _is_broken_off(text: str, error: json.JSONDecodeError) -> bool:
    """Return whether the text seems to end inside its JSON, and not to be wrong at the error."""
    rest = text[error.pos :].rstrip()
    if error.msg.startswith("Unterminated string"):
        return True
    if error.msg.startswith("Invalid \\"):
        return BEGUN_ESCAPE.fullmatch(rest) is not None
    if error.msg == "Expecting value":
        return any(value.startswith(rest) for value in ("-", "true", "false", "null"))
    before = text[: error.pos]
    number = before[len(before.rstrip(OF_NUMBERS)) :]
    return not rest or BEGUN_NUMBER.fullmatch(number + rest) is not None


def _text(body: bytes, charset: str | None) -> str:
    encoding = charset if charset and not _is_utf(charset) else json.detect_encoding(body)
    if encoding.lower().replace("_", "-").replace("iso-", "iso") in WESTERN:
        with suppress(UnicodeDecodeError):
            return body.decode("utf-8-sig")
    try:
        return body.decode(encoding, "surrogatepass" if encoding.startswith("utf") else "strict")
    except UnicodeDecodeError as error:
        if error.reason in INCOMPLETE:
            raise BrokenOff(str(error)) from error
        raise
    except (LookupError, ValueError):  # an unknown codec, or Python's "undefined"
        return _text(body, None)


@functools.lru_cache
def _is_utf(charset: str) -> bool:
    """Return whether the bytes tell which UTF it is: servers name utf-16 without its byte order."""
    name = charset.lower().replace("_", "-")
    return name.startswith(("utf-8", "utf8", "utf-16", "utf-32"))


async def error_text(response: aiohttp.ClientResponse, most: int = READ_BYTES) -> str:
    """Return the first `most` bytes of an error's body without HTML tags; empty if none arrives in
    time.

    A cut text ends with "...", by which secrets that are cut too are found (without_secrets).
    """
    body, content = bytearray(), response.content
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(ERROR_BODY_TIMEOUT):
            while len(body) < most and not content.at_eof():
                body += await content.readany()
    coding = read_coding(response.headers.get("Content-Encoding", ""))
    start = decoded_start(bytes(body), coding, most + 1)
    is_cut = len(start) > most or not content.at_eof()
    start = start[:most]
    try:
        text = start.decode(response.charset or "utf-8", "replace")
    except (LookupError, ValueError):  # an unknown codec, or Python's "undefined"
        text = start.decode("utf-8", "replace")
    if "html" in response.content_type:
        text = TAG.sub(" ", text)
    return text.rstrip("\ufffd") + "..." if text and is_cut else text
