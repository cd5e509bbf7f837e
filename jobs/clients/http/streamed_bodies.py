"""Bodies that do not fit in memory: lines of JSON to send, and responses read into a file."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import aiohttp

from jobs.clients.client import Unclear
from jobs.clients.http.answer_body import loaded
from jobs.clients.http.batch_items import dumped
from jobs.declare.answers.json_text import read_json
from jobs.declare.values.templates import as_json

PIECE = 1 << 16  # bytes read at once


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


async def read_to_file(response: aiohttp.ClientResponse) -> IO[bytes]:
    """Return the body as a file at its start; an interrupted body raises aiohttp's error."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise Unclear(f"the answer is coded as {coding[:40]}, and was requested without coding")
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    try:
        async for piece in response.content.iter_chunked(PIECE):
            file.write(piece)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


async def read_if_any(response: aiohttp.ClientResponse) -> Any:
    """Return the JSON of a body; None for an empty body."""
    body = await response.read()
    return loaded(body, response.charset) if body.strip() else None


def json_lines(file: IO[bytes]) -> Iterator[Any]:
    """Yield the JSON of each line; empty lines, and a last line that was cut, are left out.

    Raises ValueError for any other line.
    """
    with file:
        for line in file:
            if not line.strip():
                continue
            try:
                value = read_json(line.decode())
            except ValueError:
                if not line.endswith(b"\n"):
                    return
                raise
            yield value
