"""Secrets that a service wants in the query or the body: by name in a declaration, by value on the
wire only.
"""

import asyncio
import dataclasses
import json

import pytest
from aiohttp import web

from jobs.clients.http.token_headers import _TOKENS
from jobs.clients.registry import client_for
from jobs.commands.previewing.preview_text import mask
from jobs.declare.values.fingerprint import fingerprint
from jobs.errors import DeclarationError, RunStopped
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.store import LedgerFolder
from jobs.ledger.stored_request import read_request, write_request
from jobs.run.plan.service_checks import check_service
from tests.jobs.clients.http.test_http_client import ask, lookup
from tidegate import (
    ApiKey,
    Batch,
    Enrichment,
    Env,
    Input,
    OAuth2ClientCredentials,
    Output,
    Pages,
    Service,
)

SECRET = "s3cr3t/of+ours&=é"


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("THE_KEY", SECRET)
    _TOKENS.clear()


def in_query(service, **fields):
    api = Service(
        name="geo", url=service.url, max_concurrency=2, auth=ApiKey(Env("THE_KEY"), query="api_key")
    )
    return lookup(service.url, service=api, **fields)


def in_body(service, **fields):
    body = {"key": Env("THE_KEY"), "origin": "{origin}", "nested": [{"key": Env("THE_KEY")}]}
    return lookup(service.url, request="POST /v1", **{"body": body} | fields)


def heard(service):
    """The service answers; gives what it hears: query and body."""
    found = []

    async def answer(request):
        body = await request.read()
        found.append((dict(request.query), json.loads(body) if body else None))
        return web.json_response({"temp_c": 1.0})

    service.answer = answer
    return found


def test_a_secret_in_the_query_goes_with_every_request(service):
    found = heard(service)
    ask(in_query(service, request="GET /v1/{origin}?units=si"), ("JFK",))
    ask(in_query(service, pages=Pages(next="$.next", max_pages=2)), ("EWR",))
    assert found == [({"units": "si", "api_key": SECRET}, None), ({"api_key": SECRET}, None)]


def test_a_secret_in_the_body_is_read_on_the_executor(service):
    found = heard(service)
    ask(in_body(service), ("JFK",))
    assert found == [({}, {"key": SECRET, "origin": "JFK", "nested": [{"key": SECRET}]})]
    batch = Batch(
        max_items=1, max_wait=0.0, item="{origin}", body={"key": Env("THE_KEY"), "items": "{items}"}
    )
    ask(in_body(service, body=None, batch=batch), ("JFK",))
    assert found[1] == ({}, {"key": SECRET, "items": ["JFK"]})


@pytest.mark.parametrize("declare", [in_query, in_body])
def test_errors_and_fingerprints_have_the_name_of_a_secret_and_not_its_value(
    service, tmp_path, monkeypatch, declare
):
    async def repeats(request):
        return web.Response(text=f"no {request.url} {await request.text()} {SECRET}", status=400)

    service.answer = repeats
    declared = declare(service)
    (failure,) = ask(declared, ("JFK",))
    shown = mask(declared)(f"{failure} {SECRET}")
    folder = LedgerFolder(str(tmp_path), "weather", request_fingerprint(declared))
    write_request(folder, declared)
    before = fingerprint(declared), request_fingerprint(declared)
    monkeypatch.setenv("THE_KEY", "another")
    assert before == (fingerprint(declared), request_fingerprint(declared))
    for text in (str(failure), shown, json.dumps(read_request(folder)), repr(declared)):
        assert "s3cr3t" not in text
    assert declare is in_query or "THE_KEY" in json.dumps(read_request(folder))
    other = dataclasses.replace(
        declared, service=dataclasses.replace(declared.service, auth=ApiKey(Env("OTHER")))
    )
    assert fingerprint(other) != fingerprint(declared)


@pytest.mark.parametrize("declare", [in_query, in_body])
def test_a_missing_secret_is_reported_before_any_call(service, monkeypatch, declare):
    monkeypatch.delenv("THE_KEY")
    enrichment = Enrichment(
        name="e", input=Input(path="raw"), lookups=[declare(service)], output=Output(path="out")
    )
    with pytest.raises(DeclarationError, match=r"^e: lookup weather: THE_KEY is not set"):
        check_service(enrichment, enrichment.lookups[0])


def with_token(service, monkeypatch, path="/t0k3n-path/token"):
    monkeypatch.setenv("TOKEN_URL", service.url + path)
    auth = OAuth2ClientCredentials(
        token_url=Env("TOKEN_URL"),
        client_id=Env("THE_KEY"),
        client_secret=Env("THE_KEY"),
        client_auth="body",
    )
    return lookup(
        service.url, service=Service(name="geo", url=service.url, max_concurrency=2, auth=auth)
    )


async def opened(declared):
    caller = client_for(declared, 1)
    try:
        await caller.open()
    finally:
        await caller.close()


def test_a_token_url_may_be_in_the_environment_and_only_its_host_is_shown(service, monkeypatch):
    async def answer(request):
        if request.method == "POST":
            return web.json_response({"access_token": "abc", "token_type": "bearer"})
        return web.json_response({"temp_c": 1.0})

    service.answer = answer
    assert ask(with_token(service, monkeypatch), ("JFK",)) == [(1.0, None)]
    assert service.log == ["/t0k3n-path/token", "/v1/JFK"]
    _TOKENS.clear()

    async def refuses(request):
        return web.json_response({"error": "invalid_client"}, status=401)

    service.answer = refuses
    with pytest.raises(RunStopped) as stopped:
        asyncio.run(opened(with_token(service, monkeypatch)))
    assert str(stopped.value) == (
        f"geo: {service.url} refuses a token: 401 invalid_client. Its secrets are read from "
        "TOKEN_URL, THE_KEY, in the environment or .env."
    )
    declared = with_token(service, monkeypatch)
    monkeypatch.setenv("TOKEN_URL", "t0k3n")
    with pytest.raises(DeclarationError, match="token_url is not an http") as wrong:
        client_for(declared, 1)
    assert "t0k3n" not in str(wrong.value)


def test_declared_tenants_share_no_stored_answers():
    def of(tenant):
        return lookup(
            "http://w", service=Service(name="geo", url=Env("U"), max_concurrency=1, tenant=tenant)
        )

    asked = [request_fingerprint(of(tenant)) for tenant in (None, "north", "south")]
    assert len(set(asked)) == 3
    plain = lookup("http://w", service=Service(name="geo", url=Env("U"), max_concurrency=1))
    assert request_fingerprint(plain) == asked[0]
    with pytest.raises(DeclarationError, match="tenant is empty"):
        of("")
