"""The examples of docs/lookups.md, as they stand there, against a service that counts what
arrives.
"""

import asyncio
import datetime as dt
import gzip
import threading
from collections import Counter

import psycopg2
import pyarrow as pa
import pytest
from aiohttp import web

from jobs.declare.answers.usage import UsageReader
from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.runner import PartitionRun
from tests.support.documents import blocks


def example(heading, **instead):
    """The lookup that the section declares; words of the example may be replaced, as an
    address is.
    """
    (code,) = blocks("docs/lookups.md", "python", heading)
    for word, value in instead.items():
        assert word in code
        code = code.replace(word, value)
    names = {}
    exec(code, names)
    (declared,) = (value for value in names.values() if isinstance(value, Lookup))
    return declared


def enriched(declared, *keys, share=None, mode="ordered"):
    """Rows with these keys through one partition, without Spark; what it wrote, row by row."""
    names = tuple(f"__key_{name}" for name in declared.keys)
    identity = {"_source_file": ["file"] * len(keys), "_source_row": list(range(len(keys)))}
    columns = dict(zip(names, zip(*keys, strict=True), strict=True))
    batch = pa.RecordBatch.from_pydict({**columns, **identity})
    plan = PartitionPlan(
        lookups=(declared,),
        shares=((share or declared.concurrency,),),
        mode=mode,
        layout=BatchLayout(
            tuple(identity), (names,), (), None, 0, (declared.name,), (declared.columns,)
        ),
        progress=None,
    )
    batches = [batch.slice(start, 100) for start in range(0, len(keys), 100)]
    return [
        row
        for written in PartitionRun(plan, 0, 0).run(iter(batches))
        for row in written.to_pylist()
    ]


def test_an_answer_that_echoes_another_key_is_an_error(service):
    async def balance(request):
        customer = request.path.split("/")[2]
        named = {"7": {"customer_id": 8}, "9": {}}.get(customer, {"customer_id": int(customer)})
        return web.json_response({"balance": "1.50", **named})

    service.answer = balance
    declared = example("An answer that names its key", SERVICE_URL=service.url)
    rows = enriched(declared, ("5",), ("7",), ("9",))
    assert [row["balance_status"] for row in rows] == ["ok", "error", "error"]
    assert [row["_balance_error"] for row in rows[1:]] == [
        "the answer names another customer (echo)",
        "the answer does not name its customer at $.customer_id (echo)",
    ]
    assert Counter(service.log) == {
        "/customers/5/balance": 1, "/customers/7/balance": 1 + declared.retry.retries,
        "/customers/9/balance": 1
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_equal_requests_are_one_call(service, mode):
    async def rating(request):
        await asyncio.sleep(0.01)
        number = int(request.path.split("/")[2])
        return web.json_response(
            {"score": number, "grade": "A"}, status=404 if number == 7 else 200
        )

    service.answer = rating
    keys = [(str(row % 20),) for row in range(1000)]
    rows = enriched(
        example("Equal requests are one call", SERVICE_URL=service.url), *keys, mode=mode
    )
    assert Counter(service.log) == {f"/customers/{number}/rating": 1 for number in range(20)}
    assert service.highest_in_flight <= 4
    assert Counter(row["_rating_source"] for row in rows) == {"call": 20, "shared": 980}
    assert Counter(row["rating_status"] for row in rows) == {"ok": 950, "miss": 50}
    for row in rows:
        number = row["_source_row"] % 20
        assert row["score"] == (None if number == 7 else number)
        assert len(row["_rating_attempts"]) == (row["_rating_source"] == "call")
        assert (row["_rating_latency_ms"] is None) == (row["_rating_source"] == "shared")
        assert row["rating_answered_at"] is not None


def test_a_token_is_fetched_once_and_sent_with_every_call(service, monkeypatch):
    monkeypatch.setenv("GEO_ID", "me")
    monkeypatch.setenv("GEO_SECRET", "s3cr3t-Zq9")

    async def place(request):
        if request.path == "/token":
            return web.json_response(
                {"access_token": "abc", "token_type": "bearer", "expires_in": 3600}
            )
        known = request.headers.get("Authorization") == "Bearer abc"
        return web.json_response({"lat": 40.6, "lon": -73.8}, status=200 if known else 401)

    service.answer = place
    declared = example("Authentication", SERVICE_URL=service.url)
    rows = enriched(declared, *[(f"street {number}",) for number in range(20)])
    assert [(row["location_status"], row["lat"]) for row in rows] == [("ok", 40.6)] * 20
    assert Counter(service.log)["/token"] == 1
    assert len(service.log) == 21


def test_answers_with_status_200_may_be_misses_or_throttling(service):
    asked = Counter()

    async def place(request):
        q = request.path.split("/")[2]
        asked[q] += 1
        if q == "busy" and asked[q] == 1:
            return web.json_response({"status": "OVER_LIMIT"}, headers={"Retry-After": "0.2"})
        if q == "nowhere":
            return web.json_response({"status": "ZERO_RESULTS"})
        if q == "huge":
            return web.Response(
                body=gzip.compress(b" " * 1_000_000),
                headers={"Content-Encoding": "gzip"},
                content_type="text/json",
            )
        return web.json_response({"lat": 40.6, "lon": -73.8, "quota": {"left": 9}})

    service.answer = place
    declared = example("Services that answer 200 for everything", SERVICE_URL=service.url)
    rows = enriched(declared, ("busy",), ("nowhere",), ("huge",), ("here",))
    assert [row["location_status"] for row in rows] == ["ok", "miss", "error", "ok"]
    assert rows[2]["_location_error"] == "the answer is larger than 65,536 bytes (max_answer_bytes)"
    assert [attempt["throttled"] for attempt in rows[0]["_location_attempts"]] == [True, False]
    assert rows[0]["_location_paused_ms"] > 0
    assert asked == {"busy": 2, "nowhere": 1, "huge": 1, "here": 1}


def test_an_answer_reports_the_units_that_its_prices_are_of(service):
    usage = {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 4}}
    answer = {"label": "good", "usage": {**usage, "completion_tokens": 3}}

    async def label(request):
        assert await request.json() == {"model": "small-1", "input": "nice"}
        return web.json_response(answer)

    service.answer = label
    declared = example("Units that answers report", **{"https://model.example": service.url})
    (row,) = enriched(declared, ("nice",))
    assert (row["label_status"], row["label"]) == ("ok", "good")
    units = UsageReader(declared.bill).read(answer)
    assert units == {"input_token": 8, "cached_input_token": 4, "output_token": 3}
    assert set(units) == {price.unit for price in declared.prices}


