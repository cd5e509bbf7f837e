"""The keys and rows of a small day go through the driver itself, calls included, as through a task
of Spark's.
"""

import asyncio
import dataclasses
import datetime as dt
import sys
import threading
import traceback
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from asyncio_core import AsyncFunction
from jobs.errors import AccessRefused, BudgetExhausted, LedgerError, RowFailed
from jobs.run import day, day_run
from jobs.run.day import run_day
from jobs.run.engines import driver_task
from jobs.run.engines import engine as engines
from jobs.run.engines.engine import SparkEngine
from jobs.run.engines.spark_coordinator import open_coordinator
from jobs.run.enrich_day import FAILED, main
from jobs.run.plan.options import RunOptions
from jobs.run.plan.preflight import preflight
from jobs.schema import columns as schema
from jobs.task.row_flow import RowOutput
from tidegate import (
    AsyncFunctionLookup,
    Enrichment,
    EventTime,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Rate,
    Retry,
    Service,
    Tolerance,
    Ttl,
    lookup,
)

pytestmark = pytest.mark.spark
DAY = "2026-11-01"
NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
MISSED, REFUSED, BROKEN, SLOW = 3, 4, 5, 6  # keys


@pytest.fixture
def project(tmp_path, monkeypatch, service):
    """A day of one file: 300 rows over 40 keys, of which one is missed, one refused, one fails each
    time, and those of `service.hung` are never answered; some rows have none.
    """
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    keys = [None if n % 50 == 7 else n % 40 for n in range(300)]
    times = [NOON + dt.timedelta(seconds=n * 37 % 300) for n in range(300)]
    pq.write_table(
        pa.table({"n": range(300), "k": pa.array(keys, pa.int64()), "at": times}),
        folder / "part-0.parquet",
    )

    async def answer(request):
        key = int(request.path.rpartition("/")[2])
        if key in service.hung:
            await asyncio.sleep(30)
        status = {MISSED: 404, REFUSED: 400, BROKEN: 500}.get(key, 200)
        return web.json_response({"t": key / 2}) if status == 200 else web.Response(status=status)

    service.answer, service.hung = answer, {SLOW}
    return lambda **fields: declare(service, **fields)


def declare(service, *, mode="ordered", ledger="data/ledger", rate=(), **fields):
    score = HttpLookup(
        name="score", service=Service(name="s", url=service.url, max_concurrency=5, rate=rate),
        keys={"k": "k"}, request="GET /score/{k}", timeout=2.0, on_null_key="skip",
        returns="t DOUBLE",
        **{"retry": Retry(retries=1, initial_delay=0.01), "ttl": Ttl(error=dt.timedelta(days=1))} | fields,
    )  # fmt: skip
    return Enrichment(
        name="scored", input=Input(path="raw"), lookups=[score], output=Output(path="published"),
        mode=mode, key=["n"] if mode == "key_ordered" else (), ledger=Ledger(ledger),
        event_time=EventTime("at", max_out_of_orderness=dt.timedelta(seconds=5)),
        tolerance=Tolerance(timeout=1.0, error=1.0),
    )  # fmt: skip


def jobs_of(spark):
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def written(record):
    return pa.concat_tables(pq.ParquetFile(file).read() for file in record.facts.files)


def by_spark(monkeypatch):
    monkeypatch.setattr(driver_task, "ROWS", 0)


OF_TIME = (schema.published_answered_at, schema.latency_ms, schema.paused_ms)
OF_CALLS = (schema.source, schema.attempts)


def outcomes(record):
    """The written rows without what time decides, and without what only one row of a key has that
    is asked first.
    """
    rows = written(record).drop_columns([column("score") for column in (*OF_TIME, *OF_CALLS)])
    return (
        rows
        if record.facts.declared.mode == "ordered"
        else rows.drop_columns([schema.OUTPUT_SEQ]).sort_by("n")
    )


def calls(record):
    """How often each key has which source and so many attempts."""
    rows = written(record)
    sources, attempts = (rows[column("score")].to_pylist() for column in OF_CALLS)
    tries = [len(attempt or ()) for attempt in attempts]
    return Counter(zip(rows["k"].to_pylist(), sources, tries, strict=True))


