"""An enrichment, declared once: what is refused at construction, and what stays the same
everywhere.
"""

import dataclasses
import functools
import json
import math
import os
import pickle
import subprocess
import sys
import textwrap
from datetime import date, timedelta
from decimal import Decimal

import pytest

from enrichments.flights import flights
from jobs.declare.finding.loading import load
from jobs.schema import columns as schema
from jobs.schema.records import DeclaredFacts, Verdict
from jobs.tables import audit, dead_letters
from tidegate import (
    AsyncFunctionLookup,
    DeclarationError,
    Enrichment,
    Env,
    EventTime,
    Expectation,
    HttpLookup,
    Input,
    Ledger,
    Outage,
    Output,
    Retry,
    Service,
    SqlLookup,
    Summary,
    Tolerance,
    Ttl,
)


def service(**fields):
    return Service(**{"name": "geo", "url": "http://geo.example", "max_concurrency": 8} | fields)


def lookup(**fields):
    standard = {
        "name": "location",
        "service": service(),
        "request": "GET /v1/{q}",
        "keys": {"q": "trim(address)"},
        "returns": "lat DOUBLE, lon DOUBLE",
        "timeout": 2.0,
    }
    return HttpLookup(**standard | fields)


def enrichment(**fields):
    standard = {
        "name": "addresses",
        "input": Input(path="data/raw/addresses", partition="day", row_id=["id"]),
        "lookups": [lookup()],
        "output": Output(path="data/published/addresses"),
    }
    return Enrichment(**standard | fields)


class Sentiment:
    async def async_invoke(self, value):
        return [{"score": 1.0}]


class Other(Sentiment):
    pass


def function(made_by):
    return AsyncFunctionLookup(
        name="f",
        function=made_by,
        keys={"k": "id"},
        returns="score DOUBLE",
        timeout=1.0,
        max_concurrency=1,
    )


def refused(make):
    with pytest.raises(DeclarationError) as error:
        make()
    sentence = str(error.value)
    assert "\n" not in sentence
    return sentence


