"""What must hold of a day on several hosts, by the published table and the vendor's own record of its calls."""

import itertools
from dataclasses import dataclass

from tests.hosts.lab import DAY, FLUSH, LIMIT
from tests.hosts.vendor import rating


@dataclass(frozen=True)
class Seen:
    """Figures of one run.

    Attributes:
        calls: That the vendor took.
        repeated: Calls beyond the first of their key.
        most: The most calls in flight at once.
        repeated_after: Of the repeated calls those that began after a fault and before the next, per fault.
        idle: The longest time after a fault, in seconds, without all slots in use, per fault.
    """

    calls: int
    repeated: int
    most: int
    repeated_after: tuple[int, ...]
    idle: tuple[float, ...]


def see(lab, *faults, latency=0.0):
    """The figures of the vendor's record. faults: seconds since the epoch. latency: of a call, in seconds."""
    calls = sorted(lab.calls(), key=lambda call: call["began"])
    asked, again = set(), []
    for call in calls:
        if call["customer"] in asked:
            again.append(call["began"])
        asked.add(call["customer"])
    ends = [*faults[1:], calls[-1]["began"]]
    repeated = tuple(sum(fault < at <= end for at in again) for fault, end in zip(faults, ends, strict=True))
    idle = tuple(_idle(calls, fault, end, latency) for fault, end in zip(faults, ends, strict=True))
    return Seen(len(calls), len(again), max(call["in_flight"] for call in calls), repeated, idle)


def _idle(calls, fault, end, latency):
    counts_from = fault + 2 * latency  # until then the vendor counts calls of a host that is gone
    full = [call["began"] for call in calls if counts_from < call["began"] < end and call["in_flight"] == LIMIT]
    return round(max(later - earlier for earlier, later in itertools.pairwise([fault, *full, end])), 1)


def check_rows(lab, rows, day=DAY):
    """Each row once, with the value of its customer."""
    found = lab.published(day)
    assert sorted(order for order, *_ in found) == list(range(rows))
    for order, customer, score, grade, status in found:
        truth = rating(customer)
        expected = (None, None, "miss") if truth is None else (truth["score"], truth["rating"]["grade"], "ok")
        assert (score, grade, status) == expected, (order, customer, score, grade, status)


def repeats_allowed(latency):
    """Calls in flight, and those whose answers one flush had not stored yet."""
    return LIMIT + round(LIMIT * FLUSH / latency)