@pytest.mark.parametrize(
    "mode",
    [
        "unordered",
        *(pytest.param(mode, marks=pytest.mark.proof) for mode in ("ordered", "key_ordered")),
    ],
)
def test_rows_without_a_call_are_written_by_the_driver_as_spark_writes_them(
    project, spark, service, monkeypatch, mode
):
    declared, heard = project(mode=mode), []
    service.hung.clear()
    run_day(declared, DAY, "first")
    asked = len(service.log)
    before = jobs_of(spark)
    here = run_day(declared, DAY, "here", report=heard.append)
    assert jobs_of(spark) == before
    assert [event["rows"] for event in heard if event["kind"] == "progress"][-1] == 300
    by_spark(monkeypatch)
    there = run_day(declared, DAY, "by_spark")
    assert jobs_of(spark) != before
    assert written(here).equals(written(there))
    assert here.figures.lookups == there.figures.lookups
    assert len(service.log) == asked


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "ordered"},
        pytest.param({"mode": "unordered", "cache": None}, marks=pytest.mark.proof),
        pytest.param({"mode": "key_ordered", "cache": None}, marks=pytest.mark.proof),
        {"mode": "ordered", "idempotent": False, "retry": Retry(retries=0)},
    ],
    ids=["keys first", "by row", "by row in the order of keys", "marked first"],
)
def test_a_day_in_the_driver_has_the_outcomes_of_a_day_in_spark(
    project, spark, service, monkeypatch, fields
):
    before = jobs_of(spark)
    here = run_day(project(**fields, ledger="here"), DAY, "here")
    assert jobs_of(spark) == before
    asked = Counter(service.log)
    service.log.clear()
    by_spark(monkeypatch)
    there = run_day(project(**fields, ledger="there"), DAY, "there")
    assert jobs_of(spark) != before
    assert asked == Counter(service.log)
    assert outcomes(here).equals(outcomes(there))
    assert calls(here) == calls(there)
    figures = [record.figures.lookups[0] for record in (here, there)]
    assert [
        figures[0].outcomes[status] > 0 for status in ("ok", "miss", "error", "timeout", "skipped")
    ] == [True] * 5
    assert figures[0].requests.sent == figures[1].requests.sent == asked.total()
    assert (figures[0].retried, figures[0].stored) == (figures[1].retried, figures[1].stored)
    assert here.facts.asked_by == there.facts.asked_by


def test_a_first_night_with_a_prefetch_has_all_outcomes_and_passes_its_checks(project, service):
    record = run_day(project(), DAY, "first", checks="data_quality.day:check")
    assert {path.rpartition("/")[2] for path in service.log} == {str(key) for key in range(40)}
    found = record.figures.lookups[0].outcomes
    assert [found[status] for status in ("ok", "miss", "error", "timeout", "skipped")] == [
        262,
        8,
        16,
        8,
        6,
    ]
    assert record.verdicts
    assert [verdict.check for verdict in record.verdicts if verdict.holds_back] == []


@pytest.mark.parametrize("known", [True, False])
def test_a_policy_that_fails_the_run_names_the_row_and_leaves_no_file(
    project, service, tmp_path, known
):
    service.hung.clear()
    if known:
        run_day(project(), DAY, "first")
        service.log.clear()
    with pytest.raises(
        RowFailed,
        match=(
            r"a row ended as miss; on_miss is 'fail'.*row \d+ of "
            r".*part-0.parquet"
        ),
    ):
        run_day(project(on_miss="fail"), DAY, "second")
    assert service.log.count(f"/score/{MISSED}") <= (0 if known else 1)
    left = (tmp_path / "published/runs/second").rglob("*")
    assert [path for path in left if path.is_file()] == []


def test_a_cap_ends_the_calls_and_the_next_run_calls_the_rest(project, service, spark):
    before = jobs_of(spark)
    service.hung.clear()
    with pytest.raises(BudgetExhausted, match="max_calls 20 is used up"):
        run_day(project(), DAY, "first", rules=RunOptions(max_calls=20))
    assert len(service.log) == 20
    run_day(project(), DAY, "second", rules=RunOptions(max_calls=60))
    asked = Counter(service.log)
    assert set(asked) == {f"/score/{key}" for key in range(40)}
    assert [key for key, many in asked.items() if many > 1 and key != f"/score/{BROKEN}"] == []
    assert jobs_of(spark) == before


def test_a_run_that_may_make_no_call_stops_where_a_key_is_unknown(project, service):
    service.hung.clear()
    with pytest.raises(BudgetExhausted, match="max_calls 0"):
        run_day(project(), DAY, "first", rules=RunOptions(max_calls=0))
    assert service.log == []


