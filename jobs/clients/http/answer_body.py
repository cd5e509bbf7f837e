"""Reads an answer's body as JSON in the service's charset, and the start of an error's body."""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any

import aiohttp

from jobs.clients.http.decoding import decoded_start
from jobs.declare.answers.json_text import read_json

SHOWN = 500  # displayed characters of an error's body
READ = 8_192  # bytes read of an error's body
AT_MOST = 2.0  # s to wait for it: the status alone is enough
LONGEST_SECRET = 1_000  # characters; a cut body may end inside a secret
TAG = re.compile(r"<(?:style|script)[^<>]*>[^<]*|<[^<>]*>")
# the start of a number or of an escape
BEGUN = re.compile(r"[-.]?|[eE][-+]?|\\?u?[0-9a-fA-F]{0,4}")


class BrokenOff(ValueError):  # noqa: N818  # says what is wrong with it
    """The body ends inside its JSON."""


def loaded(body: bytes, charset: str | None = None, *, ambiguous: bool = False) -> Any:
    """Return the JSON of a body.

    Args:
        body: The bytes.
        charset: From Content-Type; None: JSON's rule decides.
        ambiguous: As in `read_json`.

    Raises:
        BrokenOff: The body is truncated.
        ValueError: The JSON is invalid, or has NaN or infinity (also as 1e999).
    """
    text = _text(body, charset)
    try:
        return read_json(text, ambiguous=ambiguous)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].rstrip()
        if (
            error.msg.startswith("Unterminated string")
            or BEGUN.fullmatch(rest)
            or _is_begun_literal(rest)
        ):
            raise BrokenOff(str(error)) from error
        raise


def _is_begun_literal(rest: str) -> bool:
    return any(literal.startswith(rest) for literal in ("true", "false", "null"))


def _text(body: bytes, charset: str | None) -> str:
    encoding: str
    if charset is None or charset.lower().replace("_", "-").startswith(
        ("utf-8", "utf8", "utf-16", "utf-32")
    ):
        encoding = json.detect_encoding(body)
    else:
        encoding = charset
    try:
        return body.decode(encoding, "surrogatepass" if encoding.startswith("utf") else "strict")
    except LookupError as error:
        raise ValueError(
            f"its Content-Type names the charset {charset!r}, which does not exist"
        ) from error
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" or error.end >= len(body):
            raise BrokenOff(str(error)) from error
        raise


def is_sized(response: aiohttp.ClientResponse) -> bool:
    """Return whether HTTP marks the body's end. If not, a broken connection looks like the end."""
    headers = response.headers
    sized = "Content-Length" in headers or "chunked" in headers.get("Transfer-Encoding", "").lower()
    return sized or response.status == 204


async def error_text(response: aiohttp.ClientResponse) -> str:
    """Return the start of an error's body without HTML tags; empty if none arrives in time."""
    body, content = bytearray(), response.content
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(AT_MOST):
            while len(body) < READ and not content.at_eof():
                body += await content.readany()
    start = decoded_start(bytes(body), response.headers.get("Content-Encoding", ""), READ)
    try:
        text = start.decode(response.charset or "utf-8", "replace")
    except LookupError:
        text = start.decode("utf-8", "replace")
    if max(len(start), len(body)) >= READ:
        text = text[: max(READ // 2, len(text) - LONGEST_SECRET)]
    return TAG.sub(" ", text) if "html" in response.content_type else text
