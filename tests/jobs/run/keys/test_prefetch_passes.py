"""A further pass of a prefetch, for keys that another run answered and a refresh expired meanwhile."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.keys import key_text
from jobs.ledger.working_folders import announce
from jobs.run.day import run_day
from jobs.run.engines.engine import LOCAL
from jobs.run.keys import key_prefetch
from jobs.run.plan.options import RunOptions
from tidegate import Enrichment, HttpLookup, Input, Output, Service

DAY = "2026-11-01"
KEYS = 10
OF_ANOTHER = 9


@pytest.fixture
def declared(tmp_path, monkeypatch, service):
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / "raw" / f"date={DAY}"
    raw.mkdir(parents=True)
    pq.write_table(pa.table({"k": [*range(KEYS), *range(KEYS)]}), raw / "rows.parquet")

    async def answer(request):
        return web.json_response({"temp_c": 1.5})

    service.answer = answer
    score = HttpLookup(
        name="score", service=Service(name="s", url=service.url, max_concurrency=4),
        request="GET /score/{k}", keys={"k": "k"}, returns="temp_c DOUBLE", timeout=20.0,
    )  # fmt: skip
    return Enrichment(
        name="scored", input=Input(path="raw"), lookups=[score], output=Output(path="published")
    )


@pytest.mark.process
def test_a_further_pass_counts_the_calls_of_the_pass_before_once(declared, service, monkeypatch):
    folder = declared_folder(declared, declared.lookups[0])
    announce(folder, "another")
    write_keys = key_prefetch.write_keys

    def store(outcome, response):
        now = time.time_ns() // 1000
        answer = StoredAnswer(key_text((OF_ANOTHER,)), outcome, response, now, "another")
        folder.write_part("another", f"0-0-{now}", [answer])

    def beside_another_run(*args, **fields):
        monkeypatch.setattr(key_prefetch, "write_keys", write_keys)
        store("ok", b'{"temp_c": 2.5}')
        found = write_keys(*args, **fields)
        store("expired", None)
        return found

    monkeypatch.setattr(key_prefetch, "write_keys", beside_another_run)
    rules = RunOptions(max_calls=KEYS)
    record = run_day(declared, DAY, "r1", engine=LOCAL, rules=rules)
    assert len(service.log) == record.figures.calls == KEYS
    assert record.figures.lookups[0].outcomes["ok"] == 2 * KEYS