@pytest.mark.parametrize("finishes", [True, False])
def test_a_request_whose_row_timed_out_may_finish_and_serve_the_rows_after_it(service, finishes):
    async def place(request):
        if request.path.endswith("slow") and len(service.log) == 1:
            await asyncio.sleep(2.5)
        return web.json_response({"lat": 40.6, "lon": -73.8})

    service.answer = place
    instead = {"timeout=0.3": "timeout=1.0"}  # a busy machine may take 0.3 s for a quick answer
    if not finishes:
        instead |= {"finish_after_timeout=True": "finish_after_timeout=False"}
    declared = example("A request that is billed anyway", SERVICE_URL=service.url, **instead)
    rows = enriched(declared, ("slow",), ("quick",), ("slow",))
    assert [row["location_status"] for row in rows] == ["timeout", "ok", "ok"]
    assert rows[2]["_location_source"] == ("shared" if finishes else "call")
    assert Counter(service.log) == {"/places/slow": 1 if finishes else 2, "/places/quick": 1}
    assert service.highest_in_flight == 1


@pytest.mark.parametrize(
    "without",
    [{"attempt_timeout=5.0": "attempt_timeout=None"}, {"timeout=0.3": "cache=None, timeout=0.3"}],
)
def test_a_request_that_outlives_its_row_needs_a_time_limit_and_a_cache(without):
    with pytest.raises(
        DeclarationError,
        match=(
            r"finish_after_timeout needs attempt_timeout, .* "
            r"and a cache"
        ),
    ):
        example("A request that is billed anyway", SERVICE_URL="http://127.0.0.1:1", **without)


def test_a_slow_request_gets_a_second_request(service):
    async def place(request):
        if request.path.endswith("/39") and service.log.count("/places/39") == 1:
            await asyncio.sleep(9.0)
        return web.json_response({"lat": 40.6, "lon": -73.8})

    service.answer = place
    declared = example("A second request for a slow answer", SERVICE_URL=service.url)
    keys = [(str(number),) for number in range(40)]
    rows = enriched(declared, *keys, share=8)  # so that 20 answers are there before the last call
    assert [row["location_status"] for row in rows] == ["ok"] * 40
    assert Counter(service.log)["/places/39"] == 2
    assert all(len(row["_location_attempts"]) == 1 for row in rows)


def test_a_body_carries_the_keys(service):
    heard = []

    async def route(request):
        heard.append((request.raw_path, request.headers["Accept-Language"], await request.json()))
        return web.json_response({"km": 12.5, "minutes": 9})

    service.answer = route
    at = dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)
    rows = enriched(
        example("A request with a body", SERVICE_URL=service.url), ("car/fast", 7, 'the "Ritz"', at)
    )
    assert [(row["route_status"], row["km"], row["minutes"]) for row in rows] == [("ok", 12.5, 9)]
    body = {"from": {"id": 7}, "text": 'to the "Ritz"', "at": "2013-01-10T05:00:00Z", "limit": 1}
    assert heard == [("/v2/routes?profile=car%2Ffast", "en", body)]


