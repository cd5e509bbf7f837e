"""What tells a throttled client from a denied one, and how long it is to wait."""

import datetime as dt
import email.utils
import math
import random
import time

import pytest
from aiohttp import web
from multidict import CIMultiDict

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.http import throttling
from jobs.errors import AccessRefused
from tests.jobs.clients.http.test_http_client import ask, lookup, replies
from tests.jobs.declare.test_lookups_guide import enriched
from tidegate import Batch, Service

NOW = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)


def drawn(draw):
    """Headers of an answer, and by the documents of their vendors: whether it is throttled, and for
    how long (s).
    """
    headers, throttled, seconds = {}, False, 1.0
    if draw.random() < 0.6:
        left = draw.choice(("0", " 0 ", "000", "1", "57", "-", "10"))
        headers[
            draw.choice(("X-RateLimit-Remaining", "x-ratelimit-remaining", "RateLimit-Remaining"))
        ] = left
        throttled = left.strip("0 ") == ""
        if draw.random() < 0.6:
            reset = draw.randrange(0, 4000)
            said = {
                "in seconds": reset, "at": int(NOW.timestamp()) + reset,
                "at, in ms": (int(NOW.timestamp()) + reset) * 1000,
            }[draw.choice(("in seconds", "at", "at, in ms"))]  # fmt: skip
            headers[draw.choice(("X-RateLimit-Reset", "RateLimit-Reset"))] = str(said)
            seconds = float(reset) if throttled else seconds
    elif draw.random() < 0.4:
        left, reset = draw.choice((0, 1, 10)), draw.randrange(4000)
        headers["RateLimit"] = f'"hourly";r={left};t={reset}'
        throttled = left == 0
        seconds = float(reset) if throttled else seconds
    if draw.random() < 0.4:
        wait = draw.choice((0, 7, 1.5, 3600))
        is_date = draw.random() < 0.5 and wait != 1.5
        when = email.utils.format_datetime(NOW + dt.timedelta(seconds=wait), usegmt=True)
        headers["Retry-After"] = when if is_date else str(wait)
        throttled, seconds = True, float(wait)
    elif draw.random() < 0.2:
        headers["Retry-After"] = draw.choice(("soon", "", "nan", "inf"))
    return CIMultiDict(headers), throttled, seconds or throttling.DEFAULT_PAUSE


def test_a_403_that_says_when_to_call_again_is_throttling():
    draw = random.Random(20)
    for _ in range(3000):
        headers, throttled, seconds = drawn(draw)
        assert throttling.is_throttled(403, headers) == throttled, headers
        assert not throttling.is_throttled(401, headers)
        assert throttling.pause(headers, lambda: NOW) == seconds, headers


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"X-RateLimit-Remaining": "0"}, 1),
        ({"RateLimit": '"a";r=0;t=30'}, 30),
    ],
)
def test_a_403_for_a_used_up_rate_does_not_stop_the_run(service, headers, seconds):
    replies(
        service,
        lambda: web.json_response(
            {"message": "API rate limit exceeded"}, status=403, headers=headers
        ),
    )
    (limit,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(limit, Throttled)
    assert str(limit) == '403 Forbidden: {"message": "API rate limit exceeded"}'
    assert limit.seconds == seconds


@pytest.mark.parametrize("headers", [{}, {"X-RateLimit-Remaining": "12"}, {"Retry-After": "later"}])
def test_any_other_403_denies_access(service, headers):
    replies(service, lambda: web.json_response({}, status=403, headers=headers))
    (refused,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(refused, AccessRefused)


def test_a_403_declared_as_an_error_is_an_error(service):
    replies(service, lambda: web.json_response({}, status=403, headers={"Retry-After": "7"}))
    limited = Service(name="weather", url=service.url, max_concurrency=4, stop_on=(401, 402))
    declared = lookup(service.url, service=limited, error_when=(403,))
    (failure,) = ask(declared, ("JFK",))
    assert isinstance(failure, CallFailed)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (email.utils.format_datetime(NOW + dt.timedelta(seconds=30), usegmt=True), 30.0),
        (
            email.utils.format_datetime(NOW - dt.timedelta(days=1), usegmt=True),
            throttling.DEFAULT_PAUSE,
        ),
        ("Thu, 26 Nov 2026 12:00:30 -0000", 30.0),  # UTC of unknown origin
        ("Wed, 99 Foo 2015 07:28:00 GMT", throttling.DEFAULT_PAUSE),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", throttling.DEFAULT_PAUSE),
    ],
)
def test_retry_after_may_be_a_date(header, seconds):
    assert throttling.pause({"Retry-After": header}, lambda: NOW) == seconds


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms"])
def test_a_wait_in_milliseconds_takes_precedence_over_a_wait_in_seconds(name):
    exact = CIMultiDict({name: "2250"})
    for headers in (exact, CIMultiDict({name: "2250", "Retry-After": "3"})):
        assert throttling.pause(headers, lambda: NOW) == 2.25
    assert throttling.is_throttled(403, exact)
    assert throttling.pause(CIMultiDict({name: "soon", "Retry-After": "3"}), lambda: NOW) == 3


