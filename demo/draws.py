"""Draws latency and faults of calls from a seed, so that equal calls have equal results."""

import hashlib
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, Self, get_args

Fault = Literal["throttle", "error", "drop", "hang"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

LATENCY_MEAN_S = 0.050
LATENCY_P99_S = 0.200


def lognormal(mean: float, p99: float) -> NormalDist:
    """Return the distribution of log(x), where x is lognormal with this mean and 99th percentile.

    mean = exp(mu + sigma²/2) and p99 = exp(mu + z sigma) hold for two values of sigma; this returns
    the smaller. If p99 exceeds about 15 means, no value exists.
    """
    z = NormalDist().inv_cdf(0.99)
    sigma = z - math.sqrt(z * z - 2 * math.log(p99 / mean))
    return NormalDist(math.log(mean) - sigma * sigma / 2, sigma)


LOG_LATENCY = lognormal(LATENCY_MEAN_S, LATENCY_P99_S)


def latency(seed: int, key: str) -> float:
    return math.exp(LOG_LATENCY.inv_cdf(_uniform(seed, "latency", key)))


@dataclass(frozen=True)
class Faults:
    """The share of calls with each fault, drawn for every attempt, so retries usually succeed."""

    throttle: float = 0.003  # 429 with Retry-After
    error: float = 0.003  # 500
    drop: float = 0.002  # the connection is closed without an answer
    hang: float = 0.002  # no answer until the client disconnects

    def __post_init__(self) -> None:
        shares = [getattr(self, fault) for fault in FAULTS]
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(f"{self}: a share is not below 0, and all together are at most 1")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `none`, or shares as in `throttle=0.003,hang=0.002`; other faults are off."""
        shares = dict.fromkeys(map(str, FAULTS), 0.0)
        for part in text.split(",") if text != "none" else ():
            name, _, share = part.partition("=")
            if name not in shares or not share.replace(".", "", 1).isdecimal():
                raise ValueError(
                    f"{part!r} is not a fault and its share: write none, or "
                    f"{'=0.01,'.join(shares)}=0.01"
                )
            shares[name] = float(share)
        return cls(**shares)

    def draw(self, seed: int, key: str, attempt: int) -> Fault | None:
        left = _uniform(seed, "fault", key, attempt)
        for fault in FAULTS:
            left -= getattr(self, fault)
            if left < 0:
                return fault
        return None


def _uniform(*parts: object) -> float:
    """Return a number within (0, 1), determined only by the parts."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return ((int.from_bytes(digest) >> 12) + 0.5) / 2**52
