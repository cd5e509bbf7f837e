"""HttpLookup against a real server: what goes over the wire, and what each answer becomes."""

import asyncio
import datetime as dt
import decimal
import re
import ssl
import subprocess
from urllib.parse import unquote

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.http.http_client import MAY_LEAD_ELSEWHERE, NO_SEGMENT, HttpClient
from jobs.declare.values.addresses import leads_elsewhere
from jobs.declare.values.templates import escaped
from jobs.errors import RunStopped
from tidegate import HttpLookup, Pages, Service


def lookup(url, **fields):
    standard = {
        "name": "weather",
        "service": Service(name="weather_api", url=url, max_concurrency=4),
        "request": "GET /v1/{origin}",
        "keys": {"origin": "origin"},
        "returns": "temp_c DOUBLE, wind_ms DOUBLE",
        "paths": {"wind_ms": "$.wind.speed"},
        "timeout": 5.0,
        "attempt_timeout": 5.0,
    }
    return HttpLookup(**standard | fields)


def ask(declared, *keys, share=4):
    """What a caller says to each key, asked one after another: an answer's columns, None, or the
    exception.
    """

    async def main():
        caller = HttpClient(declared, share)
        await caller.open()
        try:
            return [await message(caller, key) for key in keys]
        finally:
            await caller.close()

    return asyncio.run(main())


async def message(caller, key):
    try:
        answer = await caller.call(key)
        return None if answer is None else caller.columns(answer)
    except (CallFailed, Throttled, RunStopped, ValueError) as error:
        return error


def replies(service, *responses):
    """Let the service give these responses in turn, the last one for ever; each is a function
    without arguments.
    """
    waiting = list(responses)

    async def answer(request):
        return (waiting.pop(0) if len(waiting) > 1 else waiting[0])()

    service.answer = answer


def status(code, **fields):
    return lambda: web.json_response({"error": "no"}, status=code, **fields)


def test_an_answer_becomes_the_columns_of_returns_by_their_paths(service):
    assert ask(lookup(service.url), ("JFK",)) == [(3.9, 5.1)]
    assert service.log == ["/v1/JFK"]


def test_a_json_path_without_a_match_gives_null(service):
    replies(service, lambda: web.json_response({"wind": {}, "temp_c": None}))
    assert ask(lookup(service.url), ("JFK",)) == [(None, None)]


def test_an_array_is_an_answer_and_a_path_picks_from_it(service):
    replies(service, lambda: web.json_response([{"t": 1.0}, {"t": 2.0}]))
    declared = lookup(service.url, returns="temp_c DOUBLE", paths={"temp_c": "$[1].t"})
    assert ask(declared, ("JFK",)) == [(2.0,)]


KEYS = [
    "a/b", "...", "ü €", "100%", "%2F", "a b+c", "x?y=1&z#f", "é́", "\U0001f6eb", "a\nb", "'\"<>",
    "~-._", "{origin}",
]  # fmt: skip


@pytest.mark.parametrize("value", KEYS)
def test_a_key_is_sent_as_a_single_path_segment_whatever_its_characters(service, value):
    ask(lookup(service.url), (value,))
    (path,) = service.log
    assert path.startswith("/v1/")
    assert "/" not in path.removeprefix("/v1/")
    assert unquote(path.removeprefix("/v1/")) == value


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_key_that_leads_to_another_address_is_an_error_without_a_call(service, value):
    (message,) = ask(lookup(service.url), (value,))
    assert isinstance(message, CallFailed)
    assert not message.passing
    assert str(message).startswith(
        f"a part of the path that a key makes is {value!r}, which leads to another address"
    )
    assert service.log == []


@pytest.mark.parametrize(
    "value", ["../admin", "%2e%2e", "%2E%2E%2fadmin", "a/../b", "..\\admin", "..;x", "./"]
)
def test_a_key_that_a_server_could_read_as_a_parent_folder_is_an_error_without_a_call(
    service, value
):
    (message,) = ask(lookup(service.url), (value,))
    assert isinstance(message, CallFailed)
    assert "which leads to another address; nothing was sent" in str(message)
    assert service.log == []


@given(path=st.text("a./\\;?%25eE", max_size=8).map("/".__add__))
def test_a_path_that_skips_the_check_of_its_parts_leads_to_no_other_address(path):
    parts = path.partition("?")[0].split("/")[1:]
    if not MAY_LEAD_ELSEWHERE.search(path):
        assert not any(part in NO_SEGMENT or leads_elsewhere(part) for part in parts)