@pytest.mark.parametrize("headers", [{"Retry-After": "0"}, {"retry-after-ms": "-3"}, {
    "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"}])  # fmt: skip
def test_throttling_without_a_wait_causes_the_default_pause(headers):
    assert throttling.pause(headers, lambda: NOW) == throttling.DEFAULT_PAUSE


VENDORS = {  # seconds until the reset -> the headers of an answer with which nothing is left
    "a duration": lambda seconds: {
        "x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "6m0s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": f"{int(seconds)}s{round(seconds % 1 * 1000)}ms",
    },
    "a time": lambda seconds: {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": after(seconds).isoformat().replace("+00:00", "Z"),
        "anthropic-ratelimit-input-tokens-remaining": "5",
        "anthropic-ratelimit-input-tokens-reset": after(3600).isoformat(),
    },
    "a draft": lambda seconds: {"ratelimit": f"limit=5, remaining=0, reset={math.ceil(seconds)}"},
    "since the epoch": lambda seconds: {
        "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(after(seconds).timestamp()),
    },
}  # fmt: skip


def after(seconds):
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1s", 1.0), ("6m0s", 360.0), ("250ms", 0.25), ("1h2m3.5s", 3723.5), ("30", 30.0),
        ("0.5", 0.5), (str(NOW.timestamp() + 30), 30.0), (str(NOW.timestamp() * 1000 + 30_000), 30.0),
        ("2026-11-26T12:00:30Z", 30.0), ("2026-11-26T13:00:30+01:00", 30.0),
        (email.utils.format_datetime(NOW + dt.timedelta(seconds=30), usegmt=True), 30.0),
        ("", 1.0), ("soon", 1.0), ("6m0", 1.0), ("2026-11-26T12:00:30", 1.0), ("nan", 1.0),
    ],
)  # fmt: skip
def test_retry_after_and_the_reset_of_a_used_up_limit_are_read_in_each_form(reset, seconds):
    retry_after = throttling.pause({"Retry-After": reset}, lambda: NOW)
    assert retry_after == pytest.approx(seconds)
    for remaining, name in (
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
        ("X-RateLimit-Remaining", "X-RateLimit-Reset"),
    ):
        headers = CIMultiDict({remaining: "0", name: reset})
        assert throttling.pause(headers, lambda: NOW) == pytest.approx(seconds)
        left = CIMultiDict({remaining: "1", name: reset})
        assert throttling.until_reset(left, lambda: NOW) is None


def test_of_several_used_up_limits_the_last_reset_counts():
    policies = '"a";r=3;t=90, "b";r=0;t=30, "c";r=0;t=60'
    beside = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "45s"}
    headers = CIMultiDict({"RateLimit": policies, **beside})
    assert throttling.pause(headers, lambda: NOW) == 60


@pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
def test_no_call_leaves_while_an_answer_says_that_nothing_is_left(service, vendor):
    window, most, begins, refused = 0.6 if "limit=" not in str(vendor(0.6)) else 1.0, 4, [], []

    async def answer(_request):
        now = time.monotonic()
        begins[:] = [begin for begin in begins if now - begin < window]
        if len(begins) >= most:
            refused.append(now)
            return web.json_response({}, status=429)
        begins.append(now)
        left = {} if len(begins) < most else vendor(begins[0] + window - now)
        return web.json_response({"temp_c": 1.0, "gust_mph": 2.0}, headers=left)

    service.answer = answer
    limited = Service(name="weather", url=service.url, max_concurrency=1)
    rows = enriched(lookup(service.url, service=limited), *((f"K{row}",) for row in range(10)))
    assert len(rows) == 10
    assert not refused


def test_no_batch_leaves_while_an_answer_says_that_nothing_is_left(service):
    came = []

    async def answer(request):
        came.append(time.monotonic())
        items = [{**item, "temp_c": 1.0} for item in await request.json()]
        used_up = {"RateLimit": '"second";r=0;t=1'} if len(came) == 1 else {}
        return web.json_response(items, headers=used_up)

    service.answer = answer
    limited = Service(name="weather", url=service.url, max_concurrency=1)
    together = Batch(max_items=2, max_wait=0.01, item={"k": "{origin}"}, match="$.k")
    batched = lookup(
        service.url, service=limited, request="POST /batch", batch=together,
        returns="temp_c DOUBLE", paths={},
    )  # fmt: skip
    assert len(enriched(batched, *((f"K{row}",) for row in range(6)))) == 6
    assert len(came) == 3
    assert came[1] - came[0] > 0.9
