"""Bodies that do not fit in memory: lines of JSON to send, and responses read into a file."""

import gzip
import io
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import aiohttp
import pyarrow as pa

from jobs.clients.client import CallFailed, Unclear
from jobs.clients.http.answer_body import is_sized
from jobs.clients.http.decoding import open_decoder, read_coding, refusing
from jobs.declare.answers.json_text import read_json
from jobs.declare.values.templates import as_json, dumped

PIECE = 1 << 16  # bytes read at once
# Content-Encoding, which a store repeats from the upload -> name in Arrow; None: Arrow lacks it
PACKINGS = {"gzip": "gzip", "x-gzip": "gzip", "br": "brotli", "zstd": "zstd", "deflate": None}

Unpacked = IO[bytes] | gzip.GzipFile | io.BufferedReader


class BodyFile(NamedTuple):
    """A body in a file, which is at its start.

    Attributes:
        file: The bytes as they came, but inflated if they were deflated.
        is_sized: HTTP, or its packing, marks its end.
        packing: Arrow's word for its packing; None if it is plain or unpacked.
    """

    file: IO[bytes]
    is_sized: bool
    packing: str | None


@contextmanager
def _written() -> Iterator[IO[bytes]]:
    """Yield a new file, which is at its start after the body. An error of the body closes it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # its reader closes it
    try:
        yield file
    except BaseException:
        file.close()
        raise
    file.seek(0)


def spooled_lines(lines: Iterable[Any]) -> IO[bytes]:
    """Return a file with a line of JSON per value, at its start. Raises ValueError."""
    with _written() as file:
        for value in lines:
            file.write(dumped(as_json(value)) + b"\n")
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
    coding = read_coding(response.headers.get("Content-Encoding", ""))
    if coding and coding not in PACKINGS:
        raise Unclear(
            f"the answer has the Content-Encoding {coding[:40]!r}, and was requested without any; "
            f"only {', '.join(PACKINGS)} are read"
        )
    packing, inflated = PACKINGS.get(coding), None
    with _written() as file, refusing(coding):
        async for piece in response.content.iter_chunked(PIECE):
            if coding == "deflate":
                inflated = inflated or open_decoder(coding, piece)
            file.write(piece if inflated is None else inflated.decompress(piece))
    has_end = packing is not None or is_sized(response)
    return BodyFile(file, has_end if inflated is None else inflated.eof, packing)


def json_lines(body: BodyFile) -> Iterator[Any]:
    """Yield the JSON of each line, without empty lines, and without a last line that the service
    itself cut.

    Raises:
        CallFailed: The connection cut the last line.
        ValueError: Any other line is not JSON.
    """
    with body.file as packed:
        file = _unpacked(packed, body.packing)
        for line in _lines(file):
            if not line.strip():
                continue
            try:
                value = read_json(line.decode("utf-8-sig"))
            except ValueError as error:
                if line.endswith(b"\n"):
                    raise
                if not body.is_sized:
                    raise _broken_off(file.tell(), error) from error
                return
            yield value


def _unpacked(file: IO[bytes], packing: str | None) -> Unpacked:
    if packing is None:
        return file
    if packing == "gzip":  # Arrow reads none that is padded
        return gzip.GzipFile(fileobj=file)
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), packing))


def _lines(file: Unpacked) -> Iterator[bytes]:
    """Yield the lines of a file. Raises CallFailed if its packing has no end, or is damaged."""
    read = 0  # Arrow's streams cannot tell
    try:
        for line in file:
            read += len(line)
            yield line
    except (OSError, EOFError, zlib.error) as error:
        raise _broken_off(read, error) from error


def _broken_off(read: int, error: Exception) -> CallFailed:
    return CallFailed(f"the answer broke off after {read:,} bytes: {error}", passing=True)