def test_a_rate_is_leased_to_the_driver_as_to_a_task(project, service, spark):
    before = jobs_of(spark)
    service.hung.clear()
    record = run_day(project(rate=[Rate(1000, per="second")]), DAY, "rated")
    assert jobs_of(spark) == before
    assert record.figures.lookups[0].outcomes["ok"] == 270


async def by_coroutine(row, http):
    return {"t": row.k / 2}


class ByFunction(AsyncFunction):
    async def async_invoke(self, value):
        return [{"t": value["k"] / 2}]


@pytest.mark.proof
def test_a_users_code_runs_in_a_worker_of_spark(project, spark, service):
    by_kind = [
        lookup(name="score", service=Service(name="s", url=service.url, max_concurrency=5), keys={"k": "k"},
               returns="t DOUBLE", timeout=20.0)(by_coroutine),
        AsyncFunctionLookup(name="score", function=ByFunction, keys={"k": "k"}, returns="t DOUBLE", timeout=20.0,
                            max_concurrency=5),
    ]  # fmt: skip
    for number, declared in enumerate(by_kind):
        before = jobs_of(spark)
        run_day(dataclasses.replace(project(), lookups=[declared]), DAY, f"run-{number}")
        assert jobs_of(spark) != before


def test_a_driver_of_many_days_keeps_no_thread_and_no_connection_of_a_finished_day(
    project, service
):
    service.hung.clear()
    run_day(project(ledger="first"), DAY, "first")
    threads = {thread.name for thread in threading.enumerate()}
    for number in range(3):
        run_day(project(ledger=f"ledger-{number}"), DAY, f"run-{number}")
    assert {thread.name for thread in threading.enumerate()} <= threads
    assert [
        name
        for name in threads
        if name in ("tidegate-loop", "tidegate-reader", "tidegate-driver-link")
    ] == []
    assert service.open_connections == 0


def of_attempts(monkeypatch, many):
    monkeypatch.setattr(engines, "allowed_task_attempts", lambda _master: many)


def test_a_failed_task_is_tried_as_often_as_the_master_says(spark, monkeypatch, caplog):
    of_attempts(monkeypatch, 3)
    address = open_coordinator(spark).register()
    attempts = []

    def fails(rows, task):
        attempts.append((task.attemptNumber(), task.partitionId(), rows))
        if len(attempts) < succeeds:
            raise LedgerError("the disk is full")
        return "part-0"

    succeeds = 3
    stage = SparkEngine(spark).stage(address, here=True)
    assert stage.run(fails, ["k"]) == ["part-0"]
    assert attempts == [(0, 0, "k"), (1, 0, "k"), (2, 0, "k")]
    assert [(record.getMessage(), str(record.exc_info[1])) for record in caplog.records] == [
        ("the task is tried again", "the disk is full")
    ] * 2
    attempts.clear()
    succeeds = 4
    with pytest.raises(LedgerError, match="the disk is full"):
        stage.run(fails, ["k"])
    assert len(attempts) == 3


def test_a_task_that_would_fail_again_is_not_tried_again(project, service, monkeypatch, caplog):
    async def refuse(_request):
        return web.Response(status=401)

    of_attempts(monkeypatch, 4)
    declared, service.answer = project(), refuse
    with pytest.raises(AccessRefused):
        run_day(declared, DAY, "refused")
    assert len(service.log) <= declared.lookups[0].service.max_concurrency
    assert "tried again" not in caplog.text


def test_the_log_has_the_traceback_of_an_unexpected_error_in_the_task(
    project, spark, monkeypatch, caplog, capsys
):
    def wrong(*_):
        raise ValueError("a bug of ours")

    of_attempts(monkeypatch, 4)
    monkeypatch.setattr(RowOutput, "collect", wrong)
    monkeypatch.setitem(sys.modules, "scoring", SimpleNamespace(scored=project()))
    assert main(["--enrichment", "scoring:scored", "--day", DAY]) == FAILED
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == "unexpected error"
    assert "in wrong\n" in "".join(traceback.format_exception(record.exc_info[1]))
    assert "ValueError: a bug of ours" in capsys.readouterr().err.splitlines()[-1]


def test_a_micro_batch_of_a_stream_goes_through_workers_of_spark(project, spark, monkeypatch):
    monkeypatch.setattr(day_run, "ROWS_OF_ONE_TASK", 0)  # it has tasks as a day has
    declared, before = project(), jobs_of(spark)
    day.run_batch(declared, preflight(declared, DAY), DAY, "batch", spark=spark)
    assert len(jobs_of(spark) - before) == len(["its keys", "its rows"])
