"""Counts the requests that calls will send: pages and coroutines may send several for a call."""

import math
from dataclasses import dataclass

from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.lookup import Lookup
from jobs.declare.vendor_jobs import JobLookup
from jobs.schema.records import LookupMetrics


@dataclass(frozen=True)
class RequestCount:
    """The requests of some calls.

    Attributes:
        requests: Their number, with full batches.
        are_least: A call may send more, and no run has shown how many.
    """

    requests: int
    are_least: bool = False


def count_requests(lookup: Lookup, calls: int, last: LookupMetrics | None = None) -> RequestCount:
    """Return the requests of calls.

    Where a call may send several requests, the ratio in `last` is used, of the last run with calls.
    """
    each = lookup.max_items if isinstance(lookup, JobLookup) else lookup.batch_size
    pages = isinstance(lookup, HttpLookup) and lookup.pages is not None
    if not pages and (not isinstance(lookup, CoroutineLookup) or isinstance(lookup, JobLookup)):
        return RequestCount(-(-calls // each))
    if last is None or last.requests is None or not last.rows_called:
        return RequestCount(calls, are_least=calls > 0)
    return RequestCount(max(calls, math.ceil(calls * last.requests.sent / last.rows_called)))
