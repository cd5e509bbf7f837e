"""The vendor that is asked, with its invoice: it bills each request that it took, whatever becomes of the answer."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.clients.client import CallFailed, Throttled
from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from jobs.declare.lookup import Key, Lookup

UP, DOWN = 0.05, 0.3  # s: to the vendor at most, and back on average
HANGS = 300.0  # s, longer than any time limit
LATE = 15.0  # s
MISSES = 10  # each so many keys is unknown to the vendor


@dataclass
class Charge:
    """One line of the invoice."""

    lookup: str
    key: "Key"
    process: Process
    sent_at: float
    charged_at: float
    version: int
    due_at: float = 0.0  # the answer's arrival; infinite for an answer that never comes
    is_answered: bool = False  # the process lived when the answer came
    is_void: bool = False  # the key was forgotten or refreshed since: a further charge is right


@dataclass
class Request:
    """What a vendor hears."""

    lookup: str
    key: "Key"
    process: Process
    sent_at: float
    idempotency_key: str | None = None


@dataclass
class Vendor:
    """Answers by lookup and key; a refresh gives some keys a newer version.

    Attributes:
        invoice: What it bills, in order.
        received: All requests by process and lookup, those that it refused too.
        on_request: Told of each request before the vendor does anything.
    """

    faults: Faults
    on_request: Callable[[Request], None] = lambda _: None
    on_charge: Callable[[Charge], None] = lambda _: None
    invoice: list[Charge] = field(default_factory=list)
    received: Counter[tuple[Process, str]] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    most_in_flight: Counter[str] = field(default_factory=Counter)
    versions: Counter[tuple[str, "Key"]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._draws = scheduler().stream("vendor")

    @staticmethod
    def answer(lookup: str, key: "Key", version: int) -> dict[str, Any] | None:
        """What is true for a key; None where the vendor knows nothing of it."""
        if hashlib.md5(f"{lookup}{key}".encode()).digest()[0] % MISSES == 0:
            return None
        return {"v": f"{lookup}:{'|'.join(map(str, key))}:{version}"}

    def charges(self, lookup: str, key: "Key") -> list[Charge]:
        """The charges of a key that a further one would repeat."""
        return [one for one in self.invoice if one.lookup == lookup and one.key == key and not one.is_void]

    def void(self, lookup: str, key: "Key") -> None:
        """The key's answers are no longer wanted, so that it may be charged again."""
        for charge in self.charges(lookup, key):
            charge.is_void = True

    def request(self, request: Request, reply: Callable[[str, Any], None]) -> None:
        """Take a request. reply: called with "ok" and the answer, "throttled" and seconds, or "failed" and a reason."""
        night, faults = scheduler(), self.faults
        night.say("ask", request.lookup, *request.key)
        self.received[request.process, request.lookup] += 1
        self.in_flight[request.lookup] += 1
        self.most_in_flight[request.lookup] = max(self.most_in_flight[request.lookup], self.in_flight[request.lookup])
        self.on_request(request)
        up = UP * self._draws.random()
        down = self._draws.expovariate(1 / DOWN)

        def ends(kind: str, value: Any) -> None:
            self.in_flight[request.lookup] -= 1
            reply(kind, value)

        if faults.strikes("throttled"):
            night.after(up, lambda: ends("throttled", (0.5, 2.0, 10.0)[int(3 * faults.draw("throttled"))]))
        elif faults.strikes("refused"):
            night.after(up, lambda: ends("failed", "503 before it was charged"))
        else:
            night.after(up, lambda: self._take(request, down, ends))

    def _take(self, request: Request, down: float, ends: Callable[[str, Any], None]) -> None:
        night, faults = scheduler(), self.faults
        version = self.versions[request.lookup, request.key]
        charge = Charge(request.lookup, request.key, request.process, request.sent_at, night.now, version)
        night.say("charge", request.lookup, *request.key, version, "for", request.process)
        self.on_charge(charge)
        self.invoice.append(charge)
        answer = self.answer(request.lookup, request.key, version)

        def answers() -> None:
            charge.is_answered = not request.process.is_dead
            ends("ok", answer)

        charge.due_at = night.now + down
        if faults.strikes("dropped after charging"):
            charge.due_at = float("inf")
            night.after(down, lambda: ends("failed", "dropped after it was charged"))
        elif faults.strikes("no answer"):
            charge.due_at = float("inf")
            night.after(HANGS, lambda: ends("ok", answer))
        else:
            if faults.strikes("late answer"):
                charge.due_at += LATE * faults.draw("late answer")
            night.at(charge.due_at, answers)


class VendorClient:
    """A client of the product that asks the vendor without HTTP."""

    def __init__(self, lookup: "Lookup", share: int) -> None:
        self._lookup = lookup

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def call(self, key: "Key") -> Any | None:
        night = scheduler()
        loop = asyncio.get_running_loop()
        answered = loop.create_future()

        def set_result(kind: str, value: Any) -> None:
            if not answered.done():
                answered.set_result((kind, value))

        def reply(kind: str, value: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, as its task has ended
                loop.call_soon_threadsafe(set_result, kind, value)

        night.vendor.request(Request(self._lookup.name, tuple(key), night.me().process, night.now), reply)
        kind, value = await answered
        if kind == "throttled":
            raise Throttled("429", value)
        if kind == "failed":
            raise CallFailed(value, passing=True)
        return value

    def columns(self, answer: Any) -> tuple[Any, ...]:
        if not isinstance(answer, dict) or "v" not in answer:
            raise ValueError("the answer has no v")
        return (answer["v"],)

    def fallback(self, key: "Key") -> Any | None:
        return None
