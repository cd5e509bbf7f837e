"""The messages of a task and its driver about the run's leases, as data for the driver link."""

from collections.abc import Mapping
from typing import Any

from jobs.limits.adaptive_limit import Seen
from jobs.limits.lease_book import Answer, Claim, Share
from jobs.limits.limits_plan import ServiceLimits


def parse_claims(message: Mapping[str, Any], limits: ServiceLimits) -> dict[str, Claim]:
    """Parse a task's claims for the driver's book.

    Raises:
        KeyError, TypeError, ValueError: The data is invalid.
    """
    claims = {
        name: [*map(int, claim)]
        for name, claim in message["claims"].items()
        if name in limits.limits
    }
    return {
        name: Claim(limits.limits[name], keeps, wants, limits.least(name))
        for name, (keeps, wants) in claims.items()
    }


def parse_seen(message: Mapping[str, Any]) -> Seen | None:
    """Parse what a task's calls tell of the service; None where that is not asked.

    Raises:
        KeyError, TypeError, ValueError: The data is invalid.
    """
    seen = message.get("seen")
    if seen is None:
        return None
    answered, refused, failed = (int(seen[name]) for name in ("answered", "refused", "failed"))
    return Seen(answered, float(seen["seconds"]), refused, failed, float(seen["lost"]))


def write_message(answer: Answer) -> dict[str, Any]:
    shares = {name: [share.has, share.target, share.free] for name, share in answer.shares.items()}
    return {
        "shares": shares,
        "ttl": answer.ttl,
        "gate": answer.gate,
        "reason": answer.reason,
        "adapted": answer.adapted,
    }


def parse_answer(message: Mapping[str, Any]) -> Answer:
    """Parse the driver's answer.

    Raises:
        KeyError, TypeError, ValueError: The data is invalid.
    """
    shares = {str(name): Share(*map(int, share)) for name, share in message["shares"].items()}
    gate, reason, adapted = str(message["gate"]), str(message["reason"]), bool(message["adapted"])
    return Answer(shares, float(message["ttl"]), gate, reason=reason, adapted=adapted)
