"""Which change of a declaration asks anew, and which does not."""

import dataclasses
import subprocess
import sys
from datetime import timedelta

import pytest

from jobs.declare.auth import ApiKey
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.services import Cache, Outage, Retry, Service
from jobs.declare.sql_lookup import SqlLookup
from jobs.declare.values.env import Env
from jobs.declare.values.fingerprint import plain
from jobs.ledger.declared_folder import request_fingerprint


class Scores:
    """An AsyncFunction by its shape."""

    async def async_invoke(self, keys):
        return [{"score": 1}]


class Others(Scores):
    pass


SERVICE = Service(name="weather_api", url=Env("WEATHER_URL"), max_concurrency=10)
HTTP = HttpLookup(
    name="weather",
    service=SERVICE,
    request="GET /v1/{origin}/{hour}",
    keys={"origin": "origin", "hour": "hour"},
    returns="temp_c DOUBLE",
    timeout=2.0,
)
SQL = SqlLookup(
    name="plane",
    url="postgresql+asyncpg://reader@db/planes",
    table="planes",
    keys={"tailnum": "tail_number"},
    returns="model STRING, seats INT",
    timeout=5.0,
    max_concurrency=4,
)
FUNCTION = AsyncFunctionLookup(
    name="scores",
    function=Scores,
    keys={"id": "id"},
    returns="score INT",
    timeout=1.0,
    max_concurrency=4,
)


def changed(lookup, **fields):
    """The lookup with these fields; a field of its service is written service__name."""
    service = {
        name.removeprefix("service__"): fields.pop(name)
        for name in list(fields)
        if name.startswith("service__")
    }
    if service:
        fields["service"] = dataclasses.replace(lookup.service, **service)
    return dataclasses.replace(lookup, **fields)


ASKS_ANEW = [
    (HTTP, {"version": 2}),
    (HTTP, {"request": "GET /v2/{origin}/{hour}"}),
    (HTTP, {"request": "GET /v1/{hour}/{origin}"}),
    (HTTP, {"keys": {"hour": "hour", "origin": "origin"}}),
    (HTTP, {"miss_when": (404, "$.status == 'NONE'")}),
    (HTTP, {"service__name": "other_api"}),
    (HTTP, {"service__url": Env("OTHER_URL")}),
    (HTTP, {"service__url": "https://weather.example"}),
    (SQL, {"version": 2}),
    (SQL, {"url": "postgresql+asyncpg://reader@db/other"}),
    (SQL, {"url": Env("PLANES_URL")}),
    (SQL, {"table": "old_planes"}),
    (SQL, {"returns": "model STRING"}),
    (SQL, {"keys": {"serial": "tail_number"}}),
    (FUNCTION, {"version": 2}),
    (FUNCTION, {"function": Others}),
]
COSTS_NOTHING = [
    (HTTP, {"returns": "temp_c DOUBLE, wind DOUBLE", "paths": {"wind": "$.wind.speed"}}),
    (HTTP, {"keys": {"origin": "upper(origin)", "hour": "date_trunc('HOUR', at)"}}),
    (HTTP, {"timeout": None}),
    (HTTP, {"attempt_timeout": 1.0, "finish_after_timeout": True}),
    (HTTP, {"retry": Retry(retries=9)}),
    (HTTP, {"cache": Cache(max_entries=1, ttl=timedelta(seconds=1))}),
    (HTTP, {"throttled_when": (429,)}),
    (HTTP, {"max_answer_bytes": 10}),
    (HTTP, {"on_miss": "fail", "on_error": "fail", "on_timeout": "fail", "on_null_key": "fail"}),
    (HTTP, {"ranges": {"temp_c": (0, 1)}, "null_share": {"temp_c": 0.5}}),
    (HTTP, {"service__max_concurrency": 99}),
    (HTTP, {"service__auth": ApiKey(Env("KEY"))}),
    (HTTP, {"service__stop_on": (401,), "service__outage": Outage(after=1)}),
    (SQL, {"batch_size": 500, "max_wait": 1.0, "attempt_timeout": 2.0}),
    (SQL, {"returns": "model STRING, seats BIGINT"}),
    (SQL, {"max_concurrency": 1, "timeout": 1.0, "outage": Outage(after=1)}),
    (FUNCTION, {"returns": "score INT, grade STRING"}),
    (FUNCTION, {"max_concurrency": 1, "timeout": None}),
]


@pytest.mark.parametrize(("lookup", "fields"), ASKS_ANEW, ids=str)
def test_a_change_of_the_request_or_the_service_repeats_calls(lookup, fields):
    assert request_fingerprint(changed(lookup, **fields)) != request_fingerprint(lookup)


@pytest.mark.parametrize(("lookup", "fields"), COSTS_NOTHING, ids=str)
def test_a_change_of_reading_limits_or_prices_repeats_no_call(lookup, fields):
    assert request_fingerprint(changed(lookup, **fields)) == request_fingerprint(lookup)


def test_facts_of_a_request_contain_no_secret():
    assert "secret" not in str(plain(SQL.request_facts()))
    assert "***" not in str(plain(FUNCTION.request_facts()))


@pytest.mark.process
def test_the_fingerprint_is_16_hex_digits_and_the_same_in_every_process():
    code = """
from jobs.declare.values.env import Env
from jobs.ledger.declared_folder import request_fingerprint
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.services import Service
print(request_fingerprint(HttpLookup(name="weather", service=Service(name="weather_api", url=Env("WEATHER_URL"),
      max_concurrency=10), request="GET /v1/{origin}/{hour}", keys={"origin": "a", "hour": "b"},
      returns="x INT", timeout=None)), end="")
"""
    message = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "3"},
    ).stdout
    assert message == request_fingerprint(HTTP)
    assert len(bytes.fromhex(message)) == 8