@pytest.mark.parametrize("cache", ["with a cache", "without"])
@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_many_keys_go_in_a_request_and_each_row_gets_its_outcome(service, mode, cache):
    asked = []

    async def places(request):
        items = (await request.json())["items"]
        asked.append([item["q"] for item in items])
        await asyncio.sleep(0.02)
        if any(item["q"] == "bad" for item in items):
            return web.json_response({"error": "bad item"}, status=400)
        answers = [
            {"id": item["id"], "lat": float(item["q"]), "lon": -73.8}
            for item in items
            if item["q"] != "gone"
        ]
        for answer in answers:
            if answer["lat"] == 7:
                answer.update(status="ZERO_RESULTS")
        return web.json_response({"results": answers[::-1]})

    service.answer = places
    instead = {} if cache == "with a cache" else {"timeout=30.0": "timeout=30.0, cache=None"}
    keys = [(str(number % 400), "US") for number in range(800)]
    keys[5], keys[111] = ("gone", "US"), ("bad", "US")
    rows = enriched(
        example("Many keys in one request", SERVICE_URL=service.url, **instead), *keys, mode=mode
    )
    assert sorted(row["_source_row"] for row in rows) == list(range(800))
    for row in rows:
        q, _ = keys[row["_source_row"]]
        expected = {"7": "miss", "gone": "error", "bad": "error"}.get(q, "ok")
        assert row["location_status"] == expected
        assert row["lat"] == (float(q) if expected == "ok" else None)
        assert len(row["_location_attempts"]) == (row["_location_source"] != "shared")
    errors = {
        keys[row["_source_row"]][0]: row["_location_error"]
        for row in rows
        if row["_location_error"]
    }
    refused = '400 Bad Request: {"error": "bad item"}'
    assert errors == {"gone": "the service left this item out of its answer", "bad": refused}
    assert service.highest_in_flight == 2
    assert max(map(len, asked)) == 50
    batches = [batch for batch in asked if "bad" not in batch]
    assert sum(map(len, batches)) == (401 if cache == "with a cache" else 799)
    # full ones, the halves of one, and partly full
    assert len(batches) <= (8 if cache == "with a cache" else 16) + 8


def test_pages_are_one_answer(service):
    pages = {
        "/stops/7/departures": {
            "total": 3,
            "departures": [{"line": "A"}, {"line": "B"}],
            "next": "?page=2",
        },
        "/stops/7/departures?page=2": {"departures": [{"line": "C"}], "next": None},
    }

    async def departures(request):
        return web.json_response(pages[request.raw_path])

    service.answer = departures
    rows = enriched(
        example("An answer that comes in pages", SERVICE_URL=service.url), ("7",), ("7",)
    )
    assert [(row["departures_status"], row["lines"], row["total"]) for row in rows] == [
        ("ok", ["A", "B", "C"], 3)
    ] * 2
    assert service.log == list(pages)


FLEET = """
CREATE SCHEMA fleet;
CREATE TABLE fleet.planes (tailnum TEXT PRIMARY KEY, manufacturer TEXT, seats INT, built DATE);
INSERT INTO fleet.planes SELECT 'N' || n, 'BOEING', n, DATE '2013-01-01' + n FROM generate_series(1, 999) AS n;
CREATE TABLE fleet.prices (tailnum TEXT, amount NUMERIC(12,2), currency TEXT, valid_from DATE);
INSERT INTO fleet.prices VALUES ('N1', 1.50, 'USD', '2013-01-01'), ('N1', 2.25, 'EUR', '2013-02-01');
"""


@pytest.fixture(scope="module")
def fleet(postgres):
    """A database with planes; only this file's tests connect to it."""
    name = postgres.new_database()
    postgres.execute(FLEET, name)
    return name


@pytest.fixture
def planes_url(postgres, fleet, monkeypatch):
    monkeypatch.setenv("PLANES_URL", postgres.url(fleet))


def test_the_answer_of_a_sql_lookup_is_a_row_of_the_table(planes_url):
    rows = enriched(example("A row of a database"), ("N7",), ("N0",), (None,))
    assert [row["plane_status"] for row in rows] == ["ok", "miss", "skipped"]
    assert (rows[0]["manufacturer"], rows[0]["seats"], rows[0]["built"]) == (
        "BOEING",
        7,
        dt.date(2013, 1, 8),
    )


