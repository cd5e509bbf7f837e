"""A declaration in YAML is the same as one in Python."""

import dataclasses
import datetime as dt
import typing
from datetime import timedelta

import pytest

import tidegate
from jobs.declare.finding.plain_form import _read, read_enrichment
from jobs.declare.values.type_checks import read_annotations, union_members
from jobs.errors import DeclarationError
from tidegate import (
    Batch,
    Enrichment,
    Env,
    HttpLookup,
    Input,
    Ledger,
    OAuth2ClientCredentials,
    Outage,
    Output,
    Price,
    Retry,
    Service,
    SqlLookup,
    Tolerance,
    Ttl,
)

ADDRESSES = {
    "name": "addresses_geocoded",
    "owners": ["team:crm"],
    "schedule": "0 3 * * *",
    "publish_by": "06:30",
    "input": {"path": "lake/raw/addresses", "partition": "day", "row_id": ["customer_id"]},
    "output": {"path": "lake/published/addresses_geocoded"},
    "pii": ["address"],
    "tolerance": {"timeout": "0.5%", "error": "0.5%", "miss_change": "20%"},
    "lookups": [
        {
            "name": "location",
            "http": {
                "service": {
                    "name": "geo",
                    "url": "https://api.geo.example",
                    "auth": {
                        "oauth2_client_credentials": {
                            "token_url": "https://auth.geo.example/token",
                            "client_id": {"env": "GEO_ID"},
                            "client_secret": {"env": "GEO_SECRET"},
                            "scope": "geocode",
                        }
                    },
                    "max_concurrency": 16,
                    "prices": [
                        {"amount": "0.0040 USD", "per": "item"},
                        {"amount": "0.0046 USD", "per": "item", "since": dt.date(2026, 12, 1)},
                    ],
                    "outage": {"wait_at_most": "2h"},
                },
                "request": "POST /v2/batch",
                "keys": {"q": "trim(lower(address))", "country": "country"},
                "batch": {
                    "max_items": 50,
                    "max_wait": "200ms",
                    "body": {"items": "{items}"},
                    "item": {"id": "{id}", "q": "{q}", "country": "{country}"},
                    "answers": "$.results",
                    "match": "$.id",
                },
                "returns": "lat DOUBLE, lon DOUBLE, confidence DOUBLE",
                "miss_when": ["$.status == 'ZERO_RESULTS'"],
                "throttled_when": [429, 503, "$.status == 'OVER_LIMIT'"],
                "timeout": "30s",
                "attempt_timeout": "10s",
                "finish_after_timeout": True,
                "ttl": {"ok": "180d", "miss": "30d", "error": "0s"},
            },
        }
    ],
}
geo = Service(
    name="geo",
    url="https://api.geo.example",
    auth=OAuth2ClientCredentials(
        token_url="https://auth.geo.example/token",
        client_id=Env("GEO_ID"),
        client_secret=Env("GEO_SECRET"),
        scope="geocode",
    ),
    max_concurrency=16,
    prices=[Price("0.0040 USD", per="item"), Price("0.0046 USD", per="item", since="2026-12-01")],
    outage=Outage(wait_at_most=timedelta(hours=2)),
)
addresses = Enrichment(
    name="addresses_geocoded",
    input=Input(path="lake/raw/addresses", partition="day", row_id=["customer_id"]),
    lookups=[
        HttpLookup(
            name="location",
            service=geo,
            request="POST /v2/batch",
            keys={"q": "trim(lower(address))", "country": "country"},
            batch=Batch(
                max_items=50,
                max_wait=0.2,
                body={"items": "{items}"},
                item={"id": "{id}", "q": "{q}", "country": "{country}"},
                answers="$.results",
                match="$.id",
            ),
            returns="lat DOUBLE, lon DOUBLE, confidence DOUBLE",
            miss_when=("$.status == 'ZERO_RESULTS'",),
            throttled_when=(429, 503, "$.status == 'OVER_LIMIT'"),
            timeout=30.0,
            attempt_timeout=10.0,
            finish_after_timeout=True,
            ttl=Ttl(ok=timedelta(days=180), miss=timedelta(days=30)),
        )
    ],
    output=Output(path="lake/published/addresses_geocoded"),
    tolerance=Tolerance(timeout=0.005, error=0.005, miss_change=0.2),
    pii=["address"],
    schedule="0 3 * * *",
    publish_by="06:30",
    owners=["team:crm"],
)


