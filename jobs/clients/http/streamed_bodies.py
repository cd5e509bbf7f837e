"""Bodies that do not fit in memory: lines of JSON to send, and responses read into a file."""

import gzip
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import aiohttp

from jobs.clients.client import CallFailed, Unclear
from jobs.clients.http.answer_body import is_sized
from jobs.declare.answers.json_text import read_json
from jobs.declare.values.templates import as_json, dumped

PIECE = 1 << 16  # bytes read at once


class BodyFile(NamedTuple):
    """A body in a file, which is at its start.

    Attributes:
        file: The bytes as they came.
        is_sized: HTTP, or gzip, marks its end.
        is_packed: It is in gzip.
    """

    file: IO[bytes]
    is_sized: bool
    is_packed: bool


def spooled_lines(lines: Iterable[Any]) -> IO[bytes]:
    """Return a file with a line of JSON per value, at its start. Raises ValueError."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # aiohttp closes it
    try:
        for value in lines:
            file.write(dumped(as_json(value)) + b"\n")
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def multipart(file: IO[bytes], *, field: str, name: str, fields: Mapping[str, str]) -> Any:
    """Return the body of a form with a file."""
    form = aiohttp.FormData()
    for key, value in fields.items():
        form.add_field(key, value)
    form.add_field(field, file, filename=name, content_type="application/jsonl")
    return form


async def read_to_file(response: aiohttp.ClientResponse) -> BodyFile:
    """Return the body; an interrupted body raises aiohttp's error if HTTP marks its end."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    is_packed = coding in ("gzip", "x-gzip")  # as stores give what was uploaded so
    if coding not in ("", "identity") and not is_packed:
        raise Unclear(f"the answer is coded as {coding[:40]}, and was requested without coding")
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    try:
        async for piece in response.content.iter_chunked(PIECE):
            file.write(piece)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return BodyFile(file, is_packed or is_sized(response), is_packed)


def json_lines(body: BodyFile) -> Iterator[Any]:
    """Yield the JSON of each line, without empty lines, and without a last line that the service
    itself cut.

    Raises:
        CallFailed: The connection cut the last line.
        ValueError: Any other line is not JSON.
    """
    with body.file as packed:
        file = gzip.GzipFile(fileobj=packed) if body.is_packed else packed
        for line in _lines(file):
            if not line.strip():
                continue
            try:
                value = read_json(line.decode("utf-8-sig"))
            except ValueError as error:
                if line.endswith(b"\n"):
                    raise
                if not body.is_sized:
                    raise _broken_off(file) from error
                return
            yield value


def _lines(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Yield the lines of a file. Raises CallFailed if its gzip has no end."""
    try:
        yield from file
    except EOFError as error:
        raise _broken_off(file) from error


def _broken_off(file: IO[bytes] | gzip.GzipFile) -> CallFailed:
    return CallFailed(f"the answer broke off after {file.tell():,} bytes", passing=True)
