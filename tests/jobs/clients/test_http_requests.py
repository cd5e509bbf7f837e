"""Requests with bodies and headers, and answers in pages, against a real server."""

import asyncio
import dataclasses
import datetime as dt

import pytest
from aiohttp import web

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.http.http_client import HttpClient
from tidegate import ApiKey, Env, HttpLookup, Pages, Service


def lookup(url, **fields):
    standard = {
        "name": "place",
        "service": Service(name="geo", url=url, max_concurrency=4),
        "request": "GET /places/{q}",
        "keys": {"q": "q"},
        "returns": "lat DOUBLE",
        "timeout": 5.0,
        "attempt_timeout": 5.0,
    }
    return HttpLookup(**standard | fields)


def ask(declared, *keys):
    """What a caller says to each key, one after another: an answer's columns, None, or the
    exception.
    """

    async def message(caller, key):
        try:
            answer = await caller.call(key)
            return None if answer is None else caller.columns(answer)
        except (CallFailed, Throttled, ValueError) as error:
            return error

    async def main():
        caller = HttpClient(declared, 4)
        await caller.open()
        try:
            return [await message(caller, key) for key in keys]
        finally:
            await caller.close()

    return asyncio.run(main())


@pytest.fixture
def heard(service):
    """What the service was asked: method, path, headers and JSON of each request."""
    requests = []

    async def answer(request):
        body = await request.json() if request.can_read_body else None
        requests.append((request.method, request.raw_path, request.headers.copy(), body))
        return web.json_response({"lat": 40.6})

    service.answer = answer
    return requests


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_request_body_has_the_keys_as_json_values(service, heard, method):
    declared = lookup(
        service.url,
        request=f"{method} /v2/one?lang={{lang}}",
        keys={"lang": "lang", "n": "n", "at": "at", "q": "q"},
        body={"query": {"n": "{n}", "at": "{at}"}, "text": "near {q}", "limit": 1, "exact": True},
    )
    assert ask(declared, ("de", 7, dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC), 'a "b" {c}')) == [
        (40.6,)
    ]
    ((sent_method, path, headers, body),) = heard
    assert (sent_method, path, headers["Content-Type"]) == (
        method,
        "/v2/one?lang=de",
        "application/json",
    )
    assert body == {
        "query": {"n": 7, "at": "2013-01-10T05:00:00Z"}, "text": 'near a "b" {c}', "limit": 1,
        "exact": True,
    }  # fmt: skip


def test_a_post_without_a_body_is_sent_as_a_post(service, heard):
    assert ask(lookup(service.url, request="POST /places/{q}"), ("a",)) == [(40.6,)]
    assert heard[0][0] == "POST"
    assert heard[0][3] is None


def test_a_key_that_json_cannot_hold_is_an_error_of_its_row_and_nothing_is_sent(service, heard):
    declared = lookup(service.url, request="POST /v2", body={"q": "{q}"})
    (failure, answer) = ask(declared, (float("nan"),), (1.0,))
    assert str(failure) == "nan is not a JSON number"
    assert not failure.passing
    assert answer == (40.6,)
    assert len(heard) == 1


def test_declared_headers_go_with_every_request_and_keep_the_authentication(
    service, heard, monkeypatch
):
    monkeypatch.setenv("KEY", "s3cr3t-Zq9")
    declared = lookup(
        service.url,
        request="POST /v2",
        body={"q": "{q}"},
        headers={"accept-language": "de", "content-type": "application/vnd.api+json"},
        service=Service(name="geo", url=service.url, max_concurrency=4, auth=ApiKey(Env("KEY"))),
    )
    ask(declared, ("a",))
    headers = heard[0][2]
    assert headers["accept-language"] == "de"
    assert headers["X-Api-Key"] == "s3cr3t-Zq9"
    assert [value for name, value in headers.items() if name.lower() == "content-type"] == [
        "application/vnd.api+json"
    ]


# -- pages
# --------------------------------------------------------------------------------------------------
STOPS = lambda *names: [{"name": name} for name in names]  # noqa: E731 - a word of these tests


def paged(service, site, **fields):
    """A lookup of a list that goes on: a page by path and query, as JSON or as what makes a
    response.
    """

    async def answer(request):
        page = site[request.raw_path]
        return page() if callable(page) else web.json_response(page)

    service.answer = answer
    standard = {
        "returns": "names ARRAY<STRING>, total INT",
        "paths": {"names": "$.stops[*].name"},
        "pages": Pages(next="$.next", items="$.stops", max_pages=3),
    }
    return lookup(service.url, **standard | fields)


