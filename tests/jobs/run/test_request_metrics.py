"""The requests of a day, told by its tasks: what the record says is what the service saw, and what
is paid.
"""

import asyncio
import datetime as dt
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.clients.request_counter import DAY as SECONDS
from jobs.clients.request_counter import RequestCounts
from jobs.run.day import run_day
from jobs.run.request_metrics import add_requests
from jobs.schema.records import Billed, BilledUnit, DayMetrics, LookupMetrics
from jobs.tables.records import run_bills, run_records
from jobs.task.output_files import TaskResult
from tidegate import Batch, Enrichment, HttpLookup, Input, Output, Price, Retry, Service

pytestmark = pytest.mark.spark
DAY = "2024-05-01"
KEYS = 130  # in each of two files: no whole number of batches


def declare(url):
    geo = Service(name="geo", url=url, max_concurrency=3, prices=[Price("0.50 USD", per="request")])
    location = HttpLookup(
        name="location", service=geo, request="POST /batch", keys={"k": "k"}, returns="lat DOUBLE",
        timeout=30.0,
        batch=Batch(max_items=20, max_wait=0.05, item={"id": "{id}", "k": "{k}"}, match="$.id"),
        # whichever requests of a key are those that fail
        retry=Retry(retries=10, initial_delay=0.01),
    )  # fmt: skip
    return Enrichment(
        name="placed",
        input=Input(path="raw"),
        lookups=[location],
        output=Output(path="published"),
        ledger=None,
    )


@pytest.fixture
def two_tasks(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = Path(f"raw/date={DAY}")
    raw.mkdir(parents=True)
    for file in range(2):
        table = pa.table(
            {
                "k": pa.array(range(file * KEYS, (file + 1) * KEYS), pa.int64()),
                "pad": ["x" * 40] * KEYS,
            }
        )
        pq.write_table(table, raw / f"part-{file}.parquet", compression="none")
    spark.conf.set("spark.sql.files.openCostInBytes", "1k")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "3k")
    yield
    spark.conf.unset("spark.sql.files.openCostInBytes")
    spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_batches_are_counted_and_billed_as_sent(two_tasks, service):
    batches = []

    async def answer(request):
        items = await request.json()
        batches.append([item["k"] for item in items])
        number = len(batches)
        await asyncio.sleep(0.02)
        if number % 5 == 0:
            return web.Response(status=500)
        if number % 7 == 0:
            return web.Response(status=429, headers={"Retry-After": "0.01"})
        return web.json_response([{"id": item["id"], "lat": item["k"]} for item in items])

    service.answer = answer
    record = run_day(declare(service.url), DAY, "r1")
    (location,) = record.figures.lookups
    requests = location.requests
    assert location.outcomes["ok"] == 2 * KEYS
    assert (requests.sent, requests.items) == (len(batches), sum(map(len, batches)))
    assert requests.sent > 2 * KEYS / 20  # not all were full
    assert requests.answered + len(batches) // 5 + requests.throttled == requests.sent
    assert requests.retried > 0
    asked = Counter(key for batch in batches for key in batch)
    assert requests.retried == sum(
        1 for number, batch in enumerate(batches) if asks_again(batches, number, batch)
    )
    assert max(asked.values()) > 1

    lost = requests.sent - requests.answered
    assert location.billed == Billed(
        requests.sent, lost, "request", f"{requests.sent * 0.5:.2f}", "USD"
    )
    assert location.limit_s <= location.wall_s

    assert len(requests.most_at_once) == len(record.facts.shares[0]) == 2
    # what one that ended leaves goes to the other: not their sum
    assert max(requests.most_at_once) <= 3
    assert service.highest_in_flight <= min(3, sum(requests.most_at_once))
    assert run_records.load("placed", DAY) == [record]


def test_calls_of_a_lost_attempt_count_for_the_day():
    facts = declare("http://127.0.0.1:1").facts()
    sent = [TaskResult("", 0, {}, 5, {"location": 7}), TaskResult("", 1, {}, 6, {"location": 0})]
    before = LookupMetrics("location", {}, 20, 0, 0.0, 0.0, None, None, answered=20)
    (lookup,) = add_requests(DayMetrics(0, 0, 0, (before,)), facts, sent).lookups
    assert (lookup.calls, lookup.answered, lookup.requests) == (27, 20, None)


@pytest.mark.parametrize(
    ("token", "answered", "misses", "warns"),
    [(0, 20, 0, True), (5, 20, 0, False), (0, 0, 0, False), (0, 20, 19, True), (0, 20, 20, False)],
)
def test_a_run_warns_if_no_call_reports_the_priced_units(token, answered, misses, warns):
    parts = BilledUnit("request", 20, 0, "20"), BilledUnit("token", token, 0, "0")
    billed = Billed(20, 0, "request", "20", "USD", by_unit=parts)
    label = LookupMetrics(
        "label", {"miss": misses}, 20, 0, 0.0, 0.0, None, None, answered=answered, billed=billed
    )
    sentence = "lookup label: no call reported token (bill), so their cost is not in the bill"
    assert run_bills.unknown_uses(DayMetrics(20, 20, 0, (label,))) == (sentence,) * warns


def test_second_calls_of_a_function_are_no_requests():
    facts = declare("http://geo").facts()
    function = replace(facts.lookups[0], kind="function")
    sent = [TaskResult("", 0, {"location": RequestCounts(repeated=3)})]
    before = LookupMetrics("location", {}, 20, 0, 0.0, 0.0, None, None, answered=20)
    figures = add_requests(
        DayMetrics(0, 0, 0, (before,)), replace(facts, lookups=(function,)), sent
    )
    assert figures.lookups[0].requests is None


def asks_again(batches, number, batch):
    return bool(set(batch) & {key for earlier in batches[:number] for key in earlier})


@pytest.mark.parametrize(
    ("per", "billed"),
    [("request", (5, 1, "3.00")), ("item", (30, 4, "20.00")), ("token", (900, 200, "500.00"))],
)
def test_a_request_is_billed_at_the_price_of_its_day(per, billed):
    facts = declare("http://127.0.0.1:1").facts()
    prices = Price("0.50 USD", per=per), Price("1 USD", per=per, since="2026-12-01")
    facts = replace(
        facts, lookups=(replace(facts.lookups[0], prices=tuple(price.facts for price in prices)),)
    )
    november = int(dt.datetime(2026, 11, 30, tzinfo=dt.UTC).timestamp()) // SECONDS
    counts = RequestCounts(
        sent=Counter({november: 4, november + 1: 1}), items=Counter({november: 20}), answered=4,
        units={"token": Counter({november: 800, november + 1: 100})}, lost=Counter(token=200),
    )  # fmt: skip
    more = RequestCounts(items=Counter({november + 1: 10}))
    sent = [TaskResult("", 0, {"location": counts}), TaskResult("", 1, {"location": more})]
    before = LookupMetrics(
        "location",
        {},
        0,
        0,
        0.0,
        0.0,
        None,
        None,
        answered=26,
        billed=Billed(0, 0, per, "0", "USD"),
    )
    figures = add_requests(DayMetrics(0, 0, 0, (before,)), facts, sent)
    units, lost, cost = billed
    assert figures.lookups[0].billed == Billed(units, lost, per, cost, "USD")
