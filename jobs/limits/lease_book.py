"""Divides the limits of a service among its runs: pure decisions on plain data, without I/O.

A limit is an amount: calls in flight, or requests or tokens per window of time. Each run holds a
part of it under a lease with a time to live. At each heartbeat a run reports how much it keeps and
how much it could use; the answer is its part from then on, and the target to which it should reduce
it. A part shrinks only when its run reports less, or when the lease expires. So the sum of all
parts never exceeds the limit, even if messages are lost: after a lost answer the run uses less than
the book has recorded for it.

For a limit per window, a run keeps what it used until the window has passed. What a dead run may
have used last stays reserved for a window after its lease expired. Of a budget, all that a dead run
held counts as spent until it is settled from the run's bill; a run that outlives its lease takes it
back with its next heartbeat, unless UNSETTLED_KEPT other runs have died since.

The tasks of a run divide its part by another book, which belongs to the run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from jobs.limits.fair_shares import useful_shares

OPEN, CLOSED, PROBE = "open", "closed", "probe"
SILENT_AFTER = 3.0  # s without a heartbeat; a live run that holds something sends one each second
BUDGETS_KEPT = 1_024  # the most recently spent; older ones are forgotten
UNSETTLED_KEPT = 64  # latest owners, besides jobs
JOB = "job/"  # prefix of the owner of a vendor job's money
ROUGHLY = 0.02  # of a window: a step; amounts that become free within it are noted together
NOTHING_KNOWN: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Limit:
    amount: int  # calls in flight, or units per window
    window: float = 0.0  # s; 0 for calls in flight, infinite for a budget


@dataclass(frozen=True)
class Claim:
    """An owner's report on one limit at a heartbeat."""

    limit: Limit  # the strictest of all present owners applies; of a budget, each owner's
    keeps: int  # it returns the rest of its part
    wants: int
    least: int = 1  # what a call needs to start


@dataclass(frozen=True)
class Share:
    """An owner's part of a limit."""

    has: int
    # to which it should reduce its part, or to which its part grows once others return theirs
    target: int
    free: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Answer:
    shares: dict[str, Share]  # by limit
    ttl: float  # s from the heartbeat for which they are valid
    gate: str = OPEN  # PROBE: this owner may make one call
    closed_for: float = 0.0  # s after which to ask again
    reason: str = ""  # why a run closed the gate
    adapted: bool = False  # the service bears no more calls in flight
    # s until the lease of a silent owner ends that holds what this owner lacks; 0: no such owner
    silent_for: float = 0.0


@dataclass
class _Part:
    limit: Limit
    held: int = 0
    wants: int = 0
    target: int = 0
    least: int = 1


@dataclass
class _Owner:
    expires: float
    since: float
    name: str  # for people
    seen: float = math.inf  # its last heartbeat
    parts: dict[str, _Part] = field(default_factory=dict)

    def wanted(self) -> list[_Part]:
        return [part for part in self.parts.values() if part.wants]

    def can_call(self) -> bool:
        parts = self.wanted()
        return bool(parts) and all(part.held >= part.least for part in parts)


@dataclass
class _Pause:
    until: float
    reason: str
    prober: str | None = None
    probe_until: float = 0.0