PAGES = {
    "/places/a": {"total": 5, "stops": STOPS("1", "2"), "next": "/places/a?page=2"},
    "/places/a?page=2": {"stops": STOPS("3", "4"), "next": "?page=3"},
    "/places/a?page=3": {"stops": STOPS("5"), "next": None},
    "/places/b": {"total": 0, "stops": []},
}


def test_pages_are_joined_into_an_answer_with_one_list(service):
    assert ask(paged(service, PAGES), ("a",), ("b",)) == [(["1", "2", "3", "4", "5"], 5), ([], 0)]
    assert service.log == ["/places/a", "/places/a?page=2", "/places/a?page=3", "/places/b"]


def test_without_items_the_answer_is_the_list_of_the_pages(service):
    declared = paged(
        service,
        PAGES,
        pages=Pages(next="$.next", max_pages=3),
        paths={"names": "$[*].stops[*].name", "total": "$[0].total"},
    )
    assert ask(declared, ("a",), ("b",)) == [(["1", "2", "3", "4", "5"], 5), ([], 0)]


def test_a_bare_list_is_continued_by_a_cursor(service):
    pages = {
        "/places/a?size=2": {"stops": STOPS("1", "2"), "next": "x=&y"},
        "/places/a?size=2&cursor=x%3D%26y": {"stops": STOPS("3"), "next": 7},
        "/places/a?size=2&cursor=7": {"stops": STOPS("4"), "next": ""},
    }
    declared = paged(
        service,
        pages,
        request="GET /places/{q}?size=2",
        pages=Pages(next="$.next", items="$.stops", max_pages=3, parameter="cursor"),
    )
    assert ask(declared, ("a",)) == [(["1", "2", "3", "4"], None)]


@pytest.mark.parametrize(
    "link",
    [
        '<{next}>; rel="next", </places/a>; rel="first"',
        '</places/a>; rel="first prev"; title="a, b", <{next}>; title="x"; rel=next',
        '<{next}>; REL="last next"',
        '<{next}>; title="see <b>"; rel=next',
        "</places/a>; rel='first', <{next}>; rel='next'",  # no form of RFC 8288, and sent all the same
    ],
)
def test_a_link_header_leads_from_a_list_to_the_next_page(service, link):
    async def answer(request):
        page = int(request.query.get("page", 1))
        headers = {"Link": link.format(next=f"/places/a?page={page + 1}")} if page < 3 else {}
        return web.json_response([{"name": str(page)}], headers=headers)

    service.answer = answer
    declared = lookup(
        service.url,
        returns="names ARRAY<STRING>",
        paths={"names": "$[*].name"},
        pages=Pages(next="Link", items="$", max_pages=3),
    )
    assert ask(declared, ("a",)) == [(["1", "2", "3"],)]


def test_the_last_item_is_the_cursor_while_the_answer_announces_more_items(service):
    pages = {
        "/places/a": {"stops": STOPS("1", "2"), "more": True},
        "/places/a?after=2": {"stops": STOPS("3"), "more": False},
        "/places/b": {"stops": [], "more": True},
        "/places/c": {"stops": STOPS("4"), "more": "no"},
    }
    pages_of = Pages(
        next="$.stops[-1].name", parameter="after", more="$.more", items="$.stops", max_pages=3
    )
    found = ask(paged(service, pages, pages=pages_of), ("a",), ("b",), ("c",))
    assert found[0] == (["1", "2", "3"], None)
    assert [str(error) for error in found[1:]] == [
        "$.more is true, but $.stops[-1].name leads nowhere",
        "$.more is 'no', not true or false",
    ]


def test_a_page_without_the_more_field_is_the_last_only_if_an_earlier_page_had_the_field(service):
    pages = {
        "/places/a": {"stops": STOPS("1", "2"), "more": True},
        "/places/a?after=2": {"stops": STOPS("3")},
        "/places/b": {"stops": []},
        "/places/c": {"stops": STOPS("3"), "more": None},
        "/places/d": {"stops": STOPS("4"), "has_more": True},
        "/places/d?after=4": {"stops": STOPS("5")},
        "/places/d?after=5": {"stops": []},
    }
    pages_of = Pages(
        next="$.stops[-1].name", parameter="after", more="$.more", items="$.stops", max_pages=3
    )
    found = ask(paged(service, pages, pages=pages_of), ("a",), ("b",), ("c",), ("d",))
    assert found == [(["1", "2", "3"], None), ([], None), (["3"], None), (["4", "5"], None)]


