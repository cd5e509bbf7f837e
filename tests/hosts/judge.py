"""What must hold of a day on several hosts, by the published table and the vendor's own record of
its calls.
"""

import itertools
from dataclasses import dataclass

from tests.hosts.lab import DAY, FLUSH, LIMIT
from tests.hosts.vendor import rating

BEFORE = 5.0  # s, in which each host with a task calls
UPLOAD = 0.2  # s, of a part, at most


@dataclass(frozen=True)
class Seen:
    """Figures of one run.

    Attributes:
        calls: That the vendor took.
        repeated: Calls beyond the first of their key.
        most: The most calls in flight at once.
        repeated_by: Of the repeated calls those whose first call a fault may have cost, per fault.
        idle: The longest time after a fault, in seconds, without all slots in use while a task asks,
            per fault; None where the only host that called was lost.
    """

    calls: int
    repeated: int
    most: int
    repeated_by: tuple[int, ...]
    idle: tuple[float | None, ...]


def see(lab, *faults, latency=0.0):
    """The figures of the vendor's record. faults: seconds since the epoch. latency: of a call, in
    seconds.
    """
    calls = sorted(lab.calls(), key=lambda call: call["began"])
    # when each key was asked, and when those that were asked again had been asked
    asked, again = {}, []
    for call in calls:
        if call["customer"] in asked:
            again.append(asked[call["customer"]])
        asked[call["customer"]] = call["began"]
    begins, ends = [0.0, *faults][:-1], [*faults, calls[-1]["began"]][1:]
    repeated = tuple(
        sum(begin < at <= fault for at in again)
        for begin, fault in zip(begins, faults, strict=True)
    )
    idle = tuple(_idle(calls, fault, end, latency) for fault, end in zip(faults, ends, strict=True))
    return Seen(len(calls), len(again), max(call["in_flight"] for call in calls), repeated, idle)


def _idle(calls, fault, end, latency):
    if len({call["from"] for call in calls if fault - BEFORE < call["began"] < fault}) < 2:
        return None
    counts_from = fault + 2 * latency  # until then the vendor counts calls of a host that is gone
    longest, since = 0.0, fault  # when all slots were in use for the last time
    for before, call in itertools.pairwise(calls):
        if fault < call["began"] < end:
            pause = call["began"] - before["began"]
            if pause > BEFORE:  # no task asked: Spark had not noticed yet that a host was gone
                since += pause
            longest = max(longest, call["began"] - since)
            if call["began"] > counts_from and call["in_flight"] == LIMIT:
                since = call["began"]
    return round(longest, 1)


def check_rows(lab, rows, day=DAY):
    """Each row once, with the value of its customer."""
    found = lab.published(day)
    assert sorted(order for order, *_ in found) == list(range(rows))
    for order, customer, score, grade, status in found:
        truth = rating(customer)
        expected = (
            (None, None, "miss")
            if truth is None
            else (truth["score"], truth["rating"]["grade"], "ok")
        )
        assert (score, grade, status) == expected, (order, customer, score, grade, status)


def repeats_allowed(latency):
    """Calls in flight, and those whose answers came since the last stored part began."""
    return LIMIT + round(LIMIT * (FLUSH + UPLOAD) / latency)
