"""The vendor that is asked, with its invoice: it bills each request that it took, whatever becomes
of the answer.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process

if TYPE_CHECKING:
    from jobs.declare.lookup import Key

UP, DOWN = 0.05, 0.3  # s: to the vendor at most, and back on average
HANGS = 300.0  # s, longer than any time limit
LATE = 15.0  # s
MISSES = 10  # each so many keys is unknown to the vendor
ODD = 7  # each so many answers is one that `error_when` of a changed declaration refuses
MOST_TOKENS = 9  # of one answer


@dataclass
class Charge:
    """One line of the invoice."""

    lookup: str
    key: "Key"
    process: Process
    sent_at: float
    charged_at: float
    version: int
    tokens: int = 0
    began_at: float = 0.0  # when the process first asked for the keys of this request
    due_at: float = 0.0  # the answer's arrival; infinite for an answer that never comes
    failed_at: float = 0.0  # when the client has heard the last of it
    is_useless: bool = False  # the answer is another key's, or is missing in its batch
    arrived: bool = False  # a whole and right answer, while the process lived
    is_void: bool = False  # the key was forgotten or refreshed since: a further charge is right


@dataclass
class Request:
    """What a vendor hears. keys: one, or those of a batch."""

    lookup: str
    keys: "tuple[Key, ...]"
    process: Process
    sent_at: float
    idempotency_key: str | None = None
    arrived_at: float | None = None
    is_overtaken: bool = False  # the client has the answer of another request for its key
    began_at: float = 0.0  # when the process first asked for these keys
    charges: list[Charge] = field(default_factory=list)


@dataclass
class Vendor:
    """Answers by lookup and key; a refresh gives some keys a newer version.

    Attributes:
        invoice: What it bills, in order.
        received: All requests by process and lookup, those that it refused too.
        items: The keys in them.
        down: A lookup, and between which seconds its vendor refuses all requests.
        honours_keys: It bills an idempotency key once, and gives the same answer again.
        closed_until: By process and lookup, when it may call again after it was throttled.
        waiting: Requests whose connection is open and without an answer, by connection.
        on_request: Told of each request when it is sent.
        on_arrival: Told of each request when it is here.
        on_charge: Told of each charge before it is on the invoice.
    """

    faults: Faults
    on_request: Callable[[Request], None] = lambda _: None
    on_arrival: Callable[[Request], None] = lambda _: None
    on_charge: Callable[[Charge], None] = lambda _: None
    invoice: list[Charge] = field(default_factory=list)
    received: Counter[tuple[Process, str]] = field(default_factory=Counter)
    items: Counter[tuple[Process, str]] = field(default_factory=Counter)
    down: tuple[str, float, float] = ("", 0.0, 0.0)
    honours_keys: bool = True
    closed_until: dict[tuple[Process, str], float] = field(default_factory=dict)
    throttled_at: dict[tuple[Process, str], float] = field(default_factory=dict)
    waiting: dict[int, Request] = field(default_factory=dict)
    versions: Counter[tuple[str, "Key"]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._draws = scheduler().stream("vendor")
        self._by_key: dict[str, Charge] = {}
        self._began_at: dict[tuple[Process, str, tuple[Key, ...]], float] = {}
        self._charges: dict[tuple[str, Key], list[Charge]] = {}

    @staticmethod
    def answer(lookup: str, key: "Key", version: int) -> dict[str, Any] | None:
        """What is true for a key; None where the vendor knows nothing of it."""
        digest = _digest(lookup, key)
        if digest[0] % MISSES == 0:
            return None
        found: dict[str, Any] = {"v": f"{lookup}:{'|'.join(map(str, key))}:{version}"}
        if digest[1] % ODD == 0:
            found["odd"] = "yes"
        return found

    @staticmethod
    def tokens(lookup: str, key: "Key") -> int:
        """What one answer is billed, where the vendor bills tokens."""
        if lookup != "score" or Vendor.answer(lookup, key, 0) is None:
            return 0
        return 1 + _digest(lookup, key)[2] % MOST_TOKENS

    def charges(self, lookup: str, key: "Key") -> list[Charge]:
        """The charges of a key that a further one would repeat."""
        return [charge for charge in self._charges.get((lookup, key), ()) if not charge.is_void]

    def was_charged(self, lookup: str, key: "Key") -> bool:
        return (lookup, key) in self._charges

    def is_down(self, lookup: str) -> bool:
        down, begin, end = self.down
        return lookup == down and begin <= scheduler().now < end

    def void(self, lookup: str, key: "Key") -> None:
        """The key's answers are no longer wanted, so that it may be charged again."""
        for charge in self.charges(lookup, key):
            charge.is_void = True

    def asked(self, worker: Process, lookup: str) -> "set[Key]":
        """The keys that a worker asked for."""
        return {
            key[:1]
            for process, of, keys in self._began_at
            if process is worker and of == lookup
            for key in keys
        }

    def request(self, request: Request, reply: Callable[[str, Any], None]) -> None:
        """Take a request. reply: called with "ok" and the answers, "throttled" and seconds,
        "failed" and a reason, or "dropped".
        """
        night, faults = scheduler(), self.faults
        night.say("ask", request.lookup, *(part for key in request.keys for part in key))
        request.began_at = self._began_at.setdefault(
            (request.process, request.lookup, request.keys), night.now
        )
        self.received[request.process, request.lookup] += 1
        self.items[request.process, request.lookup] += len(request.keys)
        self.on_request(request)
        up = UP * self._draws.random()
        down = self._draws.expovariate(1 / DOWN)
        if self.is_down(request.lookup):
            faults.struck["vendor down"] += 1
            then = lambda: reply("failed", "down")  # noqa: E731
        elif faults.strikes("throttled"):
            seconds = (1, 2, 10)[int(3 * faults.draw("throttled"))]
            then = lambda: reply("throttled", seconds)  # noqa: E731
        elif faults.strikes("refused"):
            then = lambda: reply("failed", "out of order")  # noqa: E731
        else:
            then = lambda: self._take(request, down, reply)  # noqa: E731

        def arrives() -> None:
            request.arrived_at = night.now
            self.on_arrival(request)
            then()

        night.after(up, arrives)

    def _take(self, request: Request, down: float, reply: Callable[[str, Any], None]) -> None:
        night, faults = scheduler(), self.faults
        request.charges = [self._charge(request, key) for key in request.keys]
        answers = [
            self.answer(charge.lookup, charge.key, charge.version) for charge in request.charges
        ]
        if (
            request.lookup == "stock"
            and answers[0] is not None
            and faults.strikes("another key's answer")
        ):
            answers = [{"v": "stock:another:0"}]
            request.charges[0].is_useless = True
        due_at = failed_at = night.now + down
        if faults.strikes("dropped after charging"):
            due_at = float("inf")
            night.after(down, lambda: reply("dropped", None))
        elif faults.strikes("no answer"):
            due_at = failed_at = float("inf")
            night.after(HANGS, lambda: reply("ok", answers))
        else:
            if faults.strikes("late answer"):
                due_at += LATE * faults.draw("late answer")
            failed_at = due_at
            night.at(due_at, lambda: reply("ok", answers))
        for charge in request.charges:
            charge.due_at, charge.failed_at = due_at, failed_at

    def _charge(self, request: Request, key: "Key") -> Charge:
        """Bill one key of a request, unless its idempotency key says that it was billed before."""
        night, lookup = scheduler(), request.lookup
        version = self.versions[lookup, key[:1]]
        tokens = self.tokens(lookup, key)
        charge = Charge(
            lookup, key, request.process, request.sent_at, night.now, version, tokens,
            request.began_at,
        )  # fmt: skip
        name = request.idempotency_key if self.honours_keys else None
        if name in self._by_key:
            night.say("answer again", lookup, *key, "for", request.process)
        else:
            night.say("charge", lookup, *key, version, "for", request.process)
            self.on_charge(charge)
            self.invoice.append(charge)
            self._charges.setdefault((lookup, key), []).append(charge)
        if name is not None:
            self._by_key.setdefault(name, charge)
        return charge


def _digest(lookup: str, key: "Key") -> bytes:
    return hashlib.md5(f"{lookup}{key}".encode()).digest()
