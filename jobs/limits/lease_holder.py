"""An owner's side of the book: the parts that it may use, by its clock. Plain data, without I/O."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jobs.limits.lease_book import OPEN, Answer, Claim, Limit, Share

UNKNOWN = 1 << 62  # free amount before the first answer
NOTHING = Share(0, 0, UNKNOWN)


@dataclass
class LeaseHolder:
    """The leases of an owner at a service.

    The time to live counts from before the heartbeat, so it ends no later here than in the book. A
    reported reduction takes effect at once, whether an answer arrives or not.
    """

    limits: Mapping[str, Limit]
    until: float = -math.inf  # the end of the leases, by the owner's clock
    shares: dict[str, Share] = field(default_factory=dict)
    gate: str = OPEN

    def ask(self, in_use: Mapping[str, int], wants: Mapping[str, int]) -> dict[str, Claim]:
        """Return a heartbeat's claims, by limit. Reductions take effect at once.

        Args:
            in_use: By limit, the amount that cannot be returned now.
            wants: By limit, the amount that could be used.
        """
        claims = {}
        for name, limit in self.limits.items():
            share = self.shares.get(name, NOTHING)
            keeps = max(in_use.get(name, 0), min(share.has, share.target, wants.get(name, 0)))
            self.shares[name] = replace(share, has=min(share.has, keeps))
            claims[name] = Claim(limit, keeps, wants.get(name, 0))
        return claims

    def take(self, answer: Answer, *, asked_at: float) -> None:
        """Take the book's answer.

        Args:
            answer: The answer.
            asked_at: The owner's time before the heartbeat.
        """
        self.shares = dict(answer.shares)
        self.until = asked_at + answer.ttl
        self.gate = answer.gate

    def may_use(self, name: str, now: float) -> int:
        """Return how much of this limit may be in use now; 0 after the end of the lease."""
        share = self.shares.get(name, NOTHING)
        return min(share.has, share.target) if now < self.until else 0

    def might_have(self, name: str) -> int:
        """Return how much of this limit it has, with what was free at the last answer."""
        share = self.shares.get(name, NOTHING)
        return share.has + share.free
