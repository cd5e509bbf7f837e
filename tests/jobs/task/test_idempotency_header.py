"""A service that recognizes repeated calls charges each key once, whenever the task that asks it is
killed.
"""

import asyncio
import dataclasses
import multiprocessing
import os
import random
from collections import Counter

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.declare.values.fingerprint import fingerprint
from jobs.errors import DeclarationError
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.plan import LedgerPlan
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import batch, batches, collected, plan
from tests.support.places import everywhere, place_of
from tidegate import Batch, HttpLookup, Pages, Retry, Service, Ttl

HEADER = "Idempotency-Key"
ROWS = 150
PAGES = Pages(next="$.n", items="$.i", max_pages=3)
BATCH = Batch(item="{k}", body={"c": "{items}"}, answers="$.a", max_items=5, max_wait=0.1)


def charged(url, **fields):
    standard = {
        "name": "first", "service": Service(name="shop", url=url, max_concurrency=8),
        "request": "POST /charge/{k}", "keys": {"k": "k"}, "returns": "first_x BIGINT",
        "timeout": 20.0, "idempotent": False, "idempotency_header": HEADER,
        "retry": Retry(retries=4, initial_delay=0.001),
    }  # fmt: skip
    return HttpLookup(**standard | fields)


def planned(lookup, folder, run_id):
    ledger = LedgerPlan(
        folder,
        "first",
        request_fingerprint(lookup),
        run_id,
        Ttl(),
        200,
        0.05,
        idempotent=lookup.repeatable,
    )
    return dataclasses.replace(plan(lookup, share=8), ledgers=(ledger,))


def attempt(url, run, number, *, ledger, rows_file, environment):
    """One attempt of one task, in a process of its own; its rows are in a file once it has
    ended.
    """
    os.environ.update(environment)
    given = iter([batch(run * ROWS + start, 50) for start in range(0, ROWS, 50)])
    task = PartitionRun(planned(charged(url), ledger, f"r{run}"), 0, number)
    with pq.ParquetWriter(rows_file, (first := next(rows := task.run(given))).schema) as file:
        file.write_batch(first)
        for written in rows:
            file.write_batch(written)


class Shop:
    """Charges each idempotency key once, and answers it alike ever after."""

    def __init__(self, draw):
        self.draw, self.charges, self.answers, self.heard = draw, Counter(), {}, Counter()

    async def __call__(self, request):
        key, sent = int(request.path.rpartition("/")[2]), request.headers[HEADER]
        self.heard[key] += 1
        if sent not in self.answers:
            self.answers[sent] = key
            self.charges[key] += 1
        await asyncio.sleep(self.draw.uniform(0.005, 0.06))
        if self.draw.random() < 0.02:
            return web.Response(status=502)
        return web.json_response({"first_x": self.answers[sent]})


def charge_through(kills, service, ledger, folder):
    """Let task after task run and be killed while it calls, until so many were and the last one has
    ended. folder: for their rows.
    """
    draw = random.Random(kills)
    service.answer = shop = Shop(draw)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    killed = run = 0
    while killed < kills or run == 0:
        for number in range(1000):
            # the server of forks keeps the environment that it began with
            more = {
                "ledger": ledger,
                "rows_file": folder / f"rows-{run}.parquet",
                "environment": dict(os.environ),
            }
            process = context.Process(target=attempt, args=(service.url, run, number), kwargs=more)
            before = len(service.log)
            process.start()
            while killed < kills and len(service.log) == before and process.is_alive():
                process.join(0.005)  # a kill before its first call shows nothing
            process.join(draw.uniform(0.0, 0.25) if killed < kills else None)
            if process.exitcode is not None:
                break
            process.kill()
            process.join()
            killed += 1
        assert process.exitcode == 0
        run += 1
    statuses = Counter()
    for number in range(run):
        for row in pq.read_table(folder / f"rows-{number}.parquet").to_pylist():
            statuses[row["first_status"], row["first_x"] == row["k"]] += 1
    print(
        f"{killed} kills, {run} runs, {sum(shop.heard.values())} requests, "
        f"{sum(shop.charges.values())} charges"
    )
    assert statuses == {("ok", True): run * ROWS}
    assert shop.charges == Counter(range(run * ROWS))
    assert sum(shop.heard.values()) > run * ROWS


@pytest.fixture
def ledger(request, tmp_path):
    return f"{place_of(request, str(tmp_path))}/ledger"


@pytest.mark.process
@everywhere("ledger", on_store=pytest.mark.proof)
def test_a_task_killed_at_random_instants_is_charged_once_for_each_key(service, ledger, tmp_path):
    charge_through(4, service, ledger, tmp_path)


@pytest.mark.proof
@pytest.mark.process
@everywhere("ledger")
def test_two_hundred_kills_are_charged_once_for_each_key(service, ledger, tmp_path):
    charge_through(200, service, ledger, tmp_path)


@pytest.mark.process
def test_each_attempt_sends_the_same_header_for_a_key_and_another_for_another_request(
    service, tmp_path
):
    heard = []

    async def fails_first(request):
        heard.append((request.path, request.headers[HEADER]))
        known = sum(path == request.path for path, _ in heard)
        return web.json_response({"first_x": 1}, status=503 if known == 1 else 200)

    service.answer = fails_first
    lookup = charged(service.url, throttled_when=())
    for run in "ab":
        collected(planned(lookup, str(tmp_path / run), "r"), batches(5))
    assert len(heard) == 15
    assert len(set(heard)) == len({value for _, value in heard}) == 5
    collected(planned(dataclasses.replace(lookup, version=2), str(tmp_path / "c"), "r"), batches(5))
    assert len(set(heard)) == len({value for _, value in heard}) == 10


def test_the_idempotency_header_changes_no_fingerprint():
    without = charged("http://a", idempotent=True, idempotency_header=None)
    assert request_fingerprint(without) == request_fingerprint(charged("http://a", idempotent=True))
    assert fingerprint(without) == fingerprint(
        HttpLookup(
            name="first", service=Service(name="shop", url="http://a", max_concurrency=8),
            request="POST /charge/{k}", keys={"k": "k"}, returns="first_x BIGINT", timeout=20.0,
            retry=Retry(retries=4, initial_delay=0.001),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"idempotency_header": "a b"}, "is not a header name"),
        ({"idempotency_header": "Authorization"}, "has another use already"),
        ({"headers": {"idempotency-key": "1"}}, "has another use already"),
        ({"request": "GET /c/{k}", "pages": PAGES}, "leave out pages or the header"),
        ({"request": "POST /c", "batch": BATCH}, "leave out batch or the header"),
    ],
)
def test_a_header_that_cannot_identify_a_repeated_call_is_refused(fields, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        charged("http://a", **fields)
