"""What an HTTP service says instead of an answer, at real servers: error bodies, redirects, broken
transfers.
"""

import contextlib
import gzip
import json
import socket
import struct
import threading

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.clients.client import CallFailed, Redirected, Throttled
from jobs.commands.previewing.preview import preview_rows
from jobs.errors import AccessRefused
from tests.jobs.clients.http.test_http_client import ask, lookup, replies
from tidegate import Bearer, Enrichment, Env, Input, Output, Retry, Service


@pytest.fixture
def raw():
    """A server that sends these bytes for each request and resets the connection, or closes it."""
    listening = socket.create_server(("127.0.0.1", 0))
    script = {"answer": b"", "reset": False, "requests": 0}

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connection.recv(65_536)
                script["requests"] += 1
                connection.sendall(script["answer"])
                if script["reset"]:
                    threading.Event().wait(0.1)  # the bytes before it arrive
                    connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    script["url"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
    yield script
    listening.close()


def head(*headers, status="200 OK"):
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *headers, "")).encode()


def test_the_reason_of_an_error_contains_the_response_body(service):
    replies(
        service,
        lambda: web.json_response({"error": "unknown\n station", "field": "origin"}, status=400),
    )
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert str(failure) == '400 Bad Request: {"error": "unknown\\n station", "field": "origin"}'
    assert not failure.passing


@pytest.mark.parametrize(
    ("status", "kind"), [(503, Throttled), (403, AccessRefused), (500, CallFailed)]
)
def test_the_text_of_a_throttling_or_refusing_response_is_reported(service, status, kind):
    replies(service, lambda: web.Response(text="quota of key 17 is used up", status=status))
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert type(failure) is kind or isinstance(failure, kind)
    assert "quota of key 17 is used up" in str(failure)


def test_an_error_body_is_shortened_to_one_line_without_tags(service):
    page = "<html><style>p {}</style><body>\x1b[31m<b>no\nsuch</b> thing" + "x" * 900_000
    replies(service, lambda: web.Response(text=page, status=400, content_type="text/html"))
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert str(failure).startswith("400 Bad Request: \\x1b[31m no such thingxxx")
    assert len(str(failure)) < 600


@pytest.mark.parametrize(
    ("size", "shown"), [(8_192, "8,192 characters"), (8_193, "8,195 characters")]
)
def test_an_error_body_is_marked_as_cut_only_if_it_was_cut(service, size, shown):
    replies(service, lambda: web.Response(text="over".rjust(size), status=400))
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert str(failure) == f"400 Bad Request: ... ({shown})"


def test_a_secret_at_the_cut_of_an_error_body_is_masked(service, monkeypatch):
    monkeypatch.setenv("THE_SECRET", "sk-live-0123456789")
    replies(
        service,
        lambda: web.Response(text=" " * 8_180 + ("sk-live-0123456789 is not valid"), status=400),
    )
    bearer = Service(name="w", url=service.url, max_concurrency=1, auth=Bearer(Env("THE_SECRET")))
    (failure,) = ask(lookup(service.url, service=bearer), ("JFK",))
    assert "sk-" not in str(failure)
    replies(
        service, lambda: web.Response(text="the key sk-live-0123456789 is not valid", status=400)
    )
    (failure,) = ask(lookup(service.url, service=bearer), ("JFK",))
    assert str(failure) == "400 Bad Request: the key *** is not valid"


@pytest.mark.parametrize("charset", ["undefined", "none-such", "idna"])
@pytest.mark.parametrize(
    ("status", "kind"), [(429, Throttled), (401, AccessRefused), (500, CallFailed)]
)
def test_an_error_is_classified_by_its_status_in_any_charset(service, status, kind, charset):
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    body = "no such é".encode()
    replies(service, lambda: web.Response(body=body, status=status, headers=headers))
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(failure, kind)
    assert "no such é" in str(failure)
    assert getattr(failure, "passing", True)