WRONG = {
    "a name that no column could have": (
        lambda: enrichment(name="Addresses 1"),
        "lower-case letters",
    ),
    "a summary in the place of the table": (
        lambda: enrichment(summaries=[Summary(name="addresses", sql="SELECT 1")]),
        (
            "addresses: summaries: data/published/addresses would be table and summary addresses at "
            "once"
        ),
    ),
    "a table where the input is": (
        lambda: enrichment(input=Input(path="data/raw"), output=Output(path="data")),
        "output: data (table) holds the input data/raw; move one (Output.path).",
    ),
    "a table in the folder of a day of the input": (
        lambda: enrichment(
            input=Input(path="data/raw"), output=Output(path="data/raw/date=2013-01-10")
        ),
        (
            "Output.path: data/raw/date=2013-01-10 (table) is in the folder of a day of the input "
            "data/raw, whose next run would refuse it; name another folder."
        ),
    ),
    "a ledger in the folder of a day of the input": (
        lambda: enrichment(
            input=Input(path="data/raw"), ledger=Ledger(path="data/raw/date=2013-01-10/answers")
        ),
        (
            "Ledger.path: data/raw/date=2013-01-10/answers (ledger) is in the folder of a day of the "
            "input data/raw, whose next run would refuse it; name another folder."
        ),
    ),
    "a ledger in the table, whose files others vacuum": (
        lambda: enrichment(ledger=Ledger(path="data/published/addresses/answers")),
        (
            "output: data/published/addresses (table) holds the ledger "
            "data/published/addresses/answers; move one (Output.path)."
        ),
    ),
    "an object in place of what makes one": (
        lambda: function(Sentiment()),
        "lookup f: function is <",
    ),
    "a coroutine in place of what makes an object": (
        lambda: function(Sentiment.async_invoke),
        "A coroutine is a lookup by @lookup.",
    ),
    "a class that cannot be asked": (
        lambda: function(dict),
        "it must be a class with `async def async_invoke(",
    ),
    "no lookup": (lambda: enrichment(lookups=[]), "addresses: lookups is empty"),
    "a lookup that stands alone": (
        lambda: enrichment(lookups=lookup()),
        "addresses: lookups is one HttpLookup",
    ),
    "a column in place of a list": (
        lambda: enrichment(input=Input(path="p", row_id="id")),
        "addresses: input: row_id is 'id'; it must be a list, such as ['id']",
    ),
    "a key in place of a list": (lambda: enrichment(mode="key_ordered", key="id"), "key is 'id'"),
    "a mode that Flink does not know": (
        lambda: enrichment(mode="sorted"),
        "mode is 'sorted'; it must be one of: unordered, ordered, key_ordered.",
    ),
    "a key without key_ordered": (
        lambda: enrichment(key=["id"]),
        "key names the columns of mode='key_ordered'",
    ),
    "key_ordered without a key": (lambda: enrichment(mode="key_ordered"), "it needs them"),
    "two lookups of one name": (
        lambda: enrichment(lookups=[lookup(), lookup()]),
        "two lookups are named 'location'",
    ),
    "two lookups that answer one column": (
        lambda: enrichment(lookups=[lookup(), lookup(name="other", returns="LAT DOUBLE")]),
        "lookup other: returns: lookup location has 'LAT' too",
    ),
    "a column named like an audit column": (
        lambda: enrichment(lookups=[lookup(returns="_lat DOUBLE")]),
        "'_lat' starts with _, as the audit columns do; rename it.",
    ),
    "a column named like the table's days": (
        lambda: enrichment(lookups=[lookup(returns="day STRING")]),
        "'day' is the column of the table's days",
    ),
    "one service in two versions": (
        lambda: enrichment(
            lookups=[
                lookup(),
                lookup(name="b", returns="b INT", service=service(max_concurrency=2)),
            ]
        ),
        "service geo is declared twice with different values",
    ),
    "more lookups of a service than calls": (
        lambda: enrichment(
            lookups=[
                lookup(name=n, returns=f"{n} INT", service=service(max_concurrency=1)) for n in "ab"
            ]
        ),
        "max_concurrency is 1, and 2 lookups share it",
    ),
    "a tolerance over 1": (
        lambda: Tolerance(timeout=5),
        "tolerance: timeout is 5; it is a share of rows, from 0 to 1.",
    ),
    "a tolerance that is no number": (
        lambda: Tolerance(error=float("nan")),
        "tolerance: error is nan",
    ),
    "a negative bound": (
        lambda: EventTime("at", max_out_of_orderness=timedelta(seconds=-1)),
        "max_out_of_orderness is -1 day",
    ),
    "a schedule of four fields": (
        lambda: enrichment(schedule="15 2 * *"),
        "it must be five cron fields",
    ),
    "a schedule at 25 o'clock": (
        lambda: enrichment(schedule="15 25 * * *"),
        "schedule is '15 25 * * *'",
    ),
    "a schedule in words": (
        lambda: enrichment(schedule="every day at two o'clock"),
        "it must be five cron fields",
    ),
    "a deadline that is no time": (lambda: enrichment(publish_by="6:30"), "publish_by is '6:30'"),
    "an owner that Dagster refuses": (
        lambda: enrichment(owners=["ops"]),
        "owners: 'ops' must be a",
    ),
    "a deadline after midnight": (lambda: enrichment(publish_by="24:00"), "publish_by is '24:00'"),
    "no day between the first and the end": (
        lambda: enrichment(start="2013-01-10", end="2013-01-10"),
        "end is '2013-01-10', and start '2013-01-10'; end is the day after the last day",
    ),
    "a first day that is no day": (lambda: enrichment(start="2013-02-30"), "start is '2013-02-30'"),
    "a severity that nobody knows": (
        lambda: enrichment(severities={"every_row_once": "fatal"}),
        "severities['every_row_once'] is 'fatal'; it must be one of: error, warn",
    ),
    "concurrency 0": (
        lambda: service(max_concurrency=0),
        "service geo: max_concurrency is 0; it must be a whole number",
    ),
    "half a call at once": (lambda: service(max_concurrency=2.5), "max_concurrency is 2.5"),
    "no host": (
        lambda: service(url="geo.example"),
        "url 'geo.example' is not an http:// or https:// address",
    ),
    "a port that is no number": (
        lambda: service(url="http://geo.example:99999"),
        "is not an http://",
    ),
    "a password in what is no address": (
        lambda: service(url="me:secret@geo.example"),
        "service geo: url '***@geo.example' is not an http:// or https:// address",
    ),
    "a password in the address": (
        lambda: service(url="http://me:secret@geo.example"),
        "only scheme, host, port and path",
    ),
    "retries below 0": (lambda: Retry(retries=-1), "retries is -1"),
    "a delay of 0": (lambda: Retry(initial_delay=0), "delays must be over 0"),
    "an endless delay": (lambda: Retry(max_delay=float("inf")), "delays must be over 0"),
    "an outage after 0 failures": (lambda: Outage(after=0), "after must be at least 1"),
    "an input at no place": (
        lambda: Input(path=""),
        "input: path is ''; it must be a folder or a URL.",
    ),
    "a table at a URL": (
        lambda: Output(path="file:///lake/table"),
        (
            "output: path is 'file:///lake/table'; a table is in a folder, or at a URL that begins "
            "with s3://, gs://"
        ),
    ),
    "a table at a URL with one slash": (
        lambda: Output(path="file:/orders"),
        "output: path is 'file:/orders'; a URL has a scheme in small letters, a bucket and a path",
    ),
    **{
        f"{name} below ~": (declare, "path is '~/orders'; write the folder in full")
        for name, declare in {
            "a table": lambda: Output(path="~/orders"),
            "a folder of Parquet": lambda: Output(path="orders", parquet="~/orders"),
            "an input": lambda: Input(path="~/orders"),
            "a ledger": lambda: Ledger("~/orders"),
        }.items()
    },
    "a table that lies nowhere": (
        lambda: Output(path=""),
        "output: path is ''; it must be a folder or a URL.",
    ),
    "a ledger that lies nowhere": (
        lambda: Ledger(""),
        "ledger: path is ''; it must be a folder or a filesystem URL.",
    ),
    **{
        f"a ledger at {url}": (
            lambda url=url: Ledger(url),
            f"ledger: path is '{url}'; a URL has a bucket and a path, such as s3://bucket/ledger",
        )
        for url in ("s3://", "s3:///ledger", "file://data/ledger")
    },
    "a secret in a ledger's URL": (
        lambda: Ledger("s3://id:secret@bucket/ledger"),
        "ledger: path contains a secret",
    ),
    "an access key in a ledger's URL": (
        lambda: Ledger("s3://AKIAKEY@bucket/ledger"),
        "ledger: path contains a secret",
    ),
    "a secret with a slash": (
        lambda: Ledger("s3://AKIAKEY:abc/def@bucket/ledger"),
        "ledger: path contains a secret",
    ),
    "a table without a bucket": (
        lambda: Output(path="s3:///orders"),
        "output: path is 's3:///orders'; a URL has a scheme in small letters, a bucket and a path",
    ),
    **{
        f"{parameter} in a ledger's URL": (
            lambda parameter=parameter: Ledger(f"s3://bucket/ledger?region=eu&{parameter}=abc"),
            "ledger: path contains a secret",
        )
        for parameter in (
            "secret_key",
            "access_key",
            "session_token",
            "SECRET%5Fkey",
            "sig",
            "sas_token",
            "password",
        )
    },
    "a ledger that is never written": (
        lambda: Ledger(flush_rows=0),
        "flush_rows must be a whole number, at least 1",
    ),
    "a flush after 0 s": (
        lambda: Ledger(flush_seconds=0.0),
        "flush_seconds over 0. Without a ledger: ledger=None.",
    ),
    "a negative time to live": (
        lambda: Ttl(ok=timedelta(days=-1)),
        "ttl: ok is datetime.timedelta(days=-1)",
    ),
    "a time to live in days": (
        lambda: Ttl(miss=30),
        "ttl: miss is 30; it must be a timedelta, 0 or more",
    ),
    "calls that must not be made twice, and no ledger": (
        lambda: enrichment(lookups=[lookup(idempotent=False, retry=Retry(retries=0))], ledger=None),
        "lookup location: idempotent=False needs a ledger",
    ),
    "one pii column in place of a list": (
        lambda: enrichment(pii="address"),
        "pii is 'address'; it must be a list",
    ),
}

