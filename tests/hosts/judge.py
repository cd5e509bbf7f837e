"""What must hold of a day on several hosts, by the published table and the vendor's own record of its calls."""

import itertools
from collections import Counter
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
        idle: The longest time after the fault, in seconds, without all slots in use; None without a fault.
    """

    calls: int
    repeated: int
    most: int
    idle: float | None = None


def see(lab, *, fault_at=None, latency=0.0):
    """The figures of the vendor's record. fault_at: seconds since the epoch. latency: of a call, in seconds."""
    calls = lab.calls()
    times = Counter(call["customer"] for call in calls)
    idle = None
    if fault_at is not None:
        counts_from = fault_at + 2 * latency  # until then the vendor counts calls of a host that is gone
        began = sorted((call["began"], call["in_flight"] == LIMIT) for call in calls if call["began"] > counts_from)
        full = [fault_at, *(at for at, is_full in began if is_full), began[-1][0]]
        idle = max(later - earlier for earlier, later in itertools.pairwise(full))
    most = max(call["in_flight"] for call in calls)
    return Seen(len(calls), len(calls) - len(times), most, idle)


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