@pytest.mark.process
def test_an_error_with_an_endless_body_is_reported_soon_without_part_of_a_secret(raw, monkeypatch):
    monkeypatch.setenv("THE_SECRET", "sk-live-0123456789")
    bearer = Service(name="w", url=raw["url"], max_concurrency=1, auth=Bearer(Env("THE_SECRET")))
    raw["answer"] = head("Content-Length: 500", status="400 Bad Request") + b"not sk-live-01234"
    (failure,) = ask(lookup(raw["url"], service=bearer), ("JFK",))
    assert str(failure) == "400 Bad Request: not ***..."


def test_a_redirect_names_where_it_leads_and_is_not_followed(service):
    replies(
        service,
        lambda: web.Response(
            status=302, headers={"Location": "https://login.example/sso?ticket=secret"}
        ),
    )
    (failure,) = ask(lookup(service.url), ("JFK",))
    assert isinstance(failure, Redirected)
    assert str(failure) == (
        "302 Found: redirects to https://login.example/sso, and redirects are not followed"
    )
    assert len(service.log) == 1


def previewed(declared, rows):
    enrichment = Enrichment(
        name="w", input=Input(path="in"), lookups=[declared], output=Output(path="out")
    )
    keys = [pa.array([f"K{number}" for number in range(rows)])]
    return preview_rows(enrichment, declared, keys, discard=True)


def test_redirects_of_20_calls_in_a_row_stop_the_run(
    service,
):
    replies(
        service, lambda: web.Response(status=302, headers={"Location": "https://login.example/sso"})
    )
    declared = lookup(service.url, retry=Retry(retries=0))
    with pytest.raises(AccessRefused) as stopped:
        list(previewed(declared, 60))
    assert str(stopped.value) == (
        f"weather_api at {service.url.removeprefix('http://')} redirected 20 calls in a row (302 "
        "Found: redirects to https://login.example/sso, and redirects are not followed). Correct "
        "the service's url, or renew its login."
    )
    assert 20 <= len(service.log) < 30


def test_a_single_redirect_is_an_error_of_its_row(service):
    async def some(request):
        if request.path.endswith("3"):
            return web.Response(status=301, headers={"Location": "/new"})
        return web.json_response({"temp_c": 1.0})

    service.answer = some
    rows = list(previewed(lookup(service.url), 300))
    assert [row.status for row in rows].count("error") == 30
    assert rows[3].error == (
        "301 Moved Permanently: redirects to /new, and redirects are not followed"
    )


@pytest.mark.parametrize(
    "headers",
    [{"Content-Security-Policy": "x" * 30_000}, {f"X-{number}": "x" for number in range(500)}],
)
def test_long_and_many_headers_are_read(service, headers):
    replies(
        service,
        lambda: web.json_response({"temp_c": 3.9, "wind": {"speed": 5.1}}, headers=headers),
    )
    assert ask(lookup(service.url), ("JFK",)) == [(3.9, 5.1)]
    assert len(service.log) == 1


@pytest.mark.parametrize("charset", ["iso-8859-1", "windows-1252", "utf-16", "UTF-8", "utf-8-sig"])
def test_the_charset_of_the_content_type_is_honoured(service, charset):
    body = json.dumps({"temp_c": 1.0, "name": "Zürich"}, ensure_ascii=False).encode(charset)
    headers = {"Content-Type": f"application/json; charset={charset}"}
    replies(service, lambda: web.Response(body=body, headers=headers))
    assert ask(lookup(service.url, returns="name STRING", paths={}), ("ZRH",)) == [("Zürich",)]


@pytest.mark.parametrize("charset", ["iso-8859-1", "ISO8859_1", "Latin1", "Cp1252", "us-ascii"])
def test_utf8_that_is_labelled_as_western_is_read_as_utf8(service, charset):
    body = json.dumps({"temp_c": 1.0, "name": "Zürich 東"}, ensure_ascii=False).encode()
    headers = {"Content-Type": f"application/json; charset={charset}"}
    replies(service, lambda: web.Response(body=body, headers=headers))
    assert ask(lookup(service.url, returns="name STRING", paths={}), ("ZRH",)) == [("Zürich 東",)]


