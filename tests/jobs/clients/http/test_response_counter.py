"""Where responses end in the bytes of a connection, however the bytes are cut."""

import http.client
import io
import random

import pytest

from jobs.clients.http.response_counter import ResponseCounter
from tests.support.unfinished_service import FRAMINGS, HEAD

KEPT_ALIVE = tuple(name for name in FRAMINGS if name != "close")
BODYLESS = (
    b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
    b"HTTP/1.1 404 Not Found\nContent-Length: 2\n\nno",
    b"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n",
)  # fmt: skip


class Sized(io.BytesIO):
    """A socket's file for http.client."""

    def makefile(self, *_):
        return self

    def close(self):
        """Stay open for the next response."""


def read_by_http_client(data):
    """The place after the first response, by the standard library's reader."""
    file = Sized(data)
    response = http.client.HTTPResponse(file)
    response.begin()
    response.read()
    if response.chunked and data[file.tell() - 2 : file.tell()] != b"\r\n":
        file.readline()
    return file.tell()


def drawn(draw):
    body = draw.randbytes(draw.randrange(1, 60)).replace(b"\0", b"\r")
    if draw.random() < 0.2:
        return draw.choice(BODYLESS)
    return b"".join(FRAMINGS[draw.choice(KEPT_ALIVE)](body))


def ends_in(data, draw):
    """Where the counter finds the ends of the responses, in pieces of any size."""
    counter, ends, at, responses = ResponseCounter(), [], 0, 0
    while at < len(data):
        piece = data[at : at + draw.choice((1, 2, 3, 7, 50, 1000))]
        while piece:
            read = counter.read(piece)
            assert 0 < read <= len(piece)
            at, piece = at + read, piece[read:]
            if counter.is_between and counter.responses > responses:
                responses += 1
                ends.append(at)
    assert not counter.is_out_of_step
    assert counter.responses == responses
    return ends


@pytest.mark.parametrize(
    "seeds", [range(300), pytest.param(range(300, 20_000), marks=pytest.mark.proof)]
)
def test_responses_end_where_another_reader_finds_their_ends(seeds):
    for seed in seeds:
        draw = random.Random(seed)
        data, ends = b"", []
        for _ in range(draw.randrange(1, 5)):
            response = drawn(draw)
            end = read_by_http_client(response)
            assert end == len(response), (seed, response)
            data += response
            ends.append(len(data))
        assert ends_in(data, draw) == ends, (seed, data)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"more of what was said",
        b"{}\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTPS\r\n\r\n",
    ],
)
def test_bytes_that_do_not_begin_a_response_are_out_of_step(data):
    for size in (1, 100):
        counter = ResponseCounter()
        for at in range(0, len(data), size):
            counter.read(data[at : at + size])
        assert counter.is_out_of_step
        assert counter.responses == 0


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n", HEAD + b"Content-Length: many\r\n\r\n",
        HEAD + b"\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"x" * 3_000_000,
    ],
)  # fmt: skip
def test_a_response_of_unknown_length_never_ends_and_is_not_kept_in_memory(data):
    counter = ResponseCounter()
    counter.read(data)
    counter.read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert not counter.is_between
    assert counter.responses <= 1
    assert len(counter._held) == 0
