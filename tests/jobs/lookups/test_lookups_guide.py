"""The examples of docs/lookups.md, as they stand there, against a service that counts what arrives."""

import asyncio
import gzip
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.bridge.batches import BatchLayout
from jobs.bridge.partition import PartitionPlan, PartitionRun
from jobs.errors import DeclarationError
from jobs.lookups import Lookup

GUIDE = (Path(__file__).parents[3] / "docs" / "lookups.md").read_text()


def example(heading, **instead):
    """The lookup that the section declares; words of the example may be replaced, as an address is."""
    section = GUIDE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
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
        layout=BatchLayout(tuple(identity), (names,), (), None, 0, (declared.name,), (declared.columns,)),
        progress=None,
    )
    batches = [batch.slice(start, 100) for start in range(0, len(keys), 100)]
    return [row for written in PartitionRun(plan, 0, 0).run(iter(batches)) for row in written.to_pylist()]


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_equal_requests_are_one_call(service, mode):
    async def rating(request):
        await asyncio.sleep(0.01)
        number = int(request.path.split("/")[2])
        return web.json_response({"score": number, "grade": "A"}, status=404 if number == 7 else 200)

    service.answer = rating
    keys = [(str(row % 20),) for row in range(1000)]
    rows = enriched(example("Equal requests are one call", SERVICE_URL=service.url), *keys, mode=mode)
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


def test_a_token_is_fetched_once_and_shown_with_every_call(service, monkeypatch):
    monkeypatch.setenv("GEO_ID", "me")
    monkeypatch.setenv("GEO_SECRET", "s3cr3t-Zq9")

    async def place(request):
        if request.path == "/token":
            return web.json_response({"access_token": "abc", "token_type": "bearer", "expires_in": 3600})
        known = request.headers.get("Authorization") == "Bearer abc"
        return web.json_response({"lat": 40.6, "lon": -73.8}, status=200 if known else 401)

    service.answer = place
    declared = example("A service that wants to know who asks", SERVICE_URL=service.url)
    rows = enriched(declared, *[(f"street {number}",) for number in range(20)])
    assert [(row["location_status"], row["lat"]) for row in rows] == [("ok", 40.6)] * 20
    assert Counter(service.log)["/token"] == 1
    assert len(service.log) == 21


def test_answers_of_200_may_be_misses_or_not_now(service):
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
                body=gzip.compress(b" " * 1_000_000), headers={"Content-Encoding": "gzip"}, content_type="text/json"
            )
        return web.json_response({"lat": 40.6, "lon": -73.8, "quota": {"left": 9}})

    service.answer = place
    declared = example("Services that say everything with 200", SERVICE_URL=service.url)
    rows = enriched(declared, ("busy",), ("nowhere",), ("huge",), ("here",))
    assert [row["location_status"] for row in rows] == ["ok", "miss", "error", "ok"]
    assert rows[2]["_location_error"] == "the answer is larger than 65,536 bytes (max_answer_bytes)"
    assert [attempt["throttled"] for attempt in rows[0]["_location_attempts"]] == [True, False]
    assert rows[0]["_location_paused_ms"] > 0
    assert asked == {"busy": 2, "nowhere": 1, "huge": 1, "here": 1}


@pytest.mark.parametrize("finishes", [True, False])
def test_a_request_whose_row_timed_out_may_finish_and_serve_the_rows_after_it(service, finishes):
    async def place(request):
        if request.path.endswith("slow") and len(service.log) == 1:
            await asyncio.sleep(0.8)
        return web.json_response({"lat": 40.6, "lon": -73.8})

    service.answer = place
    instead = {} if finishes else {"finish_after_timeout=True": "finish_after_timeout=False"}
    declared = example("A request that is billed anyway", SERVICE_URL=service.url, **instead)
    rows = enriched(declared, ("slow",), ("quick",), ("slow",))
    assert [row["location_status"] for row in rows] == ["timeout", "ok", "ok"]
    assert rows[2]["_location_source"] == ("shared" if finishes else "call")
    assert Counter(service.log) == {"/places/slow": 1 if finishes else 2, "/places/quick": 1}
    assert service.highest_in_flight == 1


@pytest.mark.parametrize(
    "without", [{"attempt_timeout=5.0": "attempt_timeout=None"}, {"timeout=0.3": "cache=None, timeout=0.3"}]
)
def test_what_goes_on_needs_a_bound_and_a_place(without):
    with pytest.raises(DeclarationError, match=r"finish_after_timeout needs attempt_timeout, .* and a cache"):
        example("A request that is billed anyway", SERVICE_URL="http://127.0.0.1:1", **without)