def test_a_declared_charset_is_honoured_even_if_the_bytes_are_valid_utf8(service):
    for charset, name in (("gbk", "模"), ("windows-1251", "КІ"), ("iso-2022-jp", "東京")):
        body = json.dumps({"temp_c": 1.0, "name": name}, ensure_ascii=False).encode(charset)
        body.decode()  # valid UTF-8, of another text
        headers = {"Content-Type": f"application/json; charset={charset}"}
        replies(service, lambda body=body, to=headers: web.Response(body=body, headers=to))
        assert ask(lookup(service.url, returns="name STRING", paths={}), ("ZRH",)) == [(name,)]


@pytest.mark.parametrize("charset", ["latin-99", "None", "binary", "undefined", "base64"])
def test_a_charset_that_does_not_exist_is_ignored(service, charset):
    body = json.dumps({"temp_c": 1.0, "name": "Zürich"}, ensure_ascii=False)
    headers = {"Content-Type": f"application/json; charset={charset}"}
    declared = lookup(service.url, returns="name STRING", paths={})
    replies(service, lambda: web.Response(body=body.encode(), headers=headers))
    assert ask(declared, ("ZRH",)) == [("Zürich",)]
    replies(service, lambda: web.Response(body=body.encode("iso-8859-1"), headers=headers))
    (failure,) = ask(declared, ("ZRH",))
    assert str(failure).startswith("the answer is not JSON: 'utf-8' codec can't decode byte 0xfc")
    assert not failure.passing


def test_an_empty_response_is_reported_as_empty(service):
    replies(service, lambda: web.Response(status=204))
    (failure,) = ask(lookup(service.url), ("ZRH",))
    assert str(failure) == (
        "204 No Content: the answer has no body; where that means no such key, declare 204 as a "
        "miss (miss_when; in a function miss=)"
    )
    assert not failure.passing
    replies(service, lambda: web.Response(body=b" \n"))
    (failure,) = ask(lookup(service.url), ("ZRH",))
    assert str(failure) == "200 OK: the answer has no body"
    assert not failure.passing
    replies(service, lambda: web.Response(status=204))
    assert ask(lookup(service.url, miss_when=[404, 204]), ("ZRH",)) == [None]


BODY = json.dumps(
    {"temp_c": 1.5, "wind": {"speed": 3.25, "from": "sea – land", "real": True}}, ensure_ascii=False
)
CUTS = sorted(
    {
        1,
        5,
        11,
        13,
        len(BODY.encode()) // 2,
        BODY.encode().index(b"\xe2") + 1,
        len(BODY.encode()) - 4,
    }
)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.process
def test_a_truncated_body_without_a_length_is_a_passing_failure(raw, cut, reset):
    raw |= {"answer": head("Content-Type: application/json") + BODY.encode()[:cut], "reset": reset}
    (failure,) = ask(lookup(raw["url"]), ("JFK",))
    assert failure.passing, failure
    assert f"broke off after {cut} bytes" in str(failure) or "connection lost" in str(failure)


@pytest.mark.parametrize("headers", [(), ("Content-Length: 40",)])
@pytest.mark.process
def test_a_truncated_compressed_body_is_a_passing_failure(raw, headers):
    packed = gzip.compress(BODY.encode())[:40]
    raw["answer"] = (
        head("Content-Type: application/json", "Content-Encoding: gzip", *headers) + packed
    )
    (failure,) = ask(lookup(raw["url"]), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert failure.passing, failure


@pytest.mark.parametrize(("coding", "cut"), [("gzip", 0), ("identity", 11), (" Identity", 11)])
@pytest.mark.process
def test_a_truncated_compressed_body_without_a_length_is_a_passing_failure(raw, coding, cut):
    raw["answer"] = (
        head("Content-Type: application/json", f"Content-Encoding: {coding}") + BODY.encode()[:cut]
    )
    (failure,) = ask(lookup(raw["url"]), ("JFK",))
    assert failure.passing, failure


@pytest.mark.process
def test_a_whole_body_that_is_not_json_is_a_final_failure(raw):
    raw["answer"] = head("Content-Type: text/html") + b"<html><body>login"
    (failure,) = ask(lookup(raw["url"]), ("JFK",))
    assert not failure.passing
    raw["answer"] = head("Content-Length: 5") + b'{"a":'
    (failure,) = ask(lookup(raw["url"]), ("JFK",))
    assert not failure.passing
