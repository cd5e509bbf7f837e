"""The distinct-key plan: keys that repeat are asked once for the whole job, counted at a real HTTP
service.
"""

import asyncio
import collections

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.declare.services import Retry
from jobs.errors import RunStopped
from jobs.run.day import run_day
from jobs.run.keys import preparation
from jobs.run.plan.options import RunOptions
from tidegate import Enrichment, HttpLookup, Input, Output, Price, Service, Tolerance

pytestmark = pytest.mark.spark
DAY = "2026-11-01"


@pytest.fixture
def folder(tmp_path, monkeypatch, spark):
    """A project of this test's own, whose input is read by two tasks."""
    monkeypatch.chdir(tmp_path)
    # else all of these small files fit into one task
    spark.conf.set("spark.sql.files.openCostInBytes", "1k")
    yield tmp_path
    spark.conf.unset("spark.sql.files.openCostInBytes")


def give_input(folder, keys, files=4, day=DAY):
    """A day whose row n has the key keys[n], in so many files."""
    raw = folder / "raw" / f"date={day}"
    raw.mkdir(parents=True)
    for number in range(files):
        own = keys[number::files]
        table = pa.table(
            {
                "n": pa.array(range(len(own))),
                "k": pa.array(own, pa.int64()),
                "pad": ["x" * 40] * len(own),
            }
        )
        pq.write_table(table, raw / f"part-{number}.parquet", compression="none")


def declare(service, *, more=(), **fields):
    asked = Service(name="s", url=service.url, max_concurrency=20, prices=[Price("0.0040 USD")])
    lookup = HttpLookup(
        name="score", service=asked, request="GET /score/{k}", keys={"k": "k"},
        returns="temp_c DOUBLE",
        **{"timeout": 20.0, "retry": Retry(retries=1, initial_delay=0.01)} | fields,
    )  # fmt: skip
    return Enrichment(
        name="scored", input=Input(path="raw"), lookups=[lookup, *more],
        output=Output(path="published"), tolerance=Tolerance(timeout=1.0, error=1.0),
    )  # fmt: skip


def written(record):
    return pa.concat_tables(pq.ParquetFile(file).read() for file in record.facts.files).to_pylist()


def faults(record):
    return [(verdict.check, verdict.sentence) for verdict in record.verdicts if verdict.holds_back]


@pytest.mark.proof
def test_each_key_is_called_once_and_one_row_has_the_call(folder, service):
    give_input(folder, [n * 7 % 1000 for n in range(20_000)])

    async def answer(request):
        key = int(request.path.rpartition("/")[2])
        if key % 100 == 7:
            return web.Response(status=404)
        if key % 100 == 8:
            return web.Response(status=400, text="no such thing")
        return web.json_response({"temp_c": key / 2})

    service.answer = answer
    record = run_day(declare(service), DAY, "r1", checks="data_quality.day:check")
    assert record.facts.asked_by == ("distinct keys: 1,000 of 20,000 rows",)
    assert len(service.log) == len(set(service.log)) == 1000
    assert service.highest_in_flight <= 20
    assert record.verdicts
    assert faults(record) == []

    by_key = collections.defaultdict(list)
    for row in written(record):
        by_key[row["k"]].append(row)
    assert len(by_key) == 1000
    for key, rows in by_key.items():
        status = {7: "miss", 8: "error"}.get(key % 100, "ok")
        assert {row["_score_status"] for row in rows} == {status}
        assert {row["temp_c"] for row in rows} == {key / 2 if status == "ok" else None}
        called = [row for row in rows if row["_score_attempts"]]
        assert len(called) == 1
        assert called[0]["_score_source"] == (None if status == "error" else "call")
        assert {row["_score_source"] for row in rows if row is not called[0]} == {"shared"}
        if status == "error":
            assert all(
                "no such thing" in row["_score_error"] or "400" in row["_score_error"]
                for row in rows
            )
    (figures,) = record.figures.lookups
    assert (figures.calls, figures.rows_called, figures.stored) == (1000, 1000, 990)
    assert (figures.billed.units, figures.billed.lost, figures.billed.cost) == (1000, 10, "4.0000")

    needs_retry = run_day(declare(service), DAY, "r2")
    assert len(service.log) == 1010  # errors are not kept: their keys are asked again, once each
    assert needs_retry.figures.lookups[0].from_ledger == 19_800
    assert list(folder.glob("data/ledger/score/*/runs/*")) == []
    assert not list(folder.glob("published/runs/*-keys"))