@pytest.mark.parametrize(
    "request_", ["GET /v1/a{origin}/", "GET /v1//x?q={origin}", "GET /v1/{origin}-{origin}"]
)
def test_a_path_that_leads_to_no_other_address_is_requested(service, request_):
    ask(lookup(service.url, request=request_), ("",))
    assert len(service.log) == 1


def test_a_key_in_the_query_is_escaped(service):
    ask(lookup(service.url, request="GET /v1?q={origin}&x=1"), ("a&b=c",))
    assert service.log == ["/v1?q=a%26b%3Dc&x=1"]


@pytest.mark.parametrize("name", ["a.b", "a[0]", "0", "", "a b"])
def test_a_key_may_have_any_name(service, name):
    ask(
        lookup(service.url, keys={name: "origin"}, request=f"GET /v1/{{{name}}}/x{{{{y}}}}"),
        ("JFK",),
    )
    assert service.log == ["/v1/JFK/x{y}"]


def test_a_key_may_have_the_name_of_a_placeholder(service):
    async def answer(request):
        return web.json_response(await request.json())

    service.answer = answer
    declared = lookup(
        service.url, keys={"schema": "origin"}, request="POST /v1", idempotent=True,
        body={"temp_c": "{schema}"}, paths={}, returns="temp_c STRING",
    )  # fmt: skip
    assert ask(declared, ("JFK",)) == [("JFK",)]


def test_an_answer_that_a_json_path_cannot_follow_is_an_error_of_its_row(service):
    nested = {}
    for _ in range(150):
        nested = {"a": nested}
    replies(service, lambda: web.json_response(nested))
    for fields in (
        {"returns": "b ARRAY<STRING>", "paths": {"b": "$..b"}},
        {"miss_when": ["$..b"]},
        {"throttled_when": ["$..b"]},
        {"pages": Pages(next="$..next", max_pages=2)},
    ):
        (message,) = ask(lookup(service.url, **fields), ("JFK",))
        assert isinstance(message, CallFailed | ValueError)
        assert str(message) == "the answer is nested too deeply for a path with .."


def test_the_path_of_a_base_url_stays_in_front_of_the_request(service):
    ask(lookup(f"{service.url}/api/"), ("JFK",))
    assert service.log == ["/api/v1/JFK"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC), "2013-01-10T05%3A00%3A00Z"),
        (
            dt.datetime(2013, 1, 10, 5, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
            "2013-01-10T10%3A00%3A00Z",
        ),
        (dt.datetime(2013, 1, 10, 5), "2013-01-10T05%3A00%3A00Z"),  # noqa: DTZ001 - a timestamp without a zone
        (dt.datetime(2013, 1, 10, 5, 0, 0, 1, tzinfo=dt.UTC), "2013-01-10T05%3A00%3A00.000001Z"),
        (dt.date(2013, 1, 10), "2013-01-10"),
        (True, "true"),
        (7, "7"),
        (decimal.Decimal("1.50"), "1.50"),
        (decimal.Decimal("0.00000000"), "0.00000000"),  # 0E-8 to Python
        (2.5, "2.5"),
        (["a/b", decimal.Decimal("1.10")], "%5B%22a%2Fb%22%2C1.10%5D"),
        (
            {"lat": 1.5, "at": dt.date(2013, 1, 10)},
            "%7B%22lat%22%3A1.5%2C%22at%22%3A%222013-01-10%22%7D",
        ),
    ],
)
def test_each_type_of_key_is_written_in_one_way(value, written):
    assert escaped(value) == written


@pytest.mark.parametrize("condition", ["error_when", "miss_when"])
def test_an_error_or_miss_that_echoes_another_key_is_refused(service, condition):
    replies(service, lambda: web.json_response({"origin": "LAX", "refused": True}))
    declared = lookup(
        service.url, echo={"origin": "$.origin"}, **{condition: ["$.refused == true"]}
    )
    (message,) = ask(declared, ("JFK",))
    assert str(message) == "the answer names another origin (echo)"


@pytest.mark.parametrize("key", [7.0, 1e16, decimal.Decimal("1.50"), dt.date(2026, 1, 2)])
def test_an_answer_may_echo_its_key_as_it_was_sent(service, key):
    async def answer(request):
        return web.json_response({"origin": unquote(request.path.removeprefix("/v1/"))})

    service.answer = answer
    assert ask(lookup(service.url, echo={"origin": "$.origin"}), (key,)) == [(None, None)]


def test_an_answer_without_its_echo_is_refused_whatever_the_type_of_the_key(service):
    (message,) = ask(lookup(service.url, echo={"origin": "$.origin"}), (dt.date(2026, 1, 2),))
    assert "the answer does not name its origin" in str(message)


