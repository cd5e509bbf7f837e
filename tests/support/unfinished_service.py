"""An HTTP service whose answers end in every way in which an answer can fail to end."""

import asyncio
import gzip
import itertools
import json
import random
import socket
import struct
import zlib

from tests.support.loop_thread import LoopThread

DRIP = 0.02  # s between two pieces of an answer that never ends
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def in_chunks(body, size=7):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


FRAMINGS = {
    "length": lambda body: (HEAD + b"Content-Length: %d\r\n\r\n" % len(body), body),
    "chunks": lambda body: (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", in_chunks(body)),
    "trailers": lambda body: (
        HEAD + b"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n",
        in_chunks(body).removesuffix(b"\r\n") + b"X: 1\r\n\r\n",
    ),
    "close": lambda body: (HEAD + b"Connection: close\r\n\r\n", body),
    "gzip": lambda body: (
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(body)),
        gzip.compress(body)
    ),
    "deflated chunks": lambda body: (
        HEAD + b"Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n",
        in_chunks(zlib.compress(body))
    ),
    "interim": lambda body: (
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body), body
    ),
    "old": lambda body: (HEAD.replace(b"1.1", b"1.0") + b"Content-Length: %d\r\n\r\n" % len(body), body),
}  # fmt: skip
CUTS = ("nothing", "in the head", "after the head", "in the body", "before the last byte", "whole")
FINISHES = (
    "silence", "close", "reset", "half close", "drip of the rest", "drip for ever",
    "empty lines for ever", "interim for ever", "garbage", "a chunk of no size", "a second answer",
    "a second answer, later", "a flood",
)  # fmt: skip
ENDINGS = tuple(itertools.product(FRAMINGS, CUTS, FINISHES))


class UnfinishedService:
    """Answers `{"first_x": KEY}` to `/v/KEY`, in the way that `ending(key)` names; None: whole, and
    kept alive.

    Args:
        ending: One of ENDINGS for a key.
        tls: The context of a TLS server; its connections end without a farewell.
    """

    def __init__(self, ending=lambda key: None, *, tls=None, seed=0):
        self.ending, self._tls, self._random = ending, tls, random.Random(seed)
        self.asked = []  # keys
        self._loop = LoopThread()

    def __enter__(self):
        self._server = self._loop.start().run(self._start())
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def _start(self):
        return await asyncio.start_server(
            self._connected, "127.0.0.1", 0, backlog=1000, ssl=self._tls
        )

    def __exit__(self, *_):
        self._loop.stop(self._server)

    async def _connected(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                key = int(head.split(b" ", 2)[1].rsplit(b"/", 1)[1])
                self.asked.append(key)
                body = json.dumps({"first_x": key, "padding": "x" * 40}).encode()
                if (ending := self.ending(key)) is None:
                    writer.write(b"".join(FRAMINGS["length"](body)))
                else:
                    await self._end_as(ending, body, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()

    async def _end_as(self, ending, body, reader, writer):
        framing, cut, finish = ending
        head, rest = FRAMINGS[framing](body)
        whole = head + rest
        sent = {
            "nothing": 0,
            "in the head": self._random.randrange(1, len(head)),
            "after the head": len(head),
            "in the body": len(head) + self._random.randrange(1, len(rest)),
            "before the last byte": len(whole) - 1,
            "whole": len(whole),
        }[cut]
        at = self._random.randrange(sent + 1)  # in two packets, as often as not
        writer.write(whole[:at])
        await asyncio.sleep(0.001)
        writer.write(whole[at:sent])
        await writer.drain()
        await self._finish(finish, whole, sent, reader, writer)

    async def _finish(self, finish, whole, sent, reader, writer):
        match finish:
            case "silence":
                await reader.read()
            case "close":
                raise ConnectionResetError
            case "reset":
                if self._tls is None:
                    writer.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                raise ConnectionResetError
            case "half close":
                if writer.can_write_eof():
                    writer.write_eof()
                await reader.read()
            case "drip of the rest":
                for byte in whole[sent:]:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(DRIP / 10)
            case "drip for ever":
                await self._repeat(writer, b"x")
            case "empty lines for ever":
                await self._repeat(writer, b"\r\n")
            case "interim for ever":
                await self._repeat(writer, b"HTTP/1.1 102 Processing\r\n\r\n")
            case "garbage":
                writer.write(self._random.randbytes(200))
                await reader.read()
            case "a chunk of no size":
                writer.write(b"\r\nzz\r\n")
                await reader.read()
            case "a second answer":
                writer.write(whole[sent:] + whole)
            case "a second answer, later":
                await asyncio.sleep(0.01)
                writer.write(whole[sent:] + whole)
            case "a flood":
                await self._repeat(writer, b"x" * 65_536, 0)

    async def _repeat(self, writer, data, pause=DRIP):
        while True:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(pause)