def test_all_rows_of_a_key_have_its_timeout_and_retries(folder, service):
    give_input(folder, [n % 40 for n in range(400)])
    failed = set()

    async def answer(request):
        key = int(request.path.rpartition("/")[2])
        if key == 3:
            await asyncio.sleep(30)
        if key == 4 and key not in failed:
            failed.add(key)
            return web.Response(status=500)
        return web.json_response({"temp_c": key})

    service.answer = answer
    record = run_day(declare(service, timeout=4.0), DAY, "r1", checks="data_quality.day:check")
    assert record.verdicts
    assert faults(record) == []
    rows = written(record)
    hung = [row for row in rows if row["k"] == 3]
    assert {row["_score_status"] for row in hung} == {"timeout"}
    assert all("no answer within 4.0 s" in row["_score_error"] for row in hung)
    assert sorted(len(row["_score_attempts"]) for row in hung) == [0] * 9 + [1]
    assert sorted(len(row["_score_attempts"]) for row in rows if row["k"] == 4) == [0] * 9 + [2]
    assert sum(len(row["_score_attempts"]) for row in rows) == len(service.log) == 41
    assert record.figures.lookups[0].outcomes["timeout"] == 10


def test_several_lookups_are_called_at_once_with_each_key_once(folder, service):
    give_input(folder, [n % 50 for n in range(500)])
    other = HttpLookup(
        name="other", service=Service(name="o", url=service.url, max_concurrency=4),
        request="GET /other/{half}", keys={"half": "nullif(k div 2, 3)"}, returns="wind DOUBLE",
        paths={"wind": "$.wind.speed"}, timeout=20.0, on_null_key="skip",
    )  # fmt: skip
    record = run_day(declare(service, more=[other]), DAY, "r1")
    assert record.facts.asked_by == (
        "distinct keys: 50 of 500 rows",
        "distinct keys: 24 of 480 rows",
    )
    assert len(service.log) == len(set(service.log)) == 74
    assert record.figures.lookups[1].outcomes["skipped"] == 20


def test_a_few_keys_of_single_rows_are_prefetched_with_repeated_keys(folder, service):
    give_input(folder, [n % 150 for n in range(200)])
    record = run_day(declare(service), DAY, "r1")
    assert record.facts.asked_by == ("distinct keys: 150 of 200 rows",)
    assert sorted(service.log) == sorted(f"/score/{key}" for key in range(150))


def test_many_keys_of_single_rows_are_called_by_row_after_the_repeated_keys(
    folder, service, monkeypatch
):
    monkeypatch.setattr(preparation, "FEW_KEYS", 149)
    give_input(folder, [n % 150 for n in range(200)])
    record = run_day(declare(service), DAY, "r1")
    assert record.facts.asked_by == ("distinct keys: 50 of 100 rows, the other keys by row",)
    assert record.figures.lookups[0].outcomes["ok"] == 200
    assert sorted(service.log) == sorted(f"/score/{key}" for key in range(150))
    (today,) = run_day(declare(service), DAY, "r2").facts.asked_by
    assert today == "row"


def test_a_cap_stops_a_prefetch_keeps_its_answers_and_the_next_run_calls_the_rest(folder, service):
    give_input(folder, [n % 60 for n in range(600)])
    with pytest.raises(RunStopped, match="max_calls 40 is used up"):
        run_day(declare(service), DAY, "r1", rules=RunOptions(max_calls=40))
    assert 20 <= len(service.log) <= 40  # the first task at its part of 20 stops both
    run_day(declare(service), DAY, "r2")
    assert len(service.log) == len(set(service.log)) == 60


@pytest.mark.proof
def test_a_million_rows_with_fifty_thousand_keys_make_fifty_thousand_calls(folder, service):
    give_input(folder, [n * 7919 % 50_000 for n in range(1_000_000)])
    record = run_day(declare(service), DAY, "r1", checks="data_quality.day:check")
    assert record.facts.asked_by == ("distinct keys: 50,000 of 1,000,000 rows",)
    assert len(service.log) == len(set(service.log)) == 50_000
    (figures,) = record.figures.lookups
    assert (figures.calls, figures.outcomes["ok"]) == (50_000, 1_000_000)
    assert record.verdicts
    assert faults(record) == []