def test_the_request_for_the_next_page_differs_only_in_its_page_parameter(service):
    first = "/places?q=new%20york&name=%FC&flag"
    pages = {
        f"{first}&cursor=1": {"stops": STOPS("1"), "next": "2+"},
        f"{first}&cursor=2%2B": {"stops": STOPS("2"), "next": None},
    }
    declared = paged(
        service,
        pages,
        request="GET /places?q={q}&name=%FC&flag&cursor=1",
        pages=Pages(next="$.next", items="$.stops", max_pages=3, parameter="cursor"),
    )
    assert ask(declared, ("new york",)) == [(["1", "2"], None)]


@pytest.mark.parametrize(
    ("link", "requested"),
    [
        ("/places/a?after=a%2Fb%3d&sign=%28%2B%29#2", "/places/a?after=a%2Fb%3d&sign=%28%2B%29"),
        ("?after=x+y%20z%21", "/places/a?after=x+y%20z%21"),
        ("?after=%7Bü}", "/places/a?after=%7B%C3%BC%7D"),
    ],
)
def test_the_query_of_a_link_to_a_page_is_sent_as_the_service_gave_it(service, link, requested):
    pages = {
        "/places/a": {"stops": STOPS("1"), "next": link},
        requested: {"stops": STOPS("2"), "next": None},
    }
    assert ask(paged(service, pages), ("a",)) == [(["1", "2"], None)]


@pytest.mark.parametrize("link", ["/places/a%3Bb?cursor=x%2Fy", "?cursor=x%2Fy"])
def test_the_path_of_a_link_to_a_page_is_sent_as_the_service_gave_it(service, link):
    pages = {
        "/places/a%3Bb": {"stops": STOPS("1"), "next": link},
        "/places/a%3Bb?cursor=x%2Fy": {"stops": STOPS("2")},
    }
    assert ask(paged(service, pages), ("a;b",)) == [(["1", "2"], None)]


@pytest.mark.parametrize("link", ["next", "../a%2Fb/next", "./next#2"])
def test_a_relative_link_of_a_page_keeps_the_escapes_of_its_path(service, link):
    pages = {
        "/places/a%2Fb/list": {"stops": STOPS("1"), "next": link},
        "/places/a%2Fb/next": {"stops": STOPS("2")},
    }
    declared = paged(service, pages, request="GET /places/{q}/list")
    assert ask(declared, ("a/b",)) == [(["1", "2"], None)]


def test_a_link_to_a_page_may_spell_the_host_of_the_service_in_another_case(service):
    url = service.url.replace("127.0.0.1", "LocalHost")
    pages = PAGES | {"/places/a": {"stops": STOPS("1"), "next": f"{url.lower()}/places/b"}}
    declared = dataclasses.replace(
        paged(service, pages), service=Service(name="geo", url=url, max_concurrency=4)
    )
    assert ask(declared, ("a",)) == [(["1"], None)]


def test_more_pages_than_max_pages_are_an_error(service):
    declared = paged(service, PAGES, pages=Pages(next="$.next", items="$.stops", max_pages=2))
    (failure,) = ask(declared, ("a",))
    assert str(failure) == "the answer has more than 2 pages (max_pages)"
    assert not failure.passing
    assert len(service.log) == 2


def test_pages_that_form_a_circle_are_an_error(service):
    pages = PAGES | {"/places/a?page=2": {"stops": [], "next": "/places/a"}}
    (failure,) = ask(paged(service, pages), ("a",))
    assert str(failure) == "page 3 is page 1 again"


