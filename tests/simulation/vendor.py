"""The vendor that is asked, with its invoice: it bills each request that it took, whatever becomes of the answer."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from jobs.declare.lookup import Key

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
        honours_keys: It bills an idempotency key once, and gives the same answer again.
        closed_until: By process and lookup, when it may call again after it was throttled.
        waiting: Requests whose connection is open and without an answer, by connection.
        on_request: Told of each request before the vendor does anything.
        on_charge: Told of each charge before it is on the invoice.
    """

    faults: Faults
    on_request: Callable[[Request], None] = lambda _: None
    on_charge: Callable[[Charge], None] = lambda _: None
    invoice: list[Charge] = field(default_factory=list)
    received: Counter[tuple[Process, str]] = field(default_factory=Counter)
    honours_keys: bool = True
    closed_until: dict[tuple[Process, str], float] = field(default_factory=dict)
    throttled_at: dict[tuple[Process, str], float] = field(default_factory=dict)
    waiting: dict[int, Request] = field(default_factory=dict)
    versions: Counter[tuple[str, "Key"]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._draws = scheduler().stream("vendor")
        self._by_key: dict[str, Charge] = {}

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
        """Take a request. reply: called with "ok" and the answer, "throttled" and seconds, "failed" and a reason, or
        "dropped".
        """
        night, faults = scheduler(), self.faults
        night.say("ask", request.lookup, *request.key)
        self.received[request.process, request.lookup] += 1
        self.on_request(request)
        up = UP * self._draws.random()
        down = self._draws.expovariate(1 / DOWN)
        if faults.strikes("throttled"):
            night.after(up, lambda: reply("throttled", (1, 2, 10)[int(3 * faults.draw("throttled"))]))
        elif faults.strikes("refused"):
            night.after(up, lambda: reply("failed", "out of order"))
        else:
            night.after(up, lambda: self._take(request, down, reply))

    def _take(self, request: Request, down: float, reply: Callable[[str, Any], None]) -> None:
        night, faults = scheduler(), self.faults
        version = self.versions[request.lookup, request.key]
        charge = Charge(request.lookup, request.key, request.process, request.sent_at, night.now, version)
        name = request.idempotency_key if self.honours_keys else None
        if name in self._by_key:
            night.say("answer again", request.lookup, *request.key, "for", request.process)
        else:
            night.say("charge", request.lookup, *request.key, version, "for", request.process)
            self.on_charge(charge)
            self.invoice.append(charge)
        if name is not None:
            self._by_key.setdefault(name, charge)
        answer = self.answer(request.lookup, request.key, version)
        if request.lookup == "stock" and answer is not None and faults.strikes("another key's answer"):
            answer = {"v": "stock:another:0"}

        def answers() -> None:
            charge.is_answered = not request.process.is_dead
            reply("ok", answer)

        charge.due_at = night.now + down
        if faults.strikes("dropped after charging"):
            charge.due_at = float("inf")
            night.after(down, lambda: reply("dropped", None))
        elif faults.strikes("no answer"):
            charge.due_at = float("inf")
            night.after(HANGS, lambda: reply("ok", answer))
        else:
            if faults.strikes("late answer"):
                charge.due_at += LATE * faults.draw("late answer")
            night.at(charge.due_at, answers)
