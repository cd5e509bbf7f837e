"""error_when and required: what looks like an answer and is none, against a real server."""

import dataclasses
from datetime import timedelta

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.clients.client import CallFailed
from jobs.declare.ledger_settings import FOR_EVER, Ttl
from jobs.declare.values.fingerprint import fingerprint
from jobs.errors import DeclarationError
from jobs.ledger.answers import StoredAnswer, as_table
from jobs.ledger.declared_folder import request_fingerprint
from jobs.run.keys.judged_answers import without_old_errors
from tests.golden.declared.golden import order, towns, weather
from tests.jobs.clients.http.test_http_client import ask, lookup, replies
from tidegate import ApiKey, Batch, Env, HttpLookup, OAuth2ClientCredentials, Pages, Service

HOUR_US = 3_600_000_000
GRAPHQL = {"errors": [{"message": "no such field"}], "data": {"temp_c": None}}


@pytest.mark.parametrize(
    ("fields", "answer", "why"),
    [
        (
            {"error_when": ["$.error"]},
            {"error": "quota"},
            'it is an error by error_when: {"error": "quota"}',
        ),
        ({"error_when": ["$.errors"]}, GRAPHQL, 'it is an error by error_when: {"errors": [{'),
        ({"error_when": ["$.status != 'OK'"]}, {}, "it is an error by error_when: {}"),
        ({"required": ["temp_c"]}, {}, "temp_c is null, and it is required"),
        (
            {"required": ["temp_c"]},
            {"temp_c": None, "wind": {"speed": 1.0}},
            "temp_c is null, and it is required",
        ),
        (
            {"required": ["temp_c", "wind_ms"]},
            {"temp_c": 1.0},
            "wind_ms is null, and it is required",
        ),
    ],
)
def test_an_answer_declared_as_an_error_is_an_error(service, fields, answer, why):
    replies(service, lambda: web.json_response(answer))
    (message,) = ask(lookup(service.url, **fields), ("JFK",))
    assert isinstance(message, ValueError)
    assert str(message).startswith(why)


def test_an_answer_that_is_null_is_a_miss_unless_it_is_declared_an_error(service):
    replies(service, lambda: web.json_response(None))
    assert ask(lookup(service.url), ("JFK",)) == [None]
    (message,) = ask(lookup(service.url, error_when=["$ == null"]), ("JFK",))
    assert isinstance(message, CallFailed)
    assert str(message) == "it is an error by error_when: null"


def test_an_answer_without_the_declared_error_is_ok(service):
    assert ask(
        lookup(service.url, error_when=["$.error"], required=["temp_c", "wind_ms"]), ("JFK",)
    ) == [(3.9, 5.1)]


@pytest.mark.parametrize("code", [202, 204, 302, 500])
def test_a_status_that_is_declared_an_error_is_final(service, code):
    replies(
        service,
        lambda: web.Response(text="" if code == 204 else '{"state": "queued"}', status=code),
    )
    (message,) = ask(lookup(service.url, error_when=[code]), ("JFK",))
    assert type(message).__name__ == "StatusFailed"
    assert not message.passing


def test_each_item_of_a_batch_is_judged_by_itself(service):
    async def answer(request):
        return web.json_response(
            [{"id": item["id"], **BATCHED[item["q"]]} for item in await request.json()]
        )

    service.answer = answer
    declared = HttpLookup(
        name="place", service=Service(name="geo", url=service.url, max_concurrency=1),
        request="POST /b", keys={"q": "q"}, returns="x INT", timeout=5.0, error_when=["$.error"],
        required=["x"],
        batch=Batch(max_items=3, max_wait=0.05, item={"id": "{id}", "q": "{q}"}, match="$.id"),
    )  # fmt: skip
    message = ask(declared, *((key,) for key in BATCHED))
    assert message[0] == (1,)
    assert "by error_when" in str(message[1])
    assert str(message[2]) == "x is null, and it is required"


BATCHED = {"good": {"x": 1}, "bad": {"error": "no"}, "empty": {}}


def test_a_batch_without_its_list_says_what_came_instead(service):
    replies(service, lambda: web.json_response({"error": "quota is used up"}))
    declared = lookup(
        service.url, request="POST /b", batch=Batch(max_items=2, max_wait=0.01, item="{origin}")
    )
    (message,) = ask(declared, ("JFK",))
    assert str(message) == (
        'the answer has no list at $ (batch.answers): {"error": "quota is used up"}'
    )


