"""A raw-socket HTTP service that breaks the rule of one response for each request, in every way
that we know of.
"""

import asyncio
import json
import random
import re

from tests.support.loop_thread import LoopThread

LATENCY = 0.004  # s, at most, but for slow keys


def response(content, *, status="200 OK", headers=()):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        *headers,
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


def in_chunks(content):
    """The same in chunks, with a trailer."""
    body = json.dumps(content).encode()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    return head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\nX-Sum: 1\r\n\r\n"


class DisorderlyService:
    """Answers the requests of a connection one after another, each by `answer(path, body)`, an
    object for JSON.

    fault(requests so far on this connection): what it does wrong at this request, one of FAULTS, or
    None. The paths of requests that it heard are in `log`, their heads in `heads`, what it did in
    `done`. slow(path): s before an answer.
    """

    def __init__(self, answer, *, fault=lambda number: None, slow=lambda path: 0.0, seed=0):
        self.answer, self.fault, self.slow = answer, fault, slow
        self.log, self.heads, self.done = [], [], []
        self._random = random.Random(seed)
        self._loop = LoopThread()

    def __enter__(self):
        self._server = self._loop.start().run(self._start())
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def _start(self):
        return await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1000)

    def __exit__(self, *_):
        self._loop.stop(self._server)

    def a_moment(self):
        return self._random.random() ** 3 * 0.015

    async def _connected(self, reader, writer):
        number, later, ended = 0, set(), False
        try:
            if self.fault(0) == GREETING:
                self.done.append(GREETING)
                writer.write(response(self.answer("/v/0", b"")))
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                number += 1
                path = head.split(b" ", 2)[1].decode()
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                fault = self.fault(number)
                left = int(length[1]) if length else 0
                if fault not in ("early", "early, body unread") or not left:
                    body, left = await reader.readexactly(left), 0
                else:  # it needs a body to know the key: by a header of the test's
                    body = (
                        re.search(rb"(?i)x-body: *(.*)\r", head)[1]
                        if b"x-body" in head.lower()
                        else b""
                    )
                self.log.append(path)
                self.heads.append(head)
                await asyncio.sleep(self.slow(path) or self._random.random() * LATENCY)
                await self._respond(fault, self.answer(path, body), reader, writer, later)
                if left and fault == "early":
                    await reader.readexactly(left)
                elif left:
                    await reader.readexactly(left)
                    writer.write(response({"error": "no request"}, status="400 Bad Request"))
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except asyncio.CancelledError:
            ended = True
        finally:
            for task in later:
                task.cancel()
            writer.transport.abort() if ended else writer.close()

    async def _respond(self, fault, content, reader, writer, later):
        right = response(content)
        if fault is not None:
            self.done.append(fault)
        if fault == "two at once":
            writer.write(right + right)
        elif fault == "a second one":
            writer.write(right)
            task = asyncio.ensure_future(self._after(self.a_moment(), writer, right))
            later.add(task)
        elif fault == "a second one in pieces":
            cut = self._random.randrange(1, len(right) - 1)
            writer.write(right + right[:cut])
            later.add(asyncio.ensure_future(self._after(self.a_moment(), writer, right[cut:])))
        elif fault == "408 when idle":
            writer.write(right)
            await asyncio.sleep(self.a_moment())
            if not reader._buffer:
                writer.write(
                    response(b"", status="408 Request Timeout", headers=("Connection: close",))
                )
                writer.close()
        elif fault == "more than Content-Length":
            writer.write(right + b"more" * self._random.randrange(1, 20))
        elif fault == "more than Content-Length, later":
            writer.write(right)
            later.add(
                asyncio.ensure_future(self._after(self.a_moment(), writer, b"more than was said"))
            )
        elif fault == "an empty line":
            writer.write(right + b"\r\n")
        elif fault == "100 before":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" + right)
        elif fault == "100 after":
            writer.write(right)
            later.add(
                asyncio.ensure_future(
                    self._after(self.a_moment(), writer, b"HTTP/1.1 100 Continue\r\n\r\n")
                )
            )
        elif fault == "trailers":
            writer.write(in_chunks(content))
        else:
            writer.write(right)
        await writer.drain()

    async def _after(self, seconds, writer, data):
        await asyncio.sleep(seconds)
        if not writer.is_closing():
            writer.write(data)


HARMLESS = ("an empty line", "100 before", "trailers", "early")
DROPPED = ("408 when idle",)  # the connection goes out of use, and no answer is in doubt
SHIFTING = (
    "two at once", "a second one", "a second one in pieces", "more than Content-Length",
    "more than Content-Length, later", "100 after", "early, body unread",
)  # fmt: skip
# an answer before the first request: refused, or the first of a shifted connection
GREETING = "greeting"
FAULTS = (*HARMLESS, *DROPPED, *SHIFTING)
