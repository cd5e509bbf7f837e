"""The other side of the book: what one owner may use, by its own clock. Plain data, without waiting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jobs.limits.lease_book import OPEN, Answer, Claim, Limit, Share

UNKNOWN = 1 << 62  # free: nobody has said that there is no more
NOTHING = Share(0, 0, UNKNOWN)


@dataclass
class LeaseHolder:
    """One owner's leases at one service.

    Its clock starts before it asks, so it ends no later than the book's; and what it says that it keeps binds it from
    then on, whether an answer arrives or not.

    Attributes:
        limits: As declared, by name.
    """

    limits: Mapping[str, Limit]
    until: float = -math.inf  # by the owner's clock
    shares: dict[str, Share] = field(default_factory=dict)
    gate: str = OPEN
    reason: str = ""

    def ask(self, in_use: Mapping[str, int], wants: Mapping[str, int]) -> dict[str, Claim]:
        """What to say at this heartbeat; it holds at once.

        Args:
            in_use: By limit, what is in use now and cannot be given back.
            wants: By limit, what could be used.
        """
        claims = {}
        for name, limit in self.limits.items():
            share = self.shares.get(name, NOTHING)
            keeps = max(in_use.get(name, 0), min(share.has, share.target, wants.get(name, 0)))
            self.shares[name] = replace(share, has=min(share.has, keeps))
            claims[name] = Claim(limit, keeps, wants.get(name, 0))
        return claims

    def take(self, answer: Answer, *, asked_at: float) -> None:
        """The book's answer. asked_at: the owner's clock before it asked."""
        self.shares = dict(answer.shares)
        self.until = asked_at + answer.ttl
        self.gate, self.reason = answer.gate, answer.reason

    def may_use(self, name: str, now: float) -> int:
        """How much of this limit may be in use at this moment; nothing once the lease has ended."""
        share = self.shares.get(name, NOTHING)
        return min(share.has, share.target) if now < self.until else 0