class LeaseBook:
    """The book of a service. Times are seconds by the monotonic clock of its store.

    Args:
        state: What `state` returned; None for an empty book.
        amounts: Amount of each limit; by default the strictest that the present owners declare.
    """

    def __init__(
        self, state: Mapping[str, Any] | None = None, *, amounts: Mapping[str, int] | None = None
    ) -> None:
        state = {} if state is None else state
        self.amounts = dict(amounts or {})
        self._owners = {
            owner: _read_owner(facts) for owner, facts in state.get("owners", {}).items()
        }
        # by limit: the end of the window and the amount that an owner with an expired lease may
        # have used in it
        self._cooling: dict[str, list[list[float]]] = {
            name: [[float(until), int(amount)] for until, amount in parts]
            for name, parts in state.get("cooling", {}).items()
        }
        # by owner with an expired lease: how much of each budget in `_cooling` it held
        self._unsettled: dict[str, dict[str, int]] = {
            owner: {name: int(amount) for name, amount in held.items()}
            for owner, held in state.get("unsettled", {}).items()
        }
        self._pause = _build_pause(**state["pause"]) if state.get("pause") else None

    def state(self) -> dict[str, Any]:
        return {
            "owners": {name: asdict(owner) for name, owner in self._owners.items()},
            "cooling": self._cooling,
            "unsettled": self._unsettled,
            "pause": None if self._pause is None else asdict(self._pause),
        }

    def heartbeat(
        self, owner: str, claims: Mapping[str, Claim], *, now: float, ttl: float, name: str = ""
    ) -> Answer:
        """Record an owner's claims, by limit, and renew its lease. Returns its parts from now on.

        Args:
            owner: An id that no other owner ever has.
            claims: By limit.
            now: A time not before the owner sent the heartbeat.
            ttl: Seconds for which the lease is renewed.
            name: For display.
        """
        self.expire(now)
        known = self._owners.setdefault(owner, _Owner(now + ttl, now, name))
        known.expires, known.seen = max(known.expires, now + ttl), now
        taken_back = self._unsettled.get(owner, {})
        self.settle(owner, dict.fromkeys(claims, 0))
        if rest := {name: taken_back[name] for name in taken_back.keys() - claims}:
            self._unsettled[owner] = rest  # it may claim these budgets later
        for limit_name, claim in claims.items():
            part = known.parts.setdefault(
                limit_name, _Part(claim.limit, taken_back.get(limit_name, 0))
            )
            part.limit, part.least = claim.limit, claim.least
            part.held = min(part.held, max(0, claim.keeps))
            part.wants = max(0, claim.wants)
        shares = {limit_name: self._give(owner, limit_name) for limit_name in claims}
        gate, closed_for = self._gate_for(owner, now, ttl)
        reason = "" if self._pause is None else self._pause.reason
        lacks = [
            limit_name
            for limit_name, claim in claims.items()
            if claim.wants and not shares[limit_name].has
        ]
        return Answer(
            shares, ttl, gate, closed_for, reason, silent_for=self._silent_for(lacks, now)
        )

    def _silent_for(self, lacks: Sequence[str], now: float) -> float:
        """Return the seconds until the leases of silent owners with some of these limits end."""
        silent = (owner for owner in self._owners.values() if now > owner.seen + SILENT_AFTER)
        ends = (
            holder.expires - now
            for holder in silent
            if any(holder.parts[name].held for name in lacks if name in holder.parts)
        )
        return max(ends, default=0.0)

    def leave(self, owner: str, *, now: float, spent: Mapping[str, int] = NOTHING_KNOWN) -> None:
        """Remove an owner. Its part of a limit per window stays reserved for the window.

        Args:
            owner: As in its heartbeats.
            now: As for `heartbeat`.
            spent: By budget, what the owner spent; by default all that it holds.
        """
        self.expire(now)
        gone = self._owners.pop(owner, None)
        for name, part in (gone.parts if gone else {}).items():
            self._cool(name, part, spent.get(name, part.held), now)
        self.settle(owner, spent)  # its lease may have expired earlier

    def expire(self, now: float) -> None:
        for name in [name for name, owner in self._owners.items() if owner.expires <= now]:
            gone = self._owners.pop(name)
            for limit_name, part in gone.parts.items():
                self._cool(limit_name, part, part.held, gone.expires)
                if part.held and part.limit.window == math.inf:
                    self._unsettled.setdefault(name, {})[limit_name] = part.held
        runs = [owner for owner in self._unsettled if not owner.startswith(JOB)]
        for owner in runs[:-UNSETTLED_KEPT]:
            del self._unsettled[owner]
        self._cooling = {
            limit_name: left
            for limit_name, parts in self._cooling.items()
            if (left := [part for part in parts if part[0] > now])
        }

    def _cool(self, name: str, part: _Part, amount: int, since: float) -> None:
        if not amount or not part.limit.window:
            return
        parts, until = self._cooling.pop(name, []), since + part.limit.window
        self._cooling[name] = parts  # last, because the budgets spent least recently are dropped
        step = part.limit.window * ROUGHLY
        if parts and (parts[-1][0] >= until or parts[-1][0] // step == until // step):
            parts[-1][0], parts[-1][1] = max(until, parts[-1][0]), parts[-1][1] + amount
        else:  # the book stays small: at most one entry in each step
            parts.append([until, amount])
        spent = [name for name, parts in self._cooling.items() if parts[0][0] == math.inf]
        for old in spent[:-BUDGETS_KEPT]:
            del self._cooling[old]

    def spend(self, owner: str, amount: int, amounts: Mapping[str, int], *, now: float) -> str:
        """Spend an amount of some budgets, once; it counts as spent until `settle`.

        Args:
            owner: A job, which has no lease.
            amount: The same for each budget.
            amounts: By budget, how much may be spent of it.
            now: As for `heartbeat`.

        Returns:
            The first budget with less left, and then nothing is spent; empty if all have enough,
            or if the owner has spent already.
        """
        self.expire(now)
        if owner in self._unsettled:
            return ""
        short = next(
            (name for name, most in amounts.items() if self.held(name) + amount > most), ""
        )
        if not short:
            self._unsettled[owner] = dict.fromkeys(amounts, amount)
            for name, most in amounts.items():
                self._cool(name, _Part(Limit(most, math.inf)), amount, now)
        return short

    @property
    def unsettled(self) -> Mapping[str, Mapping[str, int]]:
        """By dead owner, or job, and budget what it held; it counts as spent until `settle`."""
        return self._unsettled

    def settle(self, owner: str, spent: Mapping[str, int]) -> None:
        """Count what a dead owner spent, by budget; by default all that it held."""
        for name, held in self._unsettled.pop(owner, {}).items():
            if name in self._cooling:  # unless it was dropped (BUDGETS_KEPT)
                entry = self._cooling[name][0]
                entry[1] += spent.get(name, held) - held

    def restart(self) -> None:
        """Handle a restart of the machine and its clock: keep only what was spent for good.

        Only jobs are settled after that, because bills may have lost their last writes.
        """
        for owner in self._owners.values():
            for name, part in owner.parts.items():
                if part.limit.window == math.inf:
                    self._cool(name, part, part.held, 0.0)
        self._owners, self._pause = {}, None
        self._unsettled = {
            owner: held for owner, held in self._unsettled.items() if owner.startswith(JOB)
        }
        self._cooling = {
            name: parts for name, parts in self._cooling.items() if parts[0][0] == math.inf
        }

    # -- shares ------------------------------------------------------------------------------------

    def amount(self, name: str, owner: str | None = None) -> int:
        """Return the amount of a limit for an owner.

        For a budget it is what the owner declares, because the amount may have changed since
        another run began; for other limits the strictest that any owner declares.
        """
        if name in self.amounts:
            return self.amounts[name]
        if owner is not None and (part := self._owners[owner].parts[name]).limit.window == math.inf:
            return part.limit.amount
        return min((part.limit.amount for part in self._list_parts(name)), default=0)

    def held(self, name: str) -> int:
        """Return the amount that is not free: owners' parts and dead owners' reservations."""
        return sum(part.held for part in self._list_parts(name)) + self._out_of_use(name)

    def wanted(self, name: str) -> int:
        """Return the amount that all owners could use, and reservations for dead owners."""
        return sum(part.wants for part in self._list_parts(name)) + self._out_of_use(name)

    def _out_of_use(self, name: str) -> int:
        return int(sum(amount for _, amount in self._cooling.get(name, ())))

    def _list_parts(self, name: str) -> list[_Part]:
        return [owner.parts[name] for owner in self._owners.values() if name in owner.parts]

    def _give(self, owner: str, name: str) -> Share:
        amount = self.amount(name, owner)
        parts = self._list_parts(name)
        least = max(part.least for part in parts)
        targets = useful_shares(amount, [part.wants for part in parts], least)
        for part, target in zip(parts, targets, strict=True):
            part.target = target
        part = self._owners[owner].parts[name]
        free = amount - self.held(name)
        given = max(0, min(part.target - part.held, free))
        part.held += given
        return Share(part.held, part.target, max(0, free - given))

    # -- the gate ----------------------------------------------------------------------------------

    def close_gate(self, seconds: float, reason: str, *, now: float) -> None:
        """Pause all calls, because the service throttles or is down. A longer pause stays."""
        until = now + seconds
        if self._pause is None:
            self._pause = _Pause(until, reason)
        elif until > self._pause.until:
            self._pause.until, self._pause.reason = until, reason
        self._pause.prober = None

    def open_gate(self, owner: str) -> bool:
        """Open the gate after the prober's successful probe. Returns whether it opened."""
        if self._pause is None or self._pause.prober != owner:
            return False
        self._pause = None
        return True

    def clear_pause(self) -> None:
        self._pause = None

    def require_probe(self, now: float, reason: str) -> None:
        """Require a probe now: the next owner that may probe becomes the prober."""
        if self._pause is None:
            self._pause = _Pause(now, reason)
        self._pause.until = min(self._pause.until, now)

    def _gate_for(self, owner: str, now: float, ttl: float) -> tuple[str, float]:
        pause = self._pause
        if pause is None:
            return OPEN, 0.0
        if now < pause.until:
            return CLOSED, pause.until - now
        if pause.prober not in self._owners or now >= pause.probe_until:
            pause.prober, pause.probe_until = None, 0.0
            if self._may_probe(owner):
                pause.prober, pause.probe_until = owner, now + ttl
        if pause.prober == owner:
            return PROBE, 0.0
        return CLOSED, max(0.0, pause.probe_until - now)

    def _may_probe(self, owner: str) -> bool:
        """Return whether the owner can call, or wants to while no owner can."""
        asking = self._owners[owner]
        return asking.can_call() or (
            bool(asking.wanted()) and not any(map(_Owner.can_call, self._owners.values()))
        )

    # -- display -----------------------------------------------------------------------------------

    def rows(self, now: float) -> list[dict[str, Any]]:
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
                "amount": self.amount(name, key),
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
        """Return for how many seconds the gate stays closed, 0 while it waits for a probe, and the
        reason; None if it is open.
        """
        return (
            None if self._pause is None else (max(0.0, self._pause.until - now), self._pause.reason)
        )


def _read_owner(facts: Mapping[str, Any]) -> _Owner:
    parts = {
        name: _Part(
            Limit(int(part["limit"]["amount"]), float(part["limit"]["window"])),
            int(part["held"]),
            int(part["wants"]),
            int(part["target"]),
            int(part.get("least", 1)),
        )
        for name, part in facts["parts"].items()
    }
    seen = float(facts.get("seen", math.inf))
    return _Owner(float(facts["expires"]), float(facts["since"]), str(facts["name"]), seen, parts)


def _build_pause(until: float, reason: str, prober: str | None, probe_until: float) -> _Pause:
    return _Pause(float(until), str(reason), prober, float(probe_until))
