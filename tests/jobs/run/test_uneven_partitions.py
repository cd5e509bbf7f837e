"""Partitions of very different sizes, in a real local Spark: what may be in flight is used to the
end, never more.
"""

import asyncio
import contextlib

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.run.enrich import write_out
from jobs.run.plan.planner import plan_tasks
from tests.jobs.run.test_enrich import enrichment, lookup
from tests.support.variants import first_of
from tidegate import Batch, Service

pytestmark = pytest.mark.spark

ALLOWED = 6
ROWS = 60  # of the large partition


def patient(service):
    """Answers to one key, and to many; those for the large partition wait until all that is allowed
    was in flight.
    """

    async def waited(key):
        loop = asyncio.get_running_loop()
        late = loop.time() + 10.0
        while int(key) < ROWS and service.highest_in_flight < ALLOWED and loop.time() < late:  # noqa: ASYNC110 - a count
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)

    async def answer(request):
        if request.method == "GET":
            await waited(request.path[1:])
            return web.json_response({"temp_c": 1.5})
        keys = await request.json()
        await waited(keys[0])
        return web.json_response([{"temp_c": 1.5} for _ in keys])

    return answer


@pytest.mark.parametrize("rows_in_second", first_of([0, 10]))
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"cache": None},
        {"request": "POST /many", "batch": Batch(max_items=5, max_wait=0.01, item="{k}")},
    ],
    ids=["shared", "not shared", "many keys in one request"],
)
def test_a_large_partition_gets_the_calls_that_a_small_partition_leaves(
    spark, service, tmp_path, asked, rows_in_second
):
    service.answer = patient(service)
    frame = spark.range(0, 2 * ROWS, 1, 2).where(f"id < {ROWS + rows_in_second}")
    declared = enrichment(
        lookup(service=Service(name="w", url=service.url, max_concurrency=ALLOWED), **asked)
    )
    written = write_out(*plan_tasks(frame, declared), str(tmp_path / "out"))
    found = [row for file in written.files for row in pq.read_table(file).to_pylist()]
    assert sorted(row["id"] for row in found) == list(range(ROWS + rows_in_second))
    assert all(row["weather_status"] == "ok" for row in found)
    assert service.highest_in_flight == ALLOWED  # of which each task has half at first
    had = [given.shares for given in written.shares_given if given.task == 0]
    assert (max(had), had[-1]) == ((ALLOWED,), (0,))


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_a_slow_last_row_keeps_a_single_call_and_the_large_partition_gets_the_rest(
    spark, service, tmp_path, mode
):
    many_in_flight = asyncio.Event()
    large = 0

    async def answer(request):
        nonlocal large
        key = int(request.path[1:])
        if key < ROWS:
            large += 1
            if large == ALLOWED - 1:
                many_in_flight.set()
        if key <= ROWS:  # of the small partition the first row
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(many_in_flight.wait(), 10.0)
        large -= key < ROWS
        return web.json_response({"temp_c": 1.5})

    service.answer = answer
    frame = spark.range(0, 2 * ROWS, 1, 2).where(f"id < {ROWS + 10}")
    declared = enrichment(
        lookup(service=Service(name="w", url=service.url, max_concurrency=ALLOWED)), mode=mode
    )
    written = write_out(*plan_tasks(frame, declared), str(tmp_path / "out"))
    assert many_in_flight.is_set()
    assert service.highest_in_flight == ALLOWED
    small = [given.shares for given in written.shares_given if given.task == 1]
    assert small[-2:] == [(1,), (0,)]
    together = {0: 0, 1: 0}
    for given in written.shares_given:
        together[given.task] = given.shares[0]
        assert sum(together.values()) <= ALLOWED
