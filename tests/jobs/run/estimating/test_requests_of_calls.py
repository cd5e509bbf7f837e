"""How many requests calls will send, from the declaration and the last run."""

import pytest

from jobs.run.estimating.requests_of_calls import RequestCount, count_requests
from jobs.schema.records import LookupMetrics, RequestMetrics
from tidegate import Batch, HttpLookup, Pages, Service
from tidegate import lookup as coroutine_lookup

SERVICE = Service(name="s", url="http://s", max_concurrency=4)
PAGED = {"request": "GET /v/{k}", "pages": Pages(next="$.next", max_pages=9)}
LAST = LookupMetrics(
    name="asked", outcomes={}, calls=10, retried=0, wall_s=1.0, limit_s=1.0, latency_p50_ms=1.0,
    latency_p99_ms=1.0, rows_called=10,
    requests=RequestMetrics(sent=25, retried=0, throttled=0, answered=25, items=25),
)  # fmt: skip


def asked(**declared):
    return HttpLookup(
        name="asked", service=SERVICE, keys={"k": "k"}, returns="x INT", timeout=5.0, **declared
    )


@coroutine_lookup(service=SERVICE, keys={"k": "k"}, returns="x INT", timeout=5.0)
async def coroutine(row, http):
    return {"x": row.k}


@pytest.mark.parametrize(
    ("declared", "last", "expected"),
    [
        (asked(request="GET /v/{k}"), LAST, RequestCount(101)),
        (
            asked(request="POST /v", batch=Batch(max_items=10, max_wait=0.1, item="{k}")),
            LAST,
            RequestCount(11),
        ),
        (asked(**PAGED), None, RequestCount(101, are_least=True)),
        (asked(**PAGED), LAST, RequestCount(253)),
        (coroutine, None, RequestCount(101, are_least=True)),
        (coroutine, LAST, RequestCount(253)),
    ],
)
def test_pages_and_coroutines_send_as_many_requests_per_call_as_on_the_last_run(
    declared, last, expected
):
    assert count_requests(declared, 101, last) == expected
