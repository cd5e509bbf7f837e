"""What a declaration is made of: a wrong type is refused where it is written, with the field and
the cure.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

from jobs.declare.values.type_checks import require_types
from tidegate import (
    ApiKey,
    AsyncFunctionLookup,
    Basic,
    Batch,
    Bearer,
    Cache,
    CoroutineLookup,
    DeclarationError,
    Enrichment,
    Env,
    EventTime,
    Expectation,
    HttpLookup,
    Input,
    Ledger,
    Lookup,
    OAuth2ClientCredentials,
    Outage,
    Output,
    Pages,
    Price,
    Retry,
    Service,
    SqlLookup,
    Summary,
    Tolerance,
    Ttl,
)


class Never:
    async def async_invoke(self, keys):
        raise AssertionError("a declaration asks nothing")


async def score(row, http):
    raise AssertionError("a declaration asks nothing")


def service(**fields):
    return Service(**{"name": "geo", "url": "http://geo.example", "max_concurrency": 8} | fields)


def asked(kind, **fields):
    every = {"name": "mood", "keys": {"k": "origin"}, "returns": "score DOUBLE", "timeout": 1.0}
    own = {
        HttpLookup: {"service": service(), "request": "GET /v1/{k}"},
        SqlLookup: {
            "url": "sqlite+aiosqlite:///planes.db",
            "table": "planes",
            "max_concurrency": 1,
        },
        AsyncFunctionLookup: {"function": Never, "max_concurrency": 1},
        CoroutineLookup: {"service": service(), "function": score},
    }
    return kind(**every | own[kind] | fields)


def lookup(**fields):
    return asked(HttpLookup, **fields)


def enrichment(**fields):
    standard = {
        "name": "flights",
        "input": Input(path="data/raw"),
        "lookups": [lookup()],
        "output": Output(path="out"),
    }
    return Enrichment(**standard | fields)


def oauth2(**fields):
    standard = {
        "token_url": "http://id.example/token",
        "client_id": Env("ID"),
        "client_secret": Env("SECRET"),
    }
    return OAuth2ClientCredentials(**standard | fields)


WRONG = [
    (
        lambda: lookup(retry=3),
        "lookup mood: retry is 3; it must be a Retry, such as Retry(retries=3).",
    ),
    (
        lambda: lookup(cache=True),
        "lookup mood: cache is True; it must be a Cache or None, such as Cache(",
    ),
    (
        lambda: lookup(ttl=timedelta(days=1)),
        "ttl is datetime.timedelta(days=1); it must be a Ttl, such as Ttl(ok=",
    ),
    (lambda: lookup(ttl=5), "ttl is 5; it must be a Ttl, such as Ttl("),
    (lambda: lookup(version="2"), "version is '2'; it must be a whole number, such as 2."),
    (lambda: lookup(version=True), "version is True; it must be a whole number."),
    (lambda: lookup(idempotent="no"), "idempotent is 'no'; it must be True or False."),
    (lambda: lookup(timeout="5"), "timeout is '5'; it must be a number or None, such as 5."),
    (lambda: lookup(timeout=timedelta(seconds=5)), "it must be a number or None, such as 5.0."),
    (lambda: lookup(timeout=True), "timeout is True; it must be a number or None."),
    (lambda: lookup(keys=["origin"]), "keys is ['origin']; it must be a dict, such as {"),
    (lambda: lookup(keys={"c": 5}), "keys['c'] is 5; it must be a string."),
    (lambda: lookup(keys={5: "c"}), "keys: a name is 5; it must be a string."),
    (lambda: lookup(returns=["score"]), "returns is ['score']; it must be a string."),
    (
        lambda: lookup(ranges=(10, 1)),
        'ranges is (10, 1); it must be a dict, such as {"score": (0, 10)}.',
    ),
    (
        lambda: lookup(ranges={"score": 5}),
        "ranges['score'] is 5; it must be a pair, such as (0, 10).",
    ),
    (
        lambda: lookup(ranges={"score": (1, 2, 3)}),
        "ranges['score'] is (1, 2, 3); it must be a pair",
    ),
    (
        lambda: lookup(ranges={"score": ("0", 1)}),
        "ranges['score'][0] is '0'; it must be a number or None, such as 0.",
    ),
    (
        lambda: lookup(null_share={"score": "0.1"}),
        "null_share['score'] is '0.1'; it must be a number.",
    ),
    (lambda: lookup(service="geo"), "service is 'geo'; it must be a Service."),
    (lambda: lookup(request=None), "request is None; it must be a string."),
    (
        lambda: lookup(pages="$.next"),
        "pages is '$.next'; it must be a Pages or None, such as Pages(next=",
    ),
    (lambda: lookup(batch=50), "batch is 50; it must be a Batch or None."),
    (lambda: lookup(headers=["a"]), "headers is a list; it must be a dict."),
    (lambda: lookup(paths="$.score"), "paths is '$.score'; it must be a dict."),
    (
        lambda: lookup(attempt_timeout=timedelta(seconds=1)),
        "attempt_timeout is datetime.timedelta(seconds=1); it must",
    ),
    (
        lambda: lookup(throttled_when=429),
        "throttled_when is 429; it must be a list, such as [429].",
    ),
    (
        lambda: lookup(finish_after_timeout=1),
        "finish_after_timeout is 1; it must be True or False.",
    ),
    (
        lambda: asked(SqlLookup, url=None),
        'url is None; it must be a string or an Env, such as Env("NAME").',
    ),
    (
        lambda: asked(SqlLookup, table=Path("planes")),
        "it must be a string or None, such as 'planes'.",
    ),
    (
        lambda: asked(SqlLookup, outage=20),
        "outage is 20; it must be an Outage, such as Outage(after=20).",
    ),
    (
        lambda: asked(AsyncFunctionLookup, function="Never"),
        "function is 'Never'; it must be a function.",
    ),
    (lambda: asked(CoroutineLookup, function=5), "function is 5; it must be a function."),
    (
        lambda: asked(CoroutineLookup, throttled_when=5),
        "throttled_when is 5; it must be a list, such as [5].",
    ),
    (
        lambda: service(auth="KEY"),
        "service geo: auth is a str; it must be an ApiKey or a Bearer or",
    ),
    (
        lambda: service(url=None),
        'service geo: url is None; it must be a string or an Env, such as Env("NAME").',
    ),
    (lambda: service(url=5), "url is an int; it must be a string or an Env"),
    (lambda: service(name=None), "name is None; it must be a string."),
    (lambda: service(stop_on=[200, 401]), "stop_on: 200 is the status of an answer; name"),
    (lambda: service(stop_on=401), "stop_on is 401; it must be a list, such as [401]."),
    (
        lambda: service(stop_on=["401"]),
        "stop_on[0] is '401'; it must be a whole number, such as 401.",
    ),
    (lambda: service(prices="0.0040 USD"), "prices is '0.0040 USD'; it must be a list."),
    (
        lambda: service(prices=["0.0040 USD"]),
        "prices[0] is '0.0040 USD'; it must be a Price, such as Price(\"0.0040 USD\").",
    ),
    (
        lambda: service(max_concurrency="8"),
        "max_concurrency is '8'; it must be a whole number, such as 8.",
    ),
    (
        lambda: service(outage=timedelta(minutes=5)),
        "it must be an Outage, such as Outage(after=20).",
    ),
    (lambda: Retry(retries=1.5), "retry: retries is 1.5; it must be a whole number."),
    (
        lambda: Retry(initial_delay=timedelta(seconds=2)),
        "initial_delay is datetime.timedelta(seconds=2); it must be a n",
    ),
    (
        lambda: Outage(probe_every=30),
        "outage: probe_every is 30; it must be a timedelta, such as timedelta(seconds=30).",
    ),
    (
        lambda: Cache(ttl=5),
        "cache: ttl is 5; it must be a timedelta or None, such as timedelta(seconds=5).",
    ),
    (lambda: Cache(ttl=float("inf")), "cache: ttl is inf; it must be a timedelta or None."),
    (lambda: Ttl(ok="1d"), "ttl: ok is '1d'; it must be a timedelta"),
    (
        lambda: Ledger(Path("kept")),
        "ledger: path is PosixPath('kept'); it must be a string, such as 'kept'.",
    ),
    (lambda: Ledger(flush_seconds=timedelta(seconds=1)), "it must be a number, such as 1.0."),
    (
        lambda: Batch(max_items="5", max_wait=1, item="{k}"),
        "batch: max_items is '5'; it must be a whole number, such as 5.",
    ),
    (
        lambda: Batch(max_items=5, max_wait=timedelta(seconds=1), item="{k}"),
        "it must be a number, such as 1.0.",
    ),
    (lambda: Pages(next=5, max_pages=1), "pages: next is 5; it must be a string."),
    (lambda: Price(0.004), "price: amount is 0.004; it must be"),
    (
        lambda: Price("1 USD", since=dt.date(2026, 12, 1)),
        "since is datetime.date(2026, 12, 1); it must be",
    ),
    (lambda: Env(None), "env: name is None; it must be a string."),
    (lambda: ApiKey(Env("KEY"), header=5), "auth: header is 5; it must be a string."),
    (lambda: oauth2(scope=["read"]), "auth: scope is ['read']; it must be a string or None."),
    (lambda: oauth2(token_url=None), "auth: token_url is None; it must be a string or an Env"),
    (
        lambda: oauth2(refresh_before=60),
        "refresh_before is 60; it must be a timedelta, such as timedelta(seconds=60).",
    ),
    (
        lambda: Input(path=Path("data/raw")),
        "input: path is PosixPath('data/raw'); it must be a string, such as 'data/raw'.",
    ),
    (lambda: Output(path=None), "output: path is None; it must be a string."),
    (
        lambda: EventTime("at", max_out_of_orderness=5),
        "event_time: max_out_of_orderness is 5; it must be a timedelta",
    ),
    (lambda: Tolerance(error="1"), "tolerance: error is '1'; it must be a number, such as 1."),
    (lambda: Summary(name="by_day", sql=5), "summary: sql is 5; it must be a string."),
    (lambda: enrichment(name=5), "enrichment 5: the name must be lower-case letters"),
    (
        lambda: enrichment(input="data/x"),
        "flights: input is 'data/x'; it must be an Input, such as Input(path=",
    ),
    (
        lambda: enrichment(output="data/x"),
        "flights: output is 'data/x'; it must be an Output, such as Output(path=",
    ),
    (
        lambda: enrichment(lookups=lookup()),
        "flights: lookups is one HttpLookup; it must be a list, such as [...].",
    ),
    (lambda: enrichment(lookups=["mood"]), "flights: lookups[0] is 'mood'; it must be a Lookup."),
    (
        lambda: enrichment(event_time="at"),
        "event_time is 'at'; it must be an EventTime or None, such as EventTime(",
    ),
    (
        lambda: enrichment(tolerance=0.1),
        "tolerance is 0.1; it must be a Tolerance, such as Tolerance(error=0.1).",
    ),
    (
        lambda: enrichment(ledger="data/ledger"),
        'it must be a Ledger or None, such as Ledger("data/ledger").',
    ),
    (lambda: enrichment(start=dt.date(2013, 1, 10)), "it must be a string, such as '2013-01-10'."),
    (
        lambda: enrichment(end=dt.datetime(2013, 1, 10, tzinfo=dt.UTC)),
        "it must be a string or None, such as '2013-01-10'.",
    ),
    (
        lambda: enrichment(publish_by=dt.time(6, 30)),
        "it must be a string or None, such as '06:30'.",
    ),
    (
        lambda: Input(path="data/raw", every=5),
        "input: every is 5; it must be one of: day, hour or a list.",
    ),
    (lambda: enrichment(schedule=5), "schedule is 5; it must be a string or None."),
    (lambda: enrichment(owners=[5]), "owners[0] is 5; it must be a string."),
    (
        lambda: enrichment(input=Input(path="data/raw", row_id=[5])),
        "input: row_id[0] is 5; it must be a string.",
    ),
    (
        lambda: enrichment(expectations=["expect"]),
        "expectations[0] is 'expect'; it must be an Expectation.",
    ),
    (lambda: enrichment(severities=["warn"]), "severities is ['warn']; it must be a dict."),
    (
        lambda: Expectation("expect_column_to_exist", column="a", severity="critical"),
        "expect_column_to_exist: severity is 'critical'; it must be one of: error, warn.",
    ),
    (
        lambda: enrichment(severities={"row_count": []}),
        "severities['row_count'] is []; it must be one of: error, warn.",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_type_is_refused_with_the_field_and_the_cure(make, message):
    with pytest.raises(DeclarationError) as error:
        make()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda secret: service(auth=secret),
        lambda secret: service(url=secret.encode()),
        lambda secret: service(url=[secret]),
        lambda secret: asked(SqlLookup, url=secret.encode()),
        lambda secret: lookup(headers={"X-Key": secret.encode()}),
        lambda secret: oauth2(token_url=[secret]),
    ],
)
def test_a_refused_value_that_may_be_a_secret_is_not_repeated(make):
    with pytest.raises(DeclarationError) as error:
        make("s3cret")
    assert "s3cret" not in str(error.value)


class StatusEvent(str):
    __slots__ = ()


RIGHT = [
    lambda: lookup(timeout=5, ranges={"score": (0, None)}, null_share={"score": 1}),
    lambda: lookup(timeout=None, cache=None, ranges={"score": [0.5, 10]}),
    lambda: lookup(name=StatusEvent("mood"), keys=MappingProxyType({"k": StatusEvent("origin")})),
    lambda: lookup(miss_when=[404, "$.status == 'NONE'"], throttled_when=(429,)),
    lambda: lookup(miss_when={404}),
    lambda: asked(SqlLookup, url=Env("URL"), max_wait=0),
    lambda: asked(SqlLookup, url=StatusEvent("sqlite+aiosqlite:///planes.db")),
    lambda: asked(AsyncFunctionLookup, function=Never),
    lambda: asked(CoroutineLookup, throttled_when=[429]),
    lambda: service(url=Env("URL"), stop_on=range(401, 404), prices=[Price("1 USD")]),
    lambda: service(auth=Bearer(Env("TOKEN")), prices=Price("1 USD")),
    lambda: service(auth=Basic(Env("USER"), Env("PASSWORD")), prices=(Price("1 USD"),)),
    lambda: service(auth=oauth2()),
    lambda: service(auth=ApiKey(Env("KEY"))),
    lambda: Retry(initial_delay=1, max_delay=2, multiplier=1, jitter=0),
    lambda: Tolerance(error=0, miss_change=1),
    lambda: Input(path="data/raw", row_id=["a"]),
    lambda: enrichment(
        lookups=(lookup(),),
        owners=("team:a",),
        pii=["a"],
        ledger=None,
        severities={"row_count": "warn"},
    ),
    lambda: enrichment(expectations=[Expectation("expect_column_to_exist", column="a")]),
]


@pytest.mark.parametrize("make", RIGHT)
def test_fields_of_the_right_type_are_accepted(make):
    make()


def test_declared_values_are_kept_unchanged():
    owners, ranges = ["team:a"], {"score": (0, 10)}
    assert enrichment(owners=owners).owners is owners
    declared = lookup(timeout=5, ranges=ranges)
    assert type(declared.timeout) is int
    assert declared.ranges is ranges


def test_fields_of_a_users_lookup_class_are_checked_if_their_types_are_known():
    @dataclass(frozen=True, kw_only=True)
    class Own(Lookup):
        unknown: "OnlyForTheTypeChecker"  # noqa: F821

    standard = {"name": "own", "keys": {"k": "origin"}, "returns": "score DOUBLE", "timeout": 1.0}
    assert Own(**standard, unknown=5).unknown == 5
    with pytest.raises(DeclarationError, match=r"retry is 3; it must be a Retry"):
        Own(**standard, unknown=5, retry=3)


@dataclass(frozen=True)
class Odd:
    made: Callable[[], int] = int
    kind: type[Exception] = ValueError
    three: tuple[int, int, int] = (1, 2, 3)
    plain: tuple = ()
    names: list[str] = ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "names is (); it must be a list."),
        ({"names": [], "kind": ValueError("x")}, "kind is ValueError('x'); it must be a type."),
        ({"names": [], "made": 5}, "made is 5; it must be a function."),
        ({"names": [], "three": (1, 2)}, "three is (1, 2); it must be a list."),
        ({"names": [], "plain": 5}, "plain is 5; it must be a list"),
    ],
)
def test_unusual_annotations_are_checked(fields, message):
    require_types(Odd(names=[]))
    with pytest.raises(DeclarationError) as error:
        require_types(Odd(**fields))
    assert message in str(error.value)