@pytest.mark.parametrize(
    "place",
    [
        "http://elsewhere.example/x",
        "//elsewhere.example/x",
        "https://{host}/x",
        "http://u:p@{host}/x",
    ],
)
def test_a_page_at_another_address_is_not_requested_and_gets_no_token(service, monkeypatch, place):
    monkeypatch.setenv("KEY", "s3cr3t-Zq9")
    link = place.replace("{host}", service.url.removeprefix("http://"))
    pages = {"/places/a": {"stops": [], "next": link}}
    declared = dataclasses.replace(
        paged(service, pages),
        service=Service(name="geo", url=service.url, max_concurrency=4, auth=ApiKey(Env("KEY"))),
    )
    (failure,) = ask(declared, ("a",))
    assert str(failure).endswith(f"pages are requested only at {service.url}")
    assert not failure.passing
    assert service.log == ["/places/a"]


@pytest.mark.parametrize("value", [7, True, ["x"], {}, {"href": "/places/a?page=2"}, "http://[x"])
def test_a_next_page_that_is_not_an_address_is_an_error_and_is_not_requested(service, value):
    (failure,) = ask(paged(service, {"/places/a": {"stops": [], "next": value}}), ("a",))
    assert isinstance(failure, CallFailed)
    assert str(failure) == f"$.next is {value!r}, not an address of a page"
    assert service.log == ["/places/a"]


@pytest.mark.parametrize(
    "value", ["/other/places", "../../other", "/tenant/..%2fother", "/tenant/%2e%2e;/other"]
)
def test_a_page_outside_the_url_of_the_service_is_not_requested(service, value):
    service.answer = lambda request: respond({"stops": ["x"], "next": value})
    declared = paged(service, {})
    inside = dataclasses.replace(declared.service, url=service.url + "/tenant")
    service.answer = lambda request: respond({"stops": ["x"], "next": value})
    (failure,) = ask(dataclasses.replace(declared, service=inside), ("a",))
    assert "which is not below the service's url; it is not requested" in str(failure)
    assert len(service.log) == 1


async def respond(answer):
    return web.json_response(answer)


def test_a_page_without_its_list_is_an_error_of_the_answer(service):
    pages = PAGES | {"/places/a?page=3": {"stops": None}}
    (failure,) = ask(paged(service, pages), ("a",))
    assert str(failure) == "page 3 has no list at $.stops"


def test_a_failure_at_any_page_fails_the_answer(service):
    pages = PAGES | {"/places/a?page=2": lambda: web.Response(status=500)}
    (failure,) = ask(paged(service, pages), ("a",))
    assert failure.passing
    pages |= {"/places/a?page=2": lambda: web.Response(status=404)}
    (failure,) = ask(paged(service, pages), ("a",))
    assert isinstance(failure, CallFailed)
    pages |= {"/places/a?page=2": {"status": "OVER_LIMIT"}}
    (failure,) = ask(paged(service, pages, throttled_when=["$.status == 'OVER_LIMIT'"]), ("a",))
    assert isinstance(failure, Throttled)


def test_a_cut_later_page_cuts_the_answer(service):
    pages = PAGES | {"/places/a?page=2": {"stops": STOPS("2"), "incomplete": True}}
    (failure,) = ask(paged(service, pages, cut_when="$.incomplete == true"), ("a",))
    assert str(failure).startswith("it is cut (cut_when)")
    assert not failure.passing


def test_a_miss_is_read_from_the_first_page(service):
    pages = {"/places/a": lambda: web.Response(status=404), "/places/b": {"status": "NONE"}}
    assert ask(paged(service, pages, miss_when=[404, "$.status == 'NONE'"]), ("a",), ("b",)) == [
        None,
        None,
    ]


def test_size_and_time_of_an_answer_cover_all_pages(service):
    pages = {
        f"/places/a{'?page=' + str(n) if n else ''}": {
            "stops": ["x" * 400],
            "next": f"?page={n + 1}",
        }
        for n in range(9)
    }
    declared = paged(
        service,
        pages,
        max_answer_bytes=1000,
        pages=Pages(next="$.next", items="$.stops", max_pages=9),
    )
    (failure,) = ask(declared, ("a",))
    assert str(failure) == "the answer is larger than 1,000 bytes (max_answer_bytes)"
    assert len(service.log) == 3

    async def slow(request):
        await asyncio.sleep(0.2)
        return web.json_response(pages[request.raw_path])

    service.answer = slow
    (failure,) = ask(
        dataclasses.replace(declared, attempt_timeout=1.5, max_answer_bytes=10_000), ("a",)
    )
    assert str(failure).startswith("no answer within 1.5 s, with ")
    assert failure.passing