@pytest.mark.parametrize(
    ("items", "miss"), [("$.items", "$.error == 'NOT_FOUND'"), (None, "$[0].error == 'NOT_FOUND'")]
)
def test_a_first_page_that_is_a_miss_and_an_error_is_a_miss(service, items, miss):
    replies(service, lambda: web.json_response({"error": "NOT_FOUND"}))
    pages = Pages(next="$.next", items=items, max_pages=3)
    declared = lookup(service.url, pages=pages, error_when=["$.error"], miss_when=[miss])
    assert ask(declared, ("JFK",)) == [None]


def test_an_error_on_any_page_fails_the_answer(service):
    replies(
        service,
        lambda: web.json_response({"items": [1], "next": "?p=2"}),
        lambda: web.json_response({"items": [], "error": "cut short"}),
    )
    pages = Pages(next="$.next", items="$.items", max_pages=3)
    (message,) = ask(lookup(service.url, pages=pages, error_when=["$.error"]), ("JFK",))
    assert isinstance(message, CallFailed)
    assert "it is an error by error_when" in str(message)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"error_when": ["error"]}, "error_when: 'error' reads nothing of the answer"),
        ({"error_when": "$.error"}, "error_when is '$.error'; it must be a list"),
        ({"error_when": [404]}, "error_when: 404 is in miss_when too"),
        ({"error_when": [503]}, "error_when: 503 is in throttled_when too"),
        ({"error_when": [404], "miss_when": [404]}, "error_when: 404 is in miss_when too"),
        ({"miss_when": [404, 429]}, "miss_when: 429 is in throttled_when too"),
        ({"error_when": [403]}, "error_when: 403 is in the service's stop_on too"),
        ({"required": ["temp"]}, "required: 'temp' is not a column of returns"),
        ({"required": "temp_c"}, "required is 'temp_c'; it must be a list"),
    ],
)
def test_contradictory_declarations_of_errors_are_refused(fields, why):
    with pytest.raises(DeclarationError, match=r"^lookup weather: ") as refused:
        lookup("http://w", **fields)
    assert why in str(refused.value)


def test_fingerprints_stay_the_same_where_no_error_is_declared():
    auth = OAuth2ClientCredentials(token_url="http://t", client_id=Env("A"), client_secret=Env("B"))
    batched = HttpLookup(
        name="place",
        service=Service(name="geo", url="http://geo.example", max_concurrency=2, auth=auth),
        request="POST /b", keys={"q": "q"}, returns="x INT", timeout=5.0,
        batch=Batch(max_items=2, max_wait=0.1, item="{q}"), miss_when=["$.none"],
    )  # fmt: skip
    keyed = HttpLookup(
        name="place",
        service=Service(name="geo", url=Env("U"), max_concurrency=2, auth=ApiKey(Env("K"))),
        request="GET /{q}", keys={"q": "q"}, returns="x INT", timeout=5.0,
    )  # fmt: skip
    assert towns.fingerprint == "74b1d87d5e99a0a0"
    assert [fingerprint(batched), fingerprint(keyed)] == ["65bb88a5e3f3c250", "4e44a70cfc0d7cb0"]
    asked = [request_fingerprint(declared) for declared in (weather, order, batched, keyed)]
    assert asked == ["59c510f864bcbd28", "e67dbb0b2d27bd31", "d49677dac9942bbf", "94c30c45757f3851"]


def test_declaring_an_error_keeps_stored_answers_and_changes_the_declaration():
    strict = dataclasses.replace(weather, error_when=["$.error"], required=["temp_c"])
    assert request_fingerprint(strict) == request_fingerprint(weather)
    assert fingerprint(strict) != fingerprint(weather)


@pytest.mark.parametrize(
    ("ttl", "left"),
    [
        (Ttl(), ["old", "young"]),  # errors hold 0 s
        (Ttl(error=timedelta(hours=1)), ["old", "young", "young error"]),
        (Ttl(error=None), ["old", "young", "old error", "young error"]),
        (FOR_EVER, ["old", "young", "old error", "young error"]),  # replay, remap
    ],
)
def test_a_stored_answer_now_declared_an_error_expires_as_an_error_does(ttl, left):
    ages = {"old": 2, "young": 0, "old error": 2, "young error": 0}
    stored = [
        StoredAnswer(
            key,
            "ok",
            b'{"error": 1}' if "error" in key else b'{"temp_c": 1}',
            (10 - age) * HOUR_US,
            "r",
        )
        for key, age in ages.items()
    ]
    strict = lookup("http://w", error_when=["$.error"])
    known, asked = without_old_errors(strict, as_table(stored), ttl=ttl, now_us=10 * HOUR_US)
    assert known["key"].to_pylist() == left
    assert sorted(asked.to_pylist()) == sorted(set(ages) - set(left))
    assert without_old_errors(lookup("http://w"), as_table(stored), ttl=Ttl(), now_us=10 * HOUR_US)[
        1
    ] == pa.array([], pa.string())