def test_a_404_or_a_status_declared_in_miss_when_is_a_miss(service):
    replies(service, status(404))
    assert ask(lookup(service.url), ("JFK",)) == [None]
    replies(service, status(410))
    assert ask(lookup(service.url, miss_when=[404, 410]), ("JFK",)) == [None]


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("7", 7, 7),
        ("0", 1, 1),
        ("1.5", 1.5, 1.5),
        (None, 1, 1),
        ("soon", 1, 1),
        ("inf", 1, 1),
        ("nan", 1, 1),
        ("-3", 1, 1),
    ],
)
def test_a_throttled_answer_closes_the_service_for_the_time_of_retry_after(
    service, code, header, least, most
):
    replies(service, status(code, headers={"Retry-After": header} if header else {}))
    (limit,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(limit, Throttled)
    assert str(limit).startswith(str(code))
    assert least <= limit.seconds <= most


@pytest.mark.parametrize(
    ("code", "passing"),
    [(500, True), (502, True), (504, True), (400, False), (422, False), (302, False)],
)
def test_an_error_of_the_service_is_passing_and_an_error_of_the_request_is_final(
    service, code, passing
):
    replies(service, status(code, headers={"Location": "/elsewhere"}))
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert failure.passing is passing
    assert str(failure).startswith(str(code))
    assert len(service.log) == 1  # a redirection is not followed


@pytest.mark.parametrize("code", [401, 402, 403])
def test_a_refused_credential_stops_the_run_and_the_message_names_the_service(service, code):
    replies(service, status(code))
    (stop,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(stop, RunStopped)
    assert str(stop).startswith(f"weather_api at {service.url} denies access: {code} ")


def test_statuses_that_stop_the_run_can_be_declared(service):
    replies(service, status(403))
    tolerant = Service(name="weather_api", url=service.url, max_concurrency=4, stop_on=[418])
    (failure,) = ask(lookup(service.url, service=tolerant), ("JFK",))
    assert isinstance(failure, CallFailed)
    replies(service, status(418))
    (stop,) = ask(lookup(service.url, service=tolerant), ("JFK",))
    assert isinstance(stop, RunStopped)


@pytest.mark.parametrize("kept_alive", [False, True])
def test_a_dropped_connection_is_one_attempt_without_a_hidden_retry(service, kept_alive):
    async def answer(request):
        if len(service.log) > kept_alive:
            request.transport.close()
        return web.json_response({"temp_c": 1.0})

    service.answer = answer
    *_, failure = ask(lookup(service.url), *[("JFK",)] * (1 + kept_alive))
    assert isinstance(failure, CallFailed)
    assert failure.passing
    assert str(failure).startswith("connection lost: ")
    assert len(service.log) == 1 + kept_alive


def test_a_connection_closed_while_idle_costs_no_attempt_that_was_not_made(service, wait_for):
    async def main():
        caller = HttpClient(lookup(service.url), 1)
        await caller.open()
        try:
            found = []
            for _ in range(5):
                found.append(await message(caller, ("JFK",)))
                for connection in list(service._runner.server.connections):
                    service._loop.loop.call_soon_threadsafe(connection.transport.close)
                await asyncio.to_thread(wait_for, lambda: service.open_connections == 0)
            return found
        finally:
            await caller.close()

    found = asyncio.run(main())
    assert len(service.log) <= len(found)


def test_a_truncated_answer_is_a_passing_failure(service):
    async def answer(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"temp_c": ')
        request.transport.close()
        return response

    service.answer = answer
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert failure.passing


def test_a_hanging_attempt_ends_at_its_time_limit_with_that_reason(service):
    async def answer(request):
        await asyncio.Event().wait()

    service.answer = answer
    (failure,) = ask(lookup(service.url, attempt_timeout=0.5), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert failure.passing
    assert str(failure) == "no answer within 0.5 s"
    assert len(service.log) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"temp_c": NaN}',
        b'{"temp_c": Infinity}',
        b'{"temp_c": -1e999}',
        b"\xff\xfe{",
        b"[" * 200_000,
    ],
)
def test_an_answer_that_is_not_json_is_a_final_failure(service, body):
    replies(service, lambda: web.Response(body=body))
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert not failure.passing
    assert str(failure).startswith("the answer is not JSON: ")


def test_the_error_of_a_page_in_place_of_json_shows_its_first_words(service):
    page = "<html><head><style>p {}</style></head><p>Please log in" + 9_000 * " again"
    replies(service, lambda: web.Response(text=page, content_type="text/html"))
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert re.search(r"is not JSON: .*\): Please log in again.{50,99}\.\.\. \(", str(failure))


@pytest.mark.parametrize("body", ['"sunny"', "42", "true"])
def test_an_answer_that_is_neither_an_object_nor_an_array_does_not_fit(service, body):
    replies(service, lambda: web.Response(text=body))
    (wrong,) = ask(lookup(service.url), ("JFK",))
    assert type(wrong) is ValueError
    assert str(wrong).startswith("expected a JSON object or array, got ")


def test_a_value_that_does_not_fit_is_named_with_its_column(service):
    replies(service, lambda: web.json_response({"temp_c": "warm", "wind": {"speed": 1}}))
    (wrong,) = ask(lookup(service.url), ("JFK",))
    assert str(wrong) == "temp_c: expected DOUBLE, got 'warm'"


def test_a_response_that_is_not_http_is_a_passing_failure_whose_error_shows_no_key(service):
    replies(
        service,
        lambda: web.Response(
            body=b"{}", headers={"Content-Encoding": "gzip", "X-Long": "x" * 70_000}
        ),
    )
    (failed,) = ask(lookup(service.url), ("personal",))
    assert failed.passing
    assert str(failed).startswith("the answer cannot be read: Got more than")
    assert "personal" not in str(failed)


def test_a_service_that_is_not_running_is_a_passing_failure(service):
    url = service.url.rsplit(":", 1)[0] + ":1"
    (failure,) = ask(lookup(url), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert failure.passing
    assert str(failure).startswith("cannot connect: ")


@pytest.fixture
def untrusted_url(tmp_path):
    """A server with a certificate that nobody has signed but itself."""
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
        "/CN=localhost"
    )
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "certificate.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    return context


@pytest.mark.process
def test_an_untrusted_certificate_is_a_failed_call(untrusted_url):
    async def main():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=untrusted_url)
        caller = HttpClient(lookup(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"), 1)
        await caller.open()
        try:
            return await message(caller, ("JFK",))
        finally:
            await caller.close()
            server.close()
            await server.wait_closed()

    failure = asyncio.run(main())
    assert isinstance(failure, CallFailed)
    assert failure.passing
    assert "certificate" in str(failure).lower()


def test_a_port_without_tls_is_named_with_the_cure(service):
    (failure,) = ask(lookup(service.url.replace("http:", "https:")), ("JFK",))
    assert str(failure).endswith(
        ". The port does not speak TLS: correct it, or write http:// in place of https://"
    )


def test_calls_share_as_many_connections_as_calls_in_flight_and_close_frees_them(service, wait_for):
    async def answer(request):
        await asyncio.sleep(0.01)
        return web.json_response({"temp_c": 1.0})

    service.answer = answer

    async def main():
        caller = HttpClient(lookup(service.url), 3)
        await caller.open()
        await asyncio.gather(*(caller.call((str(n),)) for n in range(30)))
        held = service.open_connections
        await caller.close()
        return held

    assert asyncio.run(main()) <= 3
    assert service.highest_in_flight <= 3
    wait_for(lambda: service.open_connections == 0)


def test_a_cancelled_call_gives_its_connection_back(service, wait_for):
    async def answer(request):
        if len(service.log) == 1:
            await asyncio.Event().wait()
        return web.json_response({"temp_c": 1.0, "wind": {"speed": 2.0}})

    service.answer = answer

    async def main():
        caller = HttpClient(lookup(service.url), 1)
        await caller.open()
        try:
            hanging = asyncio.create_task(caller.call(("JFK",)))
            await asyncio.to_thread(wait_for, lambda: len(service.log) == 1)
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)
            return await message(caller, ("EWR",))
        finally:
            await caller.close()

    assert asyncio.run(main()) == (1.0, 2.0)
    wait_for(lambda: service.open_connections == 0)


def test_closing_a_client_that_was_never_opened_does_nothing(service):
    asyncio.run(HttpClient(lookup(service.url), 1).close())


def test_a_request_has_no_undeclared_header_and_no_cookie(service):
    headers = {}

    async def answer(request):
        headers.update(request.headers)
        return web.json_response({}, headers={"Set-Cookie": "units=F"})

    service.answer = answer
    # cookies are for named hosts
    ask(lookup(service.url.replace("127.0.0.1", "localhost")), ("JFK",), ("EWR",))
    assert set(headers) <= {"Host", "Accept", "Accept-Encoding", "User-Agent", "Connection"}
