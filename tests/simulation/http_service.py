"""The vendor's HTTP servers, reached by the real client over connections in memory.

An event loop of the simulation connects here in place of TCP. The product's client, its parser and
its pool of connections are the real ones.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from tests.simulation.night_at_work import scheduler
from tests.simulation.vendor import Request

_REASONS = {
    200: "OK", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 410: "Gone",
    429: "Too Many Requests", 500: "Internal Server Error",
}  # fmt: skip
_END = b"\r\n\r\n"
AGAIN_WITHIN = 0.02  # s after an answer that comes twice


class MemoryTransport(asyncio.Transport):
    """The client's end of a connection, and the vendor's server at the other end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any) -> None:
        super().__init__()
        self._loop, self._protocol = loop, protocol
        self._process = scheduler().me().process
        self._descriptor = scheduler().network.next_descriptor()
        self._sent = b""
        self._arrived: list[bytes] = []
        self._is_closing = self._has_ended = False
        self._requests = self._responses = 0
        scheduler().network.transports[self._descriptor] = self

    # -- the client's side
    # ---------------------------------------------------------------------------------------------
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return SimpleNamespace(
                fileno=lambda: self._descriptor, family=None, setsockopt=lambda *_: None
            )
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        self._sent += bytes(data)
        while _END in self._sent:
            head, _, rest = self._sent.partition(_END)
            line, *fields = head.decode().split("\r\n")
            headers = {
                name.lower(): value
                for name, _, value in (field.partition(": ") for field in fields)
            }
            size = int(headers.get("content-length", 0))
            if len(rest) < size:
                return
            self._sent = rest[size:]
            self._serve(line, headers, rest[:size])

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            scheduler().network.transports.pop(self._descriptor, None)
            scheduler().vendor.waiting.pop(self._descriptor, None)
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    @property
    def is_readable(self) -> bool:
        return bool(self._arrived) or self._has_ended

    # -- the vendor's side
    # ---------------------------------------------------------------------------------------------
    def _serve(self, line: str, headers: Mapping[str, str], body: bytes) -> None:
        lookup = SERVICES[headers["host"].partition(":")[0]]
        if body:
            keys = tuple((item["k"],) for item in json.loads(body))
        else:
            keys = (tuple(map(unquote, line.split(" ")[1].split("/")[2:])),)
        night = scheduler()
        request = Request(lookup, keys, self._process, night.now, headers.get("idempotency-key"))
        night.vendor.waiting[self._descriptor] = request
        self._requests += 1
        number, is_batch = self._requests, bool(body)
        night.vendor.request(
            request,
            lambda kind, value: self._reply(request, number, kind, value, is_batch=is_batch),
        )

    def _reply(
        self, request: Request, number: int, kind: str, value: Any, *, is_batch: bool
    ) -> None:
        """Deliver the answer to the request of this number on the connection, from a timer."""
        night = scheduler()
        vendor = night.vendor
        vendor.waiting.pop(self._descriptor, None)
        # otherwise the client has taken an extra response for this one
        is_heard = not self._is_closing and self._responses < number
        if kind == "dropped":
            self._end()
        elif kind == "throttled":
            # else the call was cancelled: by another one, or by the time limit of its row
            if is_heard and not (request.is_overtaken or self._protocol._is_retired):
                vendor.closed_until[request.process, request.lookup] = night.now + value
                vendor.throttled_at[request.process, request.lookup] = night.now
            self._arrive(_response(429, {"error": "slow down"}, f"Retry-After: {value}\r\n"))
        elif kind == "failed":
            self._arrive(_response(500, {"error": value}))
        elif is_batch:
            response = _response(200, self._items(request, value))
            self._answer(request, response, is_heard=is_heard)
        else:
            named = _with_name(request, value[0])
            response = _response(404 if named is None else 200, named or {"error": "no such key"})
            self._answer(request, response, is_heard=is_heard, is_miss=named is None)
            # without echo nothing tells whose answer it is, once the task that got it was killed
            # (docs/lookups.md)
            if (
                named is not None
                and request.lookup == "stock"
                and vendor.faults.strikes("answered twice")
            ):
                within = AGAIN_WITHIN * vendor.faults.draw("answered twice")
                night.after(within, lambda: self._arrive(response))

    def _answer(
        self, request: Request, response: bytes, *, is_heard: bool, is_miss: bool = False
    ) -> None:
        if scheduler().vendor.faults.strikes("answer cut short"):
            self._arrive(response[:-3])
            self._end()
            if is_heard and is_miss:  # its status has arrived, and tells all
                self._overtake_others(request)
            return
        if is_heard and not self._process.is_dead:
            for charge in request.charges:
                charge.arrived = not charge.is_useless
            self._overtake_others(request)
        self._arrive(response)

    def _overtake_others(self, request: Request) -> None:
        """Note that the client needs no other answer for the keys of this request."""
        for other in scheduler().vendor.waiting.values():
            same = (other.lookup, other.keys, other.process) == (
                request.lookup,
                request.keys,
                request.process,
            )
            other.is_overtaken |= same

    @staticmethod
    def _items(request: Request, answers: Sequence[Any]) -> list[Any]:
        """The answers of a batch, each with its key and its place; some may be missing, and their
        order another.
        """
        faults, items = scheduler().vendor.faults, []
        for place, (charge, answer) in enumerate(zip(request.charges, answers, strict=True)):
            items.append({"k": charge.key[0], "n": place, **(answer or {"none": "yes"})})
        if len(items) > 1 and faults.strikes("item left out of a batch"):
            del items[int(len(items) * faults.draw("item left out of a batch"))]
            for charge in request.charges:
                charge.is_useless = True
        if faults.strikes("batch in another order"):
            items.reverse()
        return items

    def _arrive(self, data: bytes) -> None:
        if not (
            self._is_closing or self._has_ended or self._process.is_dead or self._loop.is_closed()
        ):
            self._responses += 1
            self._arrived.append(data)
            self._loop.call_soon_threadsafe(self._deliver)

    def _end(self) -> None:
        if not (self._is_closing or self._process.is_dead or self._loop.is_closed()):
            self._has_ended = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._arrived and not self._is_closing:
            self._protocol.data_received(self._arrived.pop(0))
        if self._has_ended and not self._is_closing:
            self._protocol.eof_received()
            self.close()


# addresses, not names: the waits for a name are in a set, whose order is that of the memory
SERVICES = {"192.0.2.1": "price", "192.0.2.2": "order", "192.0.2.3": "stock", "192.0.2.4": "score"}


def _with_name(request: Request, value: Any) -> Any:
    """The answer as its service gives it: one names the key, one tells how much it bills."""
    if value is None:
        return None
    if request.lookup == "stock":
        return {**value, "c": value["v"].split(":")[1]}
    if request.lookup == "score":
        return {**value, "tokens": request.charges[0].tokens}
    return value


def _response(status: int, content: Any, headers: str = "") -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Poll:
    """select.poll for the client's look whether something arrived on an idle connection."""

    def __init__(self) -> None:
        self._descriptor = 0

    def register(self, descriptor: int, events: int) -> None:
        self._descriptor = descriptor

    def poll(self, timeout: float | None = None) -> list[int]:
        transport = scheduler().network.transports.get(self._descriptor)
        return [self._descriptor] if transport is None or transport.is_readable else []
