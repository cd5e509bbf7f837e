"""Partitions of very different sizes, in a real local Spark: what may be in flight is used to the end, never more."""

import asyncio

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.enrich import prepare, write_out
from tests.jobs.test_enrich import enrichment, lookup
from tidegate import Batch, Service

ALLOWED = 6


async def one(request):
    await asyncio.sleep(0.02)
    return web.json_response({"temp_c": 1.5})


async def many(request):
    await asyncio.sleep(0.02)
    return web.json_response([{"temp_c": 1.5} for _ in await request.json()])


@pytest.mark.spark
@pytest.mark.parametrize("rows_in_second", [0, 10])
@pytest.mark.parametrize(
    "asked",
    [{}, {"cache": None}, {"request": "POST /many", "batch": Batch(max_items=5, max_wait=0.01, item="{k}")}],
    ids=["shared", "not shared", "many keys in one request"],
)
def test_what_a_small_partition_leaves_the_large_one_has(spark, service, tmp_path, asked, rows_in_second):
    service.answer = many if "batch" in asked else one
    rows = 60
    frame = spark.range(0, 2 * rows, 1, 2).where(f"id < {rows + rows_in_second}")
    declared = enrichment(lookup(service=Service(name="w", url=service.url, max_concurrency=ALLOWED), **asked))
    written = write_out(*prepare(frame, declared), str(tmp_path / "out"))
    found = [row for file in written.files for row in pq.read_table(file).to_pylist()]
    assert sorted(row["id"] for row in found) == list(range(rows + rows_in_second))
    assert all(row["weather_status"] == "ok" for row in found)
    assert service.highest_in_flight == ALLOWED  # of which each task has half at first
    assert [given.shares for given in written.given if given.task == 0][-2:] == [(ALLOWED,), (0,)]