WRONG_LOOKUPS = {
    "a name that no column could have": (
        {"name": "Where"},
        "lookup 'Where': the name must be lower-case",
    ),
    "DDL that cannot be read": ({"returns": "lat DUBBLE"}, "lookup location: returns: "),
    "a time limit of 0": ({"timeout": 0}, "timeout is 0 s; it must be over 0, or None"),
    "an endless time limit": ({"timeout": float("inf")}, "timeout is inf s"),
    "no key": ({"keys": {}, "request": "GET /v1"}, "keys is empty"),
    "a key that is no SQL": ({"keys": {"q": "trim(("}}, "keys.q: cannot read 'trim(('"),
    "a key without its last parenthesis": (
        {"keys": {"q": "trim(address"}},
        "keys.q: cannot read 'trim(address'",
    ),
    "a key that is a query": ({"keys": {"q": "SELECT address"}}, "not one Spark SQL expression"),
    "a key with a semicolon": ({"keys": {"q": "address;"}}, "not one Spark SQL expression"),
    "a key with an alias": ({"keys": {"q": "address AS a"}}, "not one Spark SQL expression"),
    "a key of many rows": (
        {"keys": {"q": "explode(tags)"}},
        "keys.q: 'explode(tags)' makes any number of rows from one",
    ),
    "a key over the rows of a window": (
        {"keys": {"q": "row_number() over (order by id)"}},
        "keys.q: 'row_number() over (order by id)' reads other rows",
    ),
    "a key over all rows": (
        {"keys": {"q": "max(id)"}},
        "keys.q: 'max(id)' reads other rows",
    ),
    "two statements for a key": (
        {"keys": {"q": "id; drop table t"}},
        "keys.q: 'id; drop table t' is not one Spark SQL expression",
    ),
    "two keys that differ only in case, which Spark ignores": (
        {"keys": {"q": "a", "Q": "b"}, "request": "GET /v1/{q}/{Q}"},
        "keys: 'q' and 'Q' differ only in case, which Spark ignores; rename one.",
    ),
    "a column whose path is none": (
        {"returns": "`a b` INT", "paths": {}},
        "$.a b is not the path of a member 'a b'; declare its path in paths, such as \"$['a b']\".",
    ),
    "a column whose path is another member's": (
        {"returns": "`x.y` INT", "paths": {}},
        "$.x.y is not the path of a member 'x.y'; declare its path in paths, such as \"$['x.y']\".",
    ),
    "a column whose path is an item": (
        {"returns": "`a[0]` INT", "paths": {}},
        "returns: $.a[0] is not the path of a member 'a[0]'",
    ),
    "a column whose path is any member": (
        {"returns": "`*` INT", "paths": {}},
        "returns: $.* is not the path of a member '*'",
    ),
    "a method it cannot make": (
        {"request": "PATCH /v1/{q}"},
        "it must be GET, POST or PUT and a path",
    ),
    "a path that is none": ({"request": "GET v1/{q}"}, "it must be GET, POST or PUT and a path"),
    "a placeholder that is no key": (
        {"request": "GET /v1/{q}/{p}"},
        "'p' is in the request, but is not a key. The keys: q.",
    ),
    "a placeholder that is no key and sorts after the key": (
        {"request": "GET /v1/{town}", "keys": {"customer": "a"}},
        "'town' is in the request, but is not a key. The keys: customer.",
    ),
    "a mistyped placeholder": (
        {"request": "GET /v1/{custmer}", "keys": {"customer": "a"}},
        "'custmer' is in the request, but is not a key. Did you mean 'customer'?",
    ),
    "a mistyped column of paths": (
        {"paths": {"latt": "$.lat"}},
        "paths: 'latt' is not a column of returns (lat, lon). Did you mean 'lat'?",
    ),
    "a key that is not asked": (
        {"keys": {"q": "a", "p": "b"}},
        "'p' is in keys, but the request does not use it",
    ),
    "an unpaired brace": ({"request": "GET /v1/{q"}, "a brace is unpaired"),
    "a placeholder with a format": ({"request": "GET /v1/{q:>8}"}, "{q} has a format"),
    "a placeholder with a conversion": ({"request": "GET /v1/{q!r}"}, "{q} has a format"),
    "a path with a space": ({"request": "GET /v 1/{q}"}, "cannot be in a URL"),
    "a key where no server sees it": ({"request": "GET /v1#{q}"}, "'/v1#' cannot be in a URL"),
    "a path with an umlaut": ({"request": "GET /v1/ü/{q}"}, "cannot be in a URL"),
    "a JSON path that is none": ({"paths": {"lat": "$.["}}, "paths: lat: '$.[' is not a JSON path"),
    "a path for no column": (
        {"paths": {"alt": "$.alt"}},
        "paths: 'alt' is not a column of returns",
    ),
    "a range for no column": (
        {"ranges": {"alt": (0, 1)}},
        "ranges: 'alt' is not a column of returns (lat, lon)",
    ),
    "a range from the largest value": (
        {"ranges": {"lat": (90, -90)}},
        "ranges: lat is (90, -90); write the smallest value",
    ),
    "a range from NaN": (
        {"ranges": {"lat": (math.nan, 90)}},
        "ranges: lat is (nan, 90); write the smallest value",
    ),
    "a range of a date": (
        {"returns": "seen DATE", "ranges": {"seen": (0, None)}},
        "ranges: seen is DATE; only a number has a range",
    ),
    "a null share for no column": (
        {"null_share": {"alt": 0.1}},
        "null_share: 'alt' is not a column",
    ),
    "a null share over 1": (
        {"null_share": {"lat": 1.5}},
        "null_share: lat is 1.5; it is a share of the ok rows",
    ),
    "an attempt of 0 s": ({"attempt_timeout": 0}, "attempt_timeout is 0 s"),
    "a policy that nobody knows": (
        {"on_miss": "drop"},
        "on_miss is 'drop'; it must be one of: null, dead_letter, fail.",
    ),
    "calls that must not be made twice, and retries": (
        {"idempotent": False},
        "write retry=Retry(retries=0)",
    ),
    "calls that must not be made twice, for each row": (
        {"idempotent": False, "retry": Retry(retries=0), "cache": None},
        "leave the cache on",
    ),
    "a null policy that nobody knows": (
        {"on_null_key": "ask"},
        "on_null_key is 'ask'; it must be one of: skip, fail.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_is_refused_with_rule_value_and_cure(case):
    make, message = WRONG[case]
    assert message in refused(make)


@pytest.mark.parametrize("case", WRONG_LOOKUPS)
def test_a_wrong_lookup_is_refused_by_its_name(case):
    fields, message = WRONG_LOOKUPS[case]
    sentence = refused(lambda: lookup(**fields))
    assert message in sentence
    assert sentence.startswith("lookup ")


@pytest.mark.parametrize("kind", [SqlLookup, AsyncFunctionLookup])
def test_every_kind_of_lookup_refuses_concurrency_0(kind):
    own = (
        {"url": "sqlite+aiosqlite:///x.db", "table": "x"}
        if kind is SqlLookup
        else {"function": Sentiment}
    )
    sentence = refused(
        lambda: kind(
            name="a", keys={"k": "k"}, returns="x INT", timeout=1.0, max_concurrency=0, **own
        )
    )
    assert (
        "max_concurrency is 0; it must be a whole number, at least 1 (calls in flight)." in sentence
    )


@pytest.mark.parametrize(
    "schedule",
    ["15 2 * * *", "*/5 0-6 1,15 JAN-MAR MON#2", "0 3 L * *", "0 0 1 1 0", "59 23 31 12 7"],
)
def test_a_schedule_in_cron_format_is_accepted(schedule):
    assert enrichment(schedule=schedule).schedule == schedule


def test_a_lookup_knows_which_columns_its_keys_read():
    assert lookup().reads(["Address"])
    assert not lookup().reads(["trim", "q"])


@pytest.mark.process
def test_the_fingerprint_is_the_same_in_every_process():
    program = "from enrichments.flights import flights; print(flights.fingerprint)"
    seeds = ("0", "1")
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in seeds
    }
    assert printed == {flights.fingerprint}


OTHER_NAMES = {
    "unordered": "ordered", "error": "warn", "skip": "fail", "null": "fail", "dead_letter": "null",
    "parquet": "delta",
}  # fmt: skip


def other(value):
    """Another legal value of the same kind, or None where this test does not know one."""
    match value:
        case str():
            return OTHER_NAMES.get(value, f"{value}x")
        case bool() | None:
            return None
        case int() | float():
            return value + 1
        case timedelta():
            return value * 2 or timedelta(seconds=1)
        case Env():
            return Env(value.name + "X")
    return None


BY_HAND = {
    "request", "start", "end", "schedule", "publish_by", "zone", "returns", "mode", "keys", "schema", "table",
    "every", "rows", "iceberg", "repair",
}  # fmt: skip


def changed_once(value):
    """Copies of a declared value, each with one field changed, however deep; with the
    field's path.
    """
    for field in dataclasses.fields(value):
        old = getattr(value, field.name)
        if field.name in BY_HAND:
            continue
        if dataclasses.is_dataclass(old) and not isinstance(old, Env):
            for path, new in changed_once(old):
                yield f"{field.name}.{path}", dataclasses.replace(value, **{field.name: new})
        elif isinstance(old, list) and old and dataclasses.is_dataclass(old[0]):
            for path, new in changed_once(old[0]):
                yield (
                    f"{field.name}[0].{path}",
                    dataclasses.replace(value, **{field.name: [new, *old[1:]]}),
                )
        elif other(old) is not None:
            yield field.name, dataclasses.replace(value, **{field.name: other(old)})


def test_the_fingerprint_changes_with_any_field():
    tolerant = dataclasses.replace(flights, tolerance=Tolerance(timeout=-0.0, error=0.0))
    changed = dict(changed_once(dataclasses.replace(tolerant, tolerance=Tolerance())))
    by_hand = {
        "mode": dataclasses.replace(flights, mode="unordered"),
        "schedule": dataclasses.replace(flights, schedule=None),
        "publish_by": dataclasses.replace(flights, publish_by="07:00"),
        "zone": dataclasses.replace(flights, zone="Europe/Berlin"),
        "every": dataclasses.replace(
            flights,
            schedule=None,
            publish_by=None,
            input=dataclasses.replace(flights.input, every="hour"),
        ),
        "rows": dataclasses.replace(
            flights,
            publish_by=None,
            input=dataclasses.replace(flights.input, every=["all"], rows="changed"),
        ),
        "table": dataclasses.replace(
            flights, input=Input(format="iceberg", table="lake.shop.flights")
        ),
        "table, other": dataclasses.replace(
            flights, input=Input(format="iceberg", table="lake.web.flights")
        ),
        "iceberg": dataclasses.replace(
            flights, output=Output(path=flights.output.path, iceberg="lake.shop.flights")
        ),
        "returns": dataclasses.replace(
            flights,
            lookups=[
                dataclasses.replace(
                    flights.lookups[0], returns="temp_c FLOAT, wind_ms DOUBLE, visibility_m INT"
                ),
                flights.lookups[1],
            ],
        ),
        "keys": dataclasses.replace(
            flights,
            lookups=[
                flights.lookups[0],
                dataclasses.replace(flights.lookups[1], keys={"tailnum": "upper(tail_number)"}),
            ],
        ),
        "expectations": dataclasses.replace(
            flights, expectations=[Expectation("expect_x", column="temp_c", min_value=1)]
        ),
        "expectations, other": dataclasses.replace(
            flights, expectations=[Expectation("expect_x", column="temp_c", min_value=2)]
        ),
        "schema": dataclasses.replace(
            flights, input=Input(path="data/raw", format="csv", schema="k STRING")
        ),
        "schema, other": dataclasses.replace(
            flights, input=Input(path="data/raw", format="csv", schema="k INT")
        ),
        "severities": dataclasses.replace(flights, severities={"order_held": "warn"}),
        "tolerance": dataclasses.replace(flights, tolerance=Tolerance(error=0.5)),
    }
    found = {path: version.fingerprint for path, version in (changed | by_hand).items()}
    assert len(found) > 35
    assert {path: f for path, f in found.items() if f == flights.fingerprint} == {}
    assert len(set(found.values())) == len(found)


def test_the_fingerprint_knows_a_function_by_its_name_and_arguments_and_not_by_its_address():
    def declared(function):
        asked = AsyncFunctionLookup(
            name="mood",
            keys={"t": "t"},
            returns="score DOUBLE",
            timeout=1.0,
            max_concurrency=1,
            function=function,
        )
        return enrichment(lookups=[asked]).fingerprint

    assert declared(functools.partial(Sentiment)) == declared(functools.partial(Sentiment))
    assert declared(functools.partial(Sentiment)) != declared(functools.partial(Sentiment, 2))
    assert declared(Sentiment) != declared(Other)


def test_a_declaration_is_the_same_on_an_executor():
    there = pickle.loads(pickle.dumps(flights))
    assert there == flights
    assert there.fingerprint == flights.fingerprint
    assert there.facts() == flights.facts()


@pytest.mark.process
def test_loading_a_declaration_imports_neither_spark_nor_great_expectations():
    program = textwrap.dedent("""
        import sys
        from jobs.declare.finding.loading import load
        load("enrichments.flights:flights").facts()
        heavy = {"pyspark", "great_expectations", "pandas", "aiohttp", "sqlalchemy", "deltalake", "dagster"}
        print(sorted(heavy & set(sys.modules)))
    """)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"


@pytest.mark.process
def test_a_worker_that_gets_a_lookup_loads_no_sql_parser(tmp_path):
    lookup = flights.lookups[0]
    assert lookup.columns  # as the plan of a run has read them
    (tmp_path / "lookup").write_bytes(pickle.dumps(lookup))
    program = textwrap.dedent(f"""
        import pickle, sys
        from pathlib import Path
        import jobs.task.runner
        import jobs.clients.http.http_client
        lookup = pickle.loads(Path({str(tmp_path / "lookup")!r}).read_bytes())
        print([column.cast(None) for column in lookup.columns], "sqlglot" in sys.modules)
    """)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == f"{[None] * len(lookup.columns)} False"


def test_the_facts_go_through_json_unchanged():
    assert DeclaredFacts.from_json(flights.facts().to_json()) == flights.facts()


def test_facts_with_a_value_that_json_lacks_are_refused():
    verdict = Verdict("row_count", "failed", "error", "", evidence=({"at": date(2013, 1, 10)},))
    with pytest.raises(AttributeError, match=r"'datetime\.date' object"):
        verdict.to_json()


def test_the_facts_name_arguments_of_expectations_that_json_lacks_by_their_text():
    given = {"min_value": date(2013, 1, 10), "mostly": Decimal("0.9"), "value_set": {"b", "a"}}
    declared = dataclasses.replace(flights, expectations=[Expectation("expect_x", **given)])
    (stored,) = json.loads(declared.facts().to_json())["expectations"]
    assert stored["arguments"] == {
        "min_value": "2013-01-10",
        "mostly": "0.9",
        "value_set": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("enrichments.flights", "is not module:name"),
        ("enrichments.flights:", "is not module:name"),
        ("enrichments.nights:flights", "enrichments.nights cannot be loaded: ModuleNotFoundError"),
        ("enrichments.flights:nights", "has no Enrichment named 'nights'. It has: flights."),
        ("enrichments.flights:weather", "has no Enrichment named 'weather'. It has: flights."),
    ],
)
def test_a_reference_that_names_no_enrichment_is_refused(reference, message):
    assert message in refused(lambda: load(reference))