def test_a_declaration_in_yaml_equals_the_declaration_in_python():
    assert read_enrichment(ADDRESSES) == addresses
    assert read_enrichment(ADDRESSES).fingerprint == addresses.fingerprint


def put(path, value):
    def copied(plain, rest):
        if not rest:
            return value
        if isinstance(plain, list):
            return [
                copied(item, rest[1:]) if place == rest[0] else item
                for place, item in enumerate(plain)
            ]
        return plain | {rest[0]: copied(plain.get(rest[0]), rest[1:])}

    return copied(ADDRESSES, path)


HTTP = ("lookups", 0, "http")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("shedule",), "x", "shedule: Enrichment has no such field. Did you mean 'schedule'?"),
        (
            (*HTTP, "timeout"),
            "30 parsecs",
            (
                r"timeout is '30 parsecs'; write a duration, such as 200ms, "
                r"30s, 5m, 2h or 180d"
            ),
        ),
        (
            (*HTTP, "attempt_timeout"),
            "50%",
            "attempt_timeout is '50%'; write a duration, such as 200ms",
        ),
        (("tolerance", "timeout"), "5s", "tolerance.timeout is '5s'; write a number, or a share"),
        (
            (*HTTP, "name"),
            "b",
            r"lookups\[0\]: name is 'location', and http.name 'b'; leave one out",
        ),
        (
            (*HTTP, "service", "auth"),
            {"token": {}},
            "auth: one of api_key, bearer, basic, oauth2_client_credentials",
        ),
        ((*HTTP, "batch"), {"max_items": 50}, "batch: max_wait, item must be given"),
        (
            ("lookups", 0),
            {"name": "x", "grpc": {}},
            (
                r"lookups\[0\]: one of http, sql must stand "
                r"there"
            ),
        ),
    ],
)
def test_an_error_in_yaml_is_named_by_its_path(path, value, message):
    with pytest.raises(DeclarationError, match=message):
        read_enrichment(put(path, value))


@pytest.mark.parametrize("duration", [float("inf"), float("nan"), "9999999999d"])
def test_an_infinite_duration_is_named_by_its_path(duration):
    with pytest.raises(DeclarationError, match=r"^ttl\.ok is .*; write a duration, such as 200ms"):
        _read({"ok": duration}, Ttl, "ttl")


@pytest.mark.parametrize(
    ("declared", "field", "value"),
    [
        (Retry, "initial_delay", 0.2), (Batch, "max_wait", 0.2), (Ledger, "flush_seconds", 0.2),
        (HttpLookup, "hedge_after", 0.2), (SqlLookup, "attempt_timeout", 0.2),
    ],
)  # fmt: skip
def test_a_field_of_seconds_accepts_a_duration_and_refuses_a_percentage(declared, field, value):
    kind, where = read_annotations(declared)[field], f"lookups[0].{field}"
    assert _read("200ms", kind, where) == value
    with pytest.raises(DeclarationError, match="write a duration"):
        _read("5%", kind, where)


WORDS = [
    (declared, name, word)
    for declared in map(vars(tidegate).get, tidegate.__all__)
    if dataclasses.is_dataclass(declared)
    for name, kind in read_annotations(declared).items()
    for member in union_members(kind)
    if typing.get_origin(member) is typing.Literal
    for word in typing.get_args(member)
]


@pytest.mark.parametrize(("declared", "name", "word"), WORDS)
def test_a_field_accepts_the_same_words_in_yaml_as_in_python(declared, name, word):
    assert _read(word, read_annotations(declared)[name], name) == word


def test_the_tested_fields_include_fields_with_words_and_numbers():
    assert (tidegate.HttpLookup, "hedge_after", "p95") in WORDS


def test_a_column_named_like_a_field_of_seconds_accepts_a_percentage():
    kind = read_annotations(HttpLookup)["null_share"]
    assert _read({"timeout": "5%"}, kind, "lookups[0].http.null_share") == {"timeout": 0.05}