def test_a_select_of_your_own_is_asked_with_the_keys(planes_url):
    january, march = dt.date(2013, 1, 10), dt.date(2013, 3, 1)
    rows = enriched(
        example("A select of your own"), ("N1", january), ("N1", march), ("N1", dt.date(2012, 1, 1))
    )
    assert [(row["price_status"], row["currency"], str(row["amount"])) for row in rows] == [
        ("ok", "USD", "1.50"),
        ("ok", "EUR", "2.25"),
        ("miss", None, "None"),
    ]


def test_many_keys_go_in_one_query_and_each_has_its_own_outcome(planes_url):
    keys = [(f"N{row % 1200}",) for row in range(2400)]
    rows = enriched(example("Many keys in one query"), *keys)
    assert [(row["plane_status"], row["seats"]) for row in rows] == [
        ("ok", row % 1200) if 1 <= row % 1200 <= 999 else ("miss", None) for row in range(2400)
    ]


@pytest.mark.parametrize("heading", ["A row of a database", "Many keys in one query"])
def test_a_row_whose_connection_the_server_closed_is_called_again(
    planes_url, postgres, fleet, heading, wait_for
):
    """Ended from outside, once, while every query waits for a lock."""
    declared = example(heading)
    waiting = f"FROM pg_stat_activity WHERE datname = '{fleet}' AND wait_event_type = 'Lock'"
    rows = []
    asking = threading.Thread(
        target=lambda: rows.extend(enriched(declared, *((f"N{n}",) for n in range(1, 41))))
    )
    with psycopg2.connect(postgres.url(fleet, driver="postgresql")) as lock:
        lock.cursor().execute("LOCK TABLE fleet.planes IN ACCESS EXCLUSIVE MODE")
        asking.start()
        wait_for(lambda: postgres.execute(f"SELECT count(*) > 0 {waiting}", fleet) == [(True,)])
        ended = postgres.execute(f"SELECT pg_terminate_backend(pid) {waiting}", fleet)
    lock.close()
    asking.join(60)
    assert ended
    assert [(row["plane_status"], row["seats"]) for row in rows] == [
        ("ok", n) for n in range(1, 41)
    ]
    assert max(len(row["_plane_attempts"]) for row in rows) > 1


def test_a_coroutine_may_send_any_requests_to_its_service(service, monkeypatch):
    monkeypatch.setenv("LLM_KEY", "s3cr3t-Zq9")
    heard = []

    async def chat(request):
        heard.append(request.headers["Authorization"])
        if request.path == "/v1/models":
            return web.json_response({"name": f"small-{request.query['for']}"})
        asked = await request.json()
        if len(heard) == 2:
            return web.json_response({}, status=429, headers={"Retry-After": "0.1"})
        label = "unknown" if asked["input"] == "?" else "good"
        return web.json_response({"label": label, "score": 0.5, "model": asked["model"]})

    service.answer = chat
    declared = example("A coroutine of your own", SERVICE_URL=service.url)
    rows = enriched(declared, ("nice",), ("?",), ("fine",), ("nice",), share=1)
    assert [(row["sentiment_status"], row["label"]) for row in rows] == [
        ("ok", "good"), ("miss", None), ("ok", "good"), ("ok", "good"),
    ]  # fmt: skip
    assert Counter(row["_sentiment_source"] for row in rows) == {"call": 3, "shared": 1}
    # either comes again
    of_nice = [attempt for row in (rows[0], rows[3]) for attempt in row["_sentiment_attempts"]]
    assert [attempt["throttled"] for attempt in of_nice] == [True, False]
    assert set(heard) == {"s3cr3t-Zq9"}
    assert declared.version == 3


def test_a_graphql_list_is_requested_page_by_page(service):
    names = [f"repository-{number}" for number in range(5)]

    async def graph(request):
        asked = (await request.json())["variables"]
        if asked["org"] == "broken" and asked["after"]:
            return web.json_response({"data": None, "errors": [{"message": "a deadline"}]})
        if asked["org"] == "nobody":
            return web.json_response({"data": {"organization": None}})
        first = int(asked["after"] or 0)
        nodes = [{"name": name, "stars": 1} for name in names[first : first + 2]]
        info = {"hasNextPage": first + 2 < len(names), "endCursor": str(first + 2)}
        page = {"nodes": nodes, "pageInfo": info}
        return web.json_response({"data": {"organization": {"repositories": page}}})

    service.answer = graph
    declared = example("A GraphQL list, page by page", SERVICE_URL=service.url)
    whole, nobody, broken = enriched(declared, ("acme",), ("nobody",), ("broken",))
    assert [repository["name"] for repository in whole["repositories"]] == names
    assert (nobody["repositories_status"], broken["repositories_status"]) == ("miss", "error")
    assert broken["repositories"] is None
    assert "a deadline" in broken["_repositories_error"]
    assert len(service.log) == 3 + 1 + 2
