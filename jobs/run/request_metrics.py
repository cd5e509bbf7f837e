"""Adds the requests sent to services to the day's metrics.

A lost attempt of a task reports no requests, because no file has its rows; the next attempt reports
the calls whose answers it found.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jobs.clients.request_counter import RequestCounts
from jobs.schema.records import (
    Billed,
    DayMetrics,
    DeclaredFacts,
    LookupFacts,
    LookupMetrics,
    RequestMetrics,
)
from jobs.tables.records import run_bills
from jobs.task.output_files import TaskResult


def add_requests(
    figures: DayMetrics, declared: DeclaredFacts, results: Sequence[TaskResult]
) -> DayMetrics:
    """Return the figures with the sent requests, and with the calls of lost attempts.

    A lookup without a count of requests has none; nor has a function, whose counts hold only its
    second calls.
    """
    lookups = []
    for facts, of_files in zip(declared.lookups, figures.lookups, strict=True):
        lost = sum(result.earlier.get(facts.name, 0) for result in results)
        lookup = replace(of_files, calls=of_files.calls + lost)
        reported = [
            (result.task, result.requests[facts.name])
            for result in results
            if facts.name in result.requests and facts.kind != "function"
        ]
        lookups.append(_with_requests(facts, lookup, reported) if reported else lookup)
    return replace(figures, lookups=tuple(lookups))


def _with_requests(
    facts: LookupFacts, lookup: LookupMetrics, reported: list[tuple[int, RequestCounts]]
) -> LookupMetrics:
    counts = [one for _, one in reported]
    most: dict[int, int] = {}
    for task, one in reported:
        most[task] = max(one.most_at_once, most.get(task, 0))
    requests = RequestMetrics(
        sent=sum(one.sent.total() for one in counts),
        # a request for a single key is a retry when the row's attempt is not its first
        retried=sum(one.repeated for one in counts)
        + (lookup.retried if facts.batch_size == 1 else 0),
        throttled=sum(one.throttled for one in counts),
        answered=sum(one.answered for one in counts),
        items=sum(one.items.total() for one in counts),
        most_at_once=tuple(most.get(task, 0) for task in range(max(most) + 1)),
        in_doubt=sum(one.in_doubt for one in counts),
        unknown_use=sum(one.unknown_use for one in counts),
        repaired=sum(one.repaired for one in counts),
    )
    known = replace(lookup, requests=requests, billed=_billed(facts, lookup, requests, counts))
    if facts.batch_size == 1:
        return known
    # a key's attempt includes its wait for other keys, so that the time of attempts gives no limit
    return replace(known, limit_s=sum(one.seconds for one in counts) / facts.max_concurrency)


def _billed(
    facts: LookupFacts, lookup: LookupMetrics, requests: RequestMetrics, counts: list[RequestCounts]
) -> Billed | None:
    if lookup.billed is None:
        return None
    usage = sum((one.usage() for one in counts), Counter())
    lost = sum((one.lost for one in counts), Counter()) | Counter(
        item=max(0, requests.items - lookup.answered),
        request=max(0, requests.sent - requests.answered),
    )
    return replace(run_bills.billed(facts, usage, lost), saved=lookup.billed.saved)