def test_a_file_that_cannot_be_loaded_is_named_with_what_its_author_got_wrong(
    tmp_path, monkeypatch
):
    (tmp_path / "broken_declaration.py").write_text(
        "from tidegate import Service\nService(name='a', url='x', max_concurrency=1)"
    )
    (tmp_path / "half_declaration.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)
    assert refused(lambda: load("broken_declaration:x")).startswith(
        "broken_declaration cannot be loaded: line 2: service a: url 'x' is not"
    )
    assert "half_declaration cannot be loaded: SyntaxError" in refused(
        lambda: load("half_declaration:x")
    )


def test_a_summary_is_part_of_the_declaration():
    declared = enrichment(summaries=[Summary(name="by_country", sql="SELECT 1")])
    assert declared.summaries[0].name == "by_country"


@pytest.mark.parametrize("path", ["data/published/addresses", "s3://lake/addresses"])
def test_a_slash_at_the_end_of_a_tables_path_changes_no_place_that_is_written_to(path):
    declared = enrichment(output=Output(path=f"{path}/"))
    assert declared == enrichment(output=Output(path=path))
    assert audit.table_of(declared.facts().table) in [table.path for table in declared.tables()]


def test_a_secret_in_a_ledgers_url_is_refused_without_showing_it():
    with pytest.raises(DeclarationError) as refused:
        Ledger("s3://bucket/ledger?secret_key=wJalrXUtnFEMI")
    assert "wJalrXUtnFEMI" not in str(refused.value)
    assert "AWS_SECRET_ACCESS_KEY) or the role of the instance" in str(refused.value)


@pytest.mark.parametrize("path", [
    "data/ledger", "s3://bucket/ledger?region=eu-west-1&endpoint_override=localhost:9000",
    "file:///data/ledger", "abfs://container@account.dfs.core.windows.net/ledger",
    "gs://anonymous@bucket/ledger", "s3://bucket/people/ada@example.com",
])  # fmt: skip
def test_a_ledgers_url_without_a_secret_is_accepted(path):
    assert Ledger(path).path == path


@pytest.mark.parametrize("path", ["hdfs://user@host/ledger", "viewfs://c/ledger", "S3://b/ledger"])
def test_a_ledger_where_no_file_is_replaced_atomically_is_refused(path):
    with pytest.raises(DeclarationError, match="no other replaces a file atomically"):
        Ledger(path)


@pytest.mark.parametrize(
    "partition", ["my day", "my-day", "a.b", "a`b", "a'b", "a=b", "a%20b", "a?b", "a/b", "1day", ""]
)
def test_a_partition_column_whose_name_sql_or_a_path_would_split_is_refused(partition):
    with pytest.raises(DeclarationError) as refused:
        Input(path="data/raw", partition=partition)
    assert str(refused.value) == (
        f"input: partition is {partition!r}; it must be letters, digits and _, not a digit first: "
        "folders and a column are named after it."
    )


@pytest.mark.parametrize(
    "name", ["run_id", "Run_ID", "_key", "_at", "_late", "_Location_status", "_location_attempts"]
)
@pytest.mark.parametrize("where", ["partition", "row_id"])
def test_a_row_id_or_partition_may_not_be_a_column_of_the_audit_or_dead_letters(where, name):
    given = {"partition": name} if where == "partition" else {"row_id": ["id", name]}
    with pytest.raises(DeclarationError) as refused:
        enrichment(input=Input(path="data/raw", **given))
    assert str(refused.value).endswith(
        f"input: {where}: {name!r} is a column of the audit table or the dead letters; rename it."
    )


def test_the_columns_of_the_dead_letters_are_reserved():
    assert {field.name for field in dead_letters.OWN_COLUMNS} == {
        schema.RUN_ID,
        *schema.LETTER_COLUMNS,
    }


@pytest.mark.parametrize("name", ["", "by town", "by-town", "../towns", "a%20b"])
def test_a_summary_whose_name_is_not_a_folder_name_is_refused(name):
    with pytest.raises(
        DeclarationError, match="the name must be letters, digits and _: a folder has it"
    ):
        Summary(name=name, sql="SELECT 1")
