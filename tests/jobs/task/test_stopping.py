"""A run that is wanted no more, in a real Spark: its calls stop within a second, as the service
counts them.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from pyspark import InheritableThread

from tidegate import Enrichment, HttpLookup, Input, Output, Service

pytestmark = pytest.mark.spark

ROWS = 40_000
IN_FLIGHT = 20
LATENCY = 0.05  # s
A_SECOND_OF_CALLS = IN_FLIGHT / LATENCY
ROOT = Path(__file__).parents[3]


def declared(url, **fields):
    weather = HttpLookup(
        name="weather", service=Service(name="weather", url=url, max_concurrency=IN_FLIGHT),
        request="GET /{k}", keys={"k": "id"}, returns="temp_c DOUBLE", timeout=60.0, **fields,
    )  # fmt: skip
    return Enrichment(
        name="things",
        input=Input(path="in", row_id=["id"]),
        lookups=[weather],
        output=Output(path="out"),
        ledger=None,
    )


@pytest.fixture
def slow(service):
    """The service, with a latency; its log says how often it was asked."""

    async def after_a_while(request):
        await asyncio.sleep(LATENCY)
        return await service.weather(request)

    service.answer = after_a_while
    return service


def calls_from_now_on(service, until=3.0):
    """How many calls still come, until none has come for so many seconds."""
    begun = seen = len(service.log)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < until:
        time.sleep(0.1)
        if len(service.log) != seen:
            seen, quiet_since = len(service.log), time.monotonic()
        assert seen < ROWS
    return seen - begun


def processes_of(mark):
    """Driver, JVM and Python workers, known by their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TIDEGATE_TEST={mark}\0".encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
    return found


def jvm_of(mark):
    (found,) = (
        number
        for number in processes_of(mark)
        if b"SparkSubmit" in Path(f"/proc/{number}/cmdline").read_bytes()
    )
    return found


def test_a_cancelled_job_stops_calling_long_before_spark_kills_its_workers(
    spark, slow, wait_for, enrich
):
    raised = []

    def count():
        spark.sparkContext.setJobGroup("cancelled", "to be cancelled")
        try:
            enrich(spark.range(0, ROWS, 1, 2), declared(slow.url))
        except Exception as error:  # noqa: BLE001  # it is looked at below
            raised.append(error)

    job = InheritableThread(target=count)
    job.start()
    wait_for(lambda: len(slow.log) > 500, 60)
    spark.sparkContext.cancelJobGroup("cancelled")
    more = calls_from_now_on(slow)
    job.join(60)
    assert "cancelled" in str(raised[0]).lower()
    assert more < A_SECOND_OF_CALLS
    wait_for(lambda: slow.open_connections == 0)


@pytest.mark.proof
def test_an_error_in_one_task_stops_the_calls_of_the_other(spark, slow, enrich):
    async def refuses_one(request):
        await asyncio.sleep(LATENCY)
        return web.Response(status=400) if request.path == "/1500" else await slow.weather(request)

    slow.answer = refuses_one
    with pytest.raises(Exception, match="on_error is 'fail'"):
        enrich(spark.range(0, ROWS, 1, 2), declared(slow.url, on_error="fail"))
    assert calls_from_now_on(slow) < A_SECOND_OF_CALLS


DRIVER = """
import os, sys
sys.path.insert(0, {tests!r})
from jobs.run.engines.spark_session import session
from jobs.run.enrich import write_out
from jobs.run.plan.planner import plan_tasks
from test_stopping import ROWS, declared
spark = session("stopped")
write_out(*plan_tasks(spark.range(0, ROWS, 1, 2), declared({url!r})), "out")
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("number", "whom"),
    [
        (signal.SIGTERM, "driver"),
        (signal.SIGKILL, "driver"),
        (signal.SIGINT, "driver"),
        (signal.SIGKILL, "JVM"),
    ],
)
def test_an_ended_driver_or_executor_leaves_no_call_and_no_process(
    slow, wait_for, number, whom, tmp_path
):
    mark = f"{os.getpid()}-{number}-{whom}"
    program = tmp_path / "driver.py"
    program.write_text(DRIVER.format(tests=str(Path(__file__).parent), url=slow.url))
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(program)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TIDEGATE_TEST": mark}, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(lambda: len(slow.log) > 500, 120)
        # in local mode it is the executor too
        os.kill(driver.pid if whom == "driver" else jvm_of(mark), number)
        more = calls_from_now_on(slow)
        driver.wait(60)
        wait_for(lambda: not processes_of(mark), 60)
    finally:
        for left in processes_of(mark):
            os.kill(left, signal.SIGKILL)
        driver.wait(60)
    assert more < A_SECOND_OF_CALLS


SMALL_DAY = """
import sys
sys.path.insert(0, {tests!r})
from dataclasses import replace
from jobs.run.day import run_day
from test_stopping import declared
from tidegate import Ledger
day = replace(declared({url!r}), ledger=Ledger("ledger"))
run_day(day, "2026-11-01", sys.argv[1])
"""


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_small_day_that_is_ended_stops_calling_and_keeps_its_answers(
    slow, wait_for, number, tmp_path
):
    rows, kept = 2_000, 500
    (tmp_path / "in/date=2026-11-01").mkdir(parents=True)
    pq.write_table(pa.table({"id": range(rows)}), tmp_path / "in/date=2026-11-01/part-0.parquet")
    (tmp_path / "day.py").write_text(
        SMALL_DAY.format(tests=str(Path(__file__).parent), url=slow.url)
    )
    program = [sys.executable, "day.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(
        [*program, "first"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: len(slow.log) > kept, 120)
    first.send_signal(number)
    stopped = time.monotonic()
    wait_for(lambda: slow.open_connections == 0, 10)
    assert time.monotonic() - stopped < 0.5
    first.wait(60)
    assert calls_from_now_on(slow) == 0
    subprocess.run([*program, "second"], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert len(set(slow.log)) == rows
    # in flight, and answered within a write of the journal
    assert len(slow.log) - rows <= 2 * IN_FLIGHT
