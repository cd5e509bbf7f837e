"""Whole responses that cannot be used are final: a content coding, a status, an object with a
member twice.
"""

import gzip
import json
import zlib

import pytest
from aiohttp import web

from jobs.clients.client import CallFailed
from jobs.errors import DeclarationError
from tests.jobs.clients.http.test_http_client import ask, lookup, replies
from tests.jobs.clients.test_http_batches import ask as ask_batch
from tests.jobs.clients.test_http_batches import lookup as batched

BODY = json.dumps({"temp_c": 1.5, "wind": {"speed": 3.25}}).encode()


def raw_deflate(body):
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(body) + packing.flush()


def answer(service, body, status=200, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    replies(
        service,
        lambda: web.Response(
            body=body, status=status, headers=named, content_type="application/json"
        ),
    )


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("br", b"\x0b\x02\x80{}\x03"),
        ("zstd", b"(\xb5/\xfd\x04\x00\x11\x00\x00{}"),
        ("gzip", BODY),
        ("deflate", BODY),
        (
            "gzip",
            gzip.compress(BODY, mtime=0)[:12] + b"\xff\xff" + gzip.compress(BODY, mtime=0)[14:],
        ),
        ("gzip, gzip", gzip.compress(gzip.compress(BODY, mtime=0), mtime=0)),
    ],
)
def test_a_whole_body_that_cannot_be_decoded_is_a_final_failure(service, coding, body):
    answer(service, body, Content_Encoding=coding)
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert not failure.passing
    assert str(failure).startswith("the answer cannot be decoded: ")
    assert coding in str(failure)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(BODY, mtime=0)),
        ("X-GZIP", gzip.compress(BODY[:9], mtime=0) + gzip.compress(BODY[9:], mtime=0) + bytes(20)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", raw_deflate(BODY)),
        ("identity", BODY),
        ("gzip", gzip.compress(BODY, mtime=0) + b"\r\n"),
        ("deflate", zlib.compress(BODY) + b"end"),
    ],
)
def test_each_accepted_content_coding_is_decoded(service, coding, body):
    answer(service, body, Content_Encoding=coding)
    assert ask(lookup(service.url), ("JFK",)) == [(1.5, 3.25)]


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("UTF-8", BODY),
        ("none", BODY),
        ("aws-chunked", BODY),
        ("gzip,aws-chunked", gzip.compress(BODY, mtime=0)),
    ],
)
def test_an_unknown_content_coding_leaves_the_body_unchanged(service, coding, body):
    answer(service, body, Content_Encoding=coding)
    assert ask(lookup(service.url), ("JFK",)) == [(1.5, 3.25)]


@pytest.mark.parametrize(
    "number", ["1e-99999999999999999999", "0e99999999999999999999", "-1.5E-999999999"]
)
def test_a_number_whose_exponent_is_far_beyond_floats_is_an_error_of_its_row(service, number):
    answer(service, b'{"temp_c": 1.5, "wind": {"speed": %s}}' % number.encode())
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert str(failure) == f"the answer is not JSON: the exponent of {number} is out of range"
    assert not failure.passing


def test_the_body_of_an_error_is_decoded(service):
    answer(service, gzip.compress(b"no such station", mtime=0), status=400, Content_Encoding="gzip")
    assert str(ask(lookup(service.url), ("JFK",))[0]) == "400 Bad Request: no such station"
    answer(service, b"no such station", status=400, Content_Encoding="br")
    assert str(ask(lookup(service.url), ("JFK",))[0]) == "400 Bad Request"


def test_a_decoded_body_is_bounded(service):
    answer(service, gzip.compress(b" " * 1_000_000 + BODY, mtime=0), Content_Encoding="gzip")
    (failure,) = ask(lookup(service.url, max_answer_bytes=2_000), ("JFK",))
    assert str(failure) == "the answer is larger than 2,000 bytes (max_answer_bytes)"
    # longer than without the coding
    answer(service, gzip.compress(BODY, mtime=0), Content_Encoding="gzip")
    assert ask(lookup(service.url, max_answer_bytes=len(BODY)), ("JFK",)) == [(1.5, 3.25)]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (202, "202 Accepted: accepted, not answered; "),
        (207, "207 Multi-Status: several answers, each with a status"),
    ],
)
def test_a_202_or_207_is_an_error_unless_declared(service, status, reason):
    answer(service, BODY, status=status)
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert not failure.passing
    assert str(failure).startswith(reason)
    assert ask(lookup(service.url, answer_when=[status]), ("JFK",)) == [(1.5, 3.25)]
    assert ask(lookup(service.url, miss_when=[404, status]), ("JFK",)) == [None]
    (declared,) = ask(lookup(service.url, error_when=[status]), ("JFK",))
    assert not declared.passing
    answer(service, BODY, status=201)
    assert ask(lookup(service.url), ("JFK",)) == [(1.5, 3.25)]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"answer_when": [204]},
            "answer_when: 204 cannot be an answer; write one of 202, 206, 207, 208, and only here.",
        ),
        (
            {"answer_when": [202], "error_when": [202]},
            "answer_when: 202 is in error_when too; write one of ",
        ),
        ({"answer_when": 202}, "answer_when is 202; it must be a list, such as [202]."),
    ],
)
def test_answer_when_accepts_statuses_that_are_errors_by_default(fields, why):
    with pytest.raises(DeclarationError) as refused:
        lookup("http://localhost", **fields)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (b'{"temp_c": 1.5, "temp_c": 2.5, "wind": {"speed": 1}}', "temp_c"),
        (b'{"temp_c": 1.5, "wind": {"speed": 1, "speed": 1}}', "speed"),
        (b'{"temp_c": 1.5, "else": [{"\\u00e9": 1, "\xc3\xa9": 2}]}', "\\u00e9"),
    ],
)
def test_an_object_with_a_repeated_member_is_an_error_of_its_row(service, body, member):
    answer(service, body)
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert not failure.passing
    assert str(failure) == f'the answer is not JSON: an object has the member "{member}" twice'


def test_a_repeated_member_in_an_item_is_an_error_of_that_item(service):
    def reply(items):
        results = [json.dumps({"id": item["id"], "lat": 1.5}) for item in items]
        results[1] = results[1].replace('"lat"', '"lat": 2, "lat"')
        return ", ".join(results)

    async def in_list(request):
        items = (await request.json())["items"]
        return web.Response(
            text=f'{{"results": [{reply(items)}]}}', content_type="application/json"
        )

    async def beside_it(request):
        items = (await request.json())["items"]
        text = f'{{"results": [{reply(items)}], "of": {{"a": 1, "a": 2}}}}'
        return web.Response(text=text, content_type="application/json")

    service.answer = in_list
    first, second, third = ask_batch(batched(service.url), "a", "b", "c")
    assert (first, third) == ((1.5,), (1.5,))
    assert str(second) == 'the answer is not JSON: an object has the member "lat" twice'
    service.answer = beside_it
    for failure in ask_batch(batched(service.url), "a", "b"):
        assert str(failure) == 'the answer is not JSON: an object has the member "a" twice'
