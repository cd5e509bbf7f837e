"""The rows of a small day that need no call are written by the driver itself, as a task of Spark's would write them."""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.errors import RowFailed
from jobs.run import day as day_of_run
from jobs.run.day import run_day
from tidegate import Enrichment, EventTime, HttpLookup, Input, Output, Retry, Service, Tolerance, Ttl

pytestmark = pytest.mark.spark
DAY = "2026-11-01"
NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def project(tmp_path, monkeypatch, service):
    """A day of one file: 300 rows over 40 keys, of which one is missed and one refused; some rows have none."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    keys = [None if n % 50 == 7 else n % 40 for n in range(300)]
    times = [NOON + dt.timedelta(seconds=n * 37 % 300) for n in range(300)]
    pq.write_table(pa.table({"n": range(300), "k": pa.array(keys, pa.int64()), "at": times}), folder / "part-0.parquet")

    async def answer(request):
        key = int(request.path.rpartition("/")[2])
        return {3: web.Response(status=404), 4: web.Response(status=400)}.get(key) or web.json_response({"t": key / 2})

    service.answer = answer
    return lambda **fields: declare(service, **fields)


def declare(service, *, mode="ordered", **fields):
    lookup = HttpLookup(
        name="score", service=Service(name="s", url=service.url, max_concurrency=5), request="GET /score/{k}",
        keys={"k": "k"}, timeout=20.0, retry=Retry(retries=0), on_null_key="skip",
        returns="t DOUBLE", ttl=Ttl(error=dt.timedelta(days=1)), **fields,
    )  # fmt: skip
    return Enrichment(
        name="scored", input=Input(path="raw"), lookups=[lookup], output=Output(path="published"), mode=mode,
        key=["n"] if mode == "key_ordered" else (),
        event_time=EventTime("at", max_out_of_orderness=dt.timedelta(seconds=5)),
        tolerance=Tolerance(timeout=1.0, error=1.0),
    )  # fmt: skip


def jobs_of(spark):
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def written(record):
    return pa.concat_tables(pq.ParquetFile(file).read() for file in record.facts.files)


@pytest.mark.parametrize("mode", ["ordered", "unordered", "key_ordered"])
def test_rows_without_a_call_are_written_as_spark_writes_them_without_a_job_of_it(
    project, spark, service, monkeypatch, mode
):
    declared, heard = project(mode=mode), []
    run_day(declared, DAY, "first")
    assert sorted(service.log) == sorted(f"/score/{key}" for key in range(40))
    before = jobs_of(spark)
    here = run_day(declared, DAY, "here", report=heard.append)
    assert jobs_of(spark) == before
    assert [event["rows"] for event in heard if event["kind"] == "progress"][-1] == 300
    monkeypatch.setattr(day_of_run, "ROWS_OF_ONE_TASK", 0)
    by_spark = run_day(declared, DAY, "by_spark")
    assert jobs_of(spark) != before
    assert written(here).equals(written(by_spark))
    assert here.figures.lookups == by_spark.figures.lookups
    assert len(service.log) == 40


def test_a_first_night_whose_keys_are_asked_first_has_all_outcomes_and_passes_its_checks(project, service):
    record = run_day(project(), DAY, "first", checks="data_quality.day:check")
    assert len(service.log) == 40
    outcomes = record.figures.lookups[0].outcomes
    assert [outcomes[status] for status in ("ok", "miss", "error", "skipped")] == [278, 8, 8, 6]
    assert record.verdicts
    assert [verdict.check for verdict in record.verdicts if verdict.holds_back] == []


def test_a_policy_that_fails_the_run_names_the_row_and_leaves_no_file(project, tmp_path):
    declared = project()
    run_day(declared, DAY, "first")
    with pytest.raises(RowFailed, match=r"a row ended as miss .*on_miss is 'fail'"):
        run_day(project(on_miss="fail"), DAY, "second")
    assert list(tmp_path.glob("published/runs/second/*")) == []
