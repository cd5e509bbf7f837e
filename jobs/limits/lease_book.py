"""What every run holds of one service's limits: the one place that decides, in plain data, without waiting.

A limit is an amount: calls in flight, or requests or tokens in a window of time. A run holds a part of it under a lease
with a time to live. It says at each heartbeat how much it keeps and how much it could use, and is answered what it has
from then on, and what it should come down to. What it has becomes less only by its own word, or by the end of its
lease. So all parts together never exceed the limit, whatever is lost on the way: an answer that does not arrive leaves
the run with less than the book thinks it has.

Of a window, a run keeps what it used until the window has passed over it. What a run that has died may have used last
stays out of use for a window after the end of its lease.

The tasks of one run divide what it holds by a book of the run's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from jobs.limits.fair_shares import fair_shares

OPEN, CLOSED, PROBE = "open", "closed", "probe"
BUDGETS_KEPT = 64  # the latest ones
ROUGHLY = 0.02  # of a window; what goes out of use within it is noted as one


@dataclass(frozen=True)
class Limit:
    """amount: calls in flight, or units in any window of so many seconds, or for good where the window is infinite."""

    amount: int
    window: float = 0.0


@dataclass(frozen=True)
class Claim:
    """An owner's report on one limit at a heartbeat.

    Attributes:
        limit: As its declaration has it; the strictest of those who are there holds for all.
        keeps: What it has in use or goes on to use; it gives back what it holds beyond this.
        wants: What it could use.
    """

    limit: Limit
    keeps: int
    wants: int


@dataclass(frozen=True)
class Share:
    """has: what the owner may use from now on. target: what it should come down to, or will get once others have.
    free: what nobody has.
    """

    has: int
    target: int
    free: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Answer:
    """To one heartbeat.

    Attributes:
        shares: By limit.
        ttl: Seconds for which they hold, from the moment at which the owner asked.
        gate: Open, closed, or to be probed by this owner: one call.
        closed_for: Seconds until the gate is to be asked about again, while it is closed.
        reason: Why it is not open, as reported by the run that closed it.
    """

    shares: dict[str, Share]
    ttl: float
    gate: str = OPEN
    closed_for: float = 0.0
    reason: str = ""


@dataclass
class _Part:
    limit: Limit
    held: int = 0
    wants: int = 0
    target: int = 0


@dataclass
class _Owner:
    expires: float
    since: float
    name: str  # for people
    parts: dict[str, _Part] = field(default_factory=dict)


@dataclass
class _Pause:
    until: float
    reason: str
    prober: str | None = None
    probe_until: float = 0.0


class LeaseBook:
    """The book of one service. Times are seconds by the clock of whoever keeps it, which never goes back.

    Args:
        state: As `state` gave it; None for an empty book.
        amounts: By limit, what there is; where it is not said, the strictest that those who are there declare.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, *, amounts: Mapping[str, int] | None = None) -> None:
        state = state or {}
        self.amounts = dict(amounts or {})
        self._owners = {owner: _owner_of(facts) for owner, facts in state.get("owners", {}).items()}
        # by limit: what owners whose leases ended may have used within the window, and until when that counts
        self._cooling: dict[str, list[list[float]]] = {
            name: [list(part) for part in parts] for name, parts in state.get("cooling", {}).items()
        }
        self._pause = _Pause(**state["pause"]) if state.get("pause") else None

    def state(self) -> dict[str, Any]:
        """The whole book as JSON can hold it."""
        return {
            "owners": {name: asdict(owner) for name, owner in self._owners.items()},
            "cooling": self._cooling,
            "pause": None if self._pause is None else asdict(self._pause),
        }

    def heartbeat(self, owner: str, claims: Mapping[str, Claim], *, now: float, ttl: float, name: str = "") -> Answer:
        """Take what an owner says, and give it what there is for it.

        Args:
            owner: Unique among all that ever come.
            claims: By limit.
            now: Seconds; not before the owner asked.
            ttl: Seconds for which the lease is to hold.
            name: The owner's, for people.

        Returns:
            What it has from now on.
        """
        self.expire(now)
        known = self._owners.setdefault(owner, _Owner(now + ttl, now, name))
        known.expires = max(known.expires, now + ttl)
        for limit_name, claim in claims.items():
            part = known.parts.setdefault(limit_name, _Part(claim.limit))
            part.limit = claim.limit
            part.held = min(part.held, max(0, claim.keeps))
            part.wants = max(0, claim.wants)
        shares = {limit_name: self._give(owner, limit_name) for limit_name in claims}
        gate, closed_for = self._gate_for(owner, now, ttl)
        return Answer(shares, ttl, gate, closed_for, "" if self._pause is None else self._pause.reason)

    def leave(self, owner: str, *, now: float) -> None:
        """The owner ends. What it has of a window may be in use until the window has passed."""
        self.expire(now)
        gone = self._owners.pop(owner, None)
        for name, part in (gone.parts if gone else {}).items():
            self._cool(name, part, part.held, now)

    def expire(self, now: float) -> None:
        """End the leases that were not renewed in time."""
        for name in [name for name, owner in self._owners.items() if owner.expires <= now]:
            gone = self._owners.pop(name)
            for limit_name, part in gone.parts.items():
                self._cool(limit_name, part, part.held, gone.expires)
        for limit_name, parts in list(self._cooling.items()):
            self._cooling[limit_name] = [part for part in parts if part[0] > now]
            if not self._cooling[limit_name]:
                del self._cooling[limit_name]

    def _cool(self, name: str, part: _Part, amount: int, since: float) -> None:
        if not amount or not part.limit.window:
            return
        parts, until = self._cooling.setdefault(name, []), since + part.limit.window
        roughly = until if until == math.inf else until - part.limit.window * ROUGHLY
        if parts and parts[-1][0] >= roughly:  # the book stays small
            parts[-1][0], parts[-1][1] = max(until, parts[-1][0]), parts[-1][1] + amount
        else:
            parts.append([until, amount])
        spent = [name for name, parts in self._cooling.items() if parts[0][0] == math.inf]
        for old in spent[:-BUDGETS_KEPT]:  # of periods long past
            del self._cooling[old]

    def restart(self) -> None:
        """The machine has started again, and with it the clock: nobody is there, and what was spent for good stays."""
        for owner in self._owners.values():
            for name, part in owner.parts.items():
                if part.limit.window == math.inf:
                    self._cool(name, part, part.held, 0.0)
        self._owners, self._pause = {}, None
        self._cooling = {name: parts for name, parts in self._cooling.items() if parts[0][0] == math.inf}

    # -- shares --------------------------------------------------------------------------------------------------------

    def amount(self, name: str) -> int:
        """What there is to divide."""
        if name in self.amounts:
            return self.amounts[name]
        return min((part.limit.amount for part in self._parts_of(name)), default=0)

    def held(self, name: str) -> int:
        """What nobody else can have now: held by all together, and out of use."""
        return sum(part.held for part in self._parts_of(name)) + self._out_of_use(name)

    def wanted(self, name: str) -> int:
        """What all together use and could use, if there were more."""
        return sum(part.wants for part in self._parts_of(name)) + self._out_of_use(name)

    def _out_of_use(self, name: str) -> int:
        return int(sum(amount for _, amount in self._cooling.get(name, ())))

    def _parts_of(self, name: str) -> list[_Part]:
        return [owner.parts[name] for owner in self._owners.values() if name in owner.parts]

    def _give(self, owner: str, name: str) -> Share:
        amount = self.amount(name)
        parts = self._parts_of(name)
        for part, target in zip(parts, fair_shares(amount, [one.wants for one in parts]), strict=True):
            part.target = target
        own = self._owners[owner].parts[name]
        free = amount - self.held(name)
        given = max(0, min(own.target - own.held, free))
        own.held += given
        return Share(own.held, own.target, max(0, free - given))

    # -- the gate ------------------------------------------------------------------------------------------------------

    def close_gate(self, seconds: float, reason: str, *, now: float) -> None:
        """The service asks for patience, or is down: nobody calls for so many seconds. Longer pauses stay."""
        until = now + seconds
        if self._pause is None:
            self._pause = _Pause(until, reason)
        elif until > self._pause.until:
            self._pause.until, self._pause.reason = until, reason
        self._pause.prober = None

    def open_gate(self, owner: str) -> bool:
        """The owner's probe was answered. Whether that opens the gate: only the prober's word does."""
        if self._pause is None or self._pause.prober != owner:
            return False
        self._pause = None
        return True

    def clear_pause(self) -> None:
        """The gate is open, whoever closed it."""
        self._pause = None

    def end_pause(self, now: float, reason: str) -> None:
        """The pause is over: the next owner that asks is to probe."""
        if self._pause is None:
            self._pause = _Pause(now, reason)
        self._pause.until = min(self._pause.until, now)

    def _gate_for(self, owner: str, now: float, ttl: float) -> tuple[str, float]:
        pause = self._pause
        if pause is None:
            return OPEN, 0.0
        if now < pause.until:
            return CLOSED, pause.until - now
        if pause.prober is None or pause.prober not in self._owners or now >= pause.probe_until:
            pause.prober, pause.probe_until = None, 0.0
            if any(part.held and part.wants for part in self._owners[owner].parts.values()):
                pause.prober, pause.probe_until = owner, now + ttl
        if pause.prober == owner:
            return PROBE, 0.0
        return CLOSED, max(0.0, pause.probe_until - now)

    # -- for people ----------------------------------------------------------------------------------------------------

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Who holds what, and who waits: one row per owner and limit, and what owners that have gone have used."""
        gone = [
            {
                "owner": "ended runs",
                "limit": name,
                "amount": self.amount(name),
                "holds": self._out_of_use(name),
                "wants": 0,
                "due": 0,
                "since_s": 0.0,
                "expires_in_s": parts[-1][0] - now,
            }
            for name, parts in self._cooling.items()
        ]
        return gone + [
            {
                "owner": owner.name or key,
                "limit": name,
                "amount": self.amount(name),
                "holds": part.held,
                "wants": part.wants,
                "due": part.target,
                "since_s": now - owner.since,
                "expires_in_s": owner.expires - now,
            }
            for key, owner in self._owners.items()
            for name, part in owner.parts.items()
        ]

    def pause(self, now: float) -> tuple[float, str] | None:
        """Seconds that the gate stays closed, and why; None while it is open."""
        return None if self._pause is None else (max(0.0, self._pause.until - now), self._pause.reason)


def _owner_of(facts: Mapping[str, Any]) -> _Owner:
    parts = {
        name: _Part(Limit(**part["limit"]), part["held"], part["wants"], part["target"])
        for name, part in facts["parts"].items()
    }
    return _Owner(facts["expires"], facts["since"], facts["name"], parts)
