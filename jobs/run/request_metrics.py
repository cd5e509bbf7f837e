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
    counts = [count for _, count in reported]
    most: dict[int, int] = {}
    for task, count in reported:
        most[task] = max(count.most_at_once, most.get(task, 0))
    requests = RequestMetrics(
        sent=sum(count.sent.total() for count in counts),
        # a request for a single key is a retry when the row's attempt is not its first
        retried=sum(count.repeated for count in counts)
        + (lookup.retried if facts.batch_size == 1 else 0),
        throttled=sum(count.throttled for count in counts),
        answered=sum(count.answered for count in counts),
        items=sum(count.items.total() for count in counts),
        most_at_once=tuple(most.get(task, 0) for task in range(max(most) + 1)),
        in_doubt=sum(count.in_doubt for count in counts),
        unknown_use=sum(count.unknown_use for count in counts),
        repaired=sum(count.repaired for count in counts),
    )
    known = replace(lookup, requests=requests, billed=_billed(facts, lookup, requests, counts))
    if facts.batch_size == 1:
        return known
    # a key's attempt includes its wait for other keys, so that the time of attempts gives no limit
    return replace(known, limit_s=sum(count.seconds for count in counts) / facts.max_concurrency)


def _billed(
    facts: LookupFacts, lookup: LookupMetrics, requests: RequestMetrics, counts: list[RequestCounts]
) -> Billed | None:
    if lookup.billed is None:
        return None
    usage = sum((count.usage() for count in counts), Counter())
    lost = sum((count.lost for count in counts), Counter()) | Counter(
        item=max(0, requests.items - lookup.answered),
        request=max(0, requests.sent - requests.answered),
    )
    return replace(run_bills.billed(facts, usage, lost), saved=lookup.billed.saved)
