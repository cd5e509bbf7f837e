"""What a person reads when Spark fails: one sentence with the file where one is known, the cause,
the cure, the log.
"""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from pyspark.java_gateway import launch_gateway

from jobs.errors import DeclarationError
from jobs.input.day import find_input
from jobs.process.program_end import ended
from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.spark_failures import explain_error
from tests.jobs.run.test_tasks_tried_again import workers_of
from tidegate import Enrichment, HttpLookup, Input, Output, Service

DAY = "2026-11-01"
DECLARATION = """
from tidegate import Enrichment, HttpLookup, Input, Output, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency=4), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="twice BIGINT", timeout=60.0,
)
scored = Enrichment(
    name="scored", input=Input(path="raw", row_id=["k"]), lookups=[score], output=Output(path="out"), ledger=None
)
"""
LOG = Path("data/runs/scored/r.log")
ROWS = 20_000  # too many for the driver, so that workers run them


@pytest.fixture
def raw(tmp_path, monkeypatch, service):
    """A file of the day, in a project of its own."""

    async def answer(request):
        return web.json_response({"twice": 1})

    service.answer = answer
    monkeypatch.chdir(tmp_path)
    Path("scoring.py").write_text(DECLARATION.format(url=service.url))
    path = Path(f"raw/date={DAY}/part-0.parquet")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"k": pa.array(range(ROWS), pa.int64())}), path, use_dictionary=False)
    return path


def run(mark, master="local[1]"):
    environment = {
        "TIDEGATE_TEST": mark,
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path]),
    }
    submit = SparkSubmit(master=master, environment=environment)
    code = submit.run("scoring:scored", days=[DAY], run_id="r", log=LOG)
    return ended(code, LOG)


def test_a_file_name_with_a_colon_is_refused_before_spark_starts(raw):
    raw.rename(raw.with_name("part:0.parquet"))
    geo = Service(name="geo", url="http://127.0.0.1:1", max_concurrency=2)
    one = HttpLookup(
        name="one", service=geo, request="GET /{k}", keys={"k": "k"}, returns="x INT", timeout=1.0
    )
    scored = Enrichment(
        name="scored", input=Input(path="raw"), lookups=[one], output=Output(path="out")
    )
    with pytest.raises(
        DeclarationError,
        match=(
            r"part:0\.parquet has a ':' in its name.*Rename the "
            r"file\."
        ),
    ):
        find_input(scored, DAY)


def damage(file):
    damaged = bytearray(file.read_bytes())
    damaged[200:2000] = bytes(1800)
    file.write_bytes(damaged)


@pytest.mark.spark
def test_a_damaged_page_is_reported_with_its_file_the_cause_and_the_cure(raw, spark):
    damage(raw)
    with pytest.raises(Exception, match="FAILED_TO_UNCOMPRESS") as failed:
        spark.read.parquet(str(raw.absolute())).agg({"k": "sum"}).collect()
    assert explain_error(failed.value) == (
        f"input: {raw.absolute()} cannot be read: java.io.IOException: FAILED_TO_UNCOMPRESS(5). "
        "Write the file again."
    )


@pytest.mark.proof
@pytest.mark.spark
def test_a_day_with_a_damaged_page_is_reported_with_its_file_the_cause_and_the_cure(raw):
    damage(raw)
    how = run(f"damaged-{os.getpid()}", "local[1,1]")
    assert how.code == 1
    assert how.reason == (
        f"input: {raw.absolute()} cannot be read: Corrupt snappy compressed data. Write the file "
        "again."
    )


@pytest.mark.proof
@pytest.mark.spark
def test_a_worker_killed_in_every_attempt_is_reported_with_the_cure_and_the_log(
    raw, service, wait_for
):
    async def never(request):
        await asyncio.sleep(600)

    service.answer = never
    mark = f"killed-again-{os.getpid()}"
    found = []
    running = threading.Thread(target=lambda: found.append(run(mark, "local[1,1]")))
    running.start()
    wait_for(lambda: service.log or found, 120)
    for worker in workers_of(mark):
        os.kill(worker.pid, signal.SIGKILL)
    running.join(300)
    (how,) = found
    assert how.code == 1
    assert how.reason == (
        "a Python worker of Spark was killed in each attempt of its task, perhaps because "
        "memory ran out. Run fewer tasks at once, or give them more memory; answers so far are "
        f"in the ledger. The run's log: {LOG}"
    )


def test_an_unknown_error_of_spark_is_reported_with_its_innermost_cause():
    assert explain_error(ValueError("\nno\nsuch thing")) == "ValueError: no"


OF_A_WORKER = (
    "org.apache.spark.SparkException: \nError from python worker:\n  {}\nPYTHONPATH was:\n  x"
)


def test_an_application_that_its_master_ended_is_reported_as_such():
    error = RuntimeError(
        "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
        "This stopped SparkContext was created at:\n"
    )
    assert explain_error(error).startswith(
        "Spark ended the application, perhaps because its master did not answer"
    )


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (
            "/bin/python3: No module named x",
            "org.apache.spark.SparkException: Error from python worker: /bin/python3: No module named x",
        ),
        (
            'Traceback (most recent call last):\n    File "x", line 1\n  ImportError: no zlib',
            "ImportError: no zlib",
        ),
    ],
)
def test_a_python_that_does_not_start_on_an_executor_is_reported_with_its_reason(written, reason):
    class Java:
        def getCause(self):  # noqa: N802  # Java's name
            return None

        def toString(self):  # noqa: N802
            return OF_A_WORKER.format(written)

    error = ValueError(OF_A_WORKER.format(written))
    error.java_exception = Java()
    assert explain_error(error) == reason


@pytest.mark.process
def test_a_java_that_was_killed_is_reported_as_such():
    gateway = launch_gateway()
    gateway.proc.kill()
    gateway.proc.wait()
    gateway.proc.stdin.close()
    for _ in range(2):  # over the connection that Java left, and over a new one
        with pytest.raises(Exception, match=r".+") as failed:
            gateway.jvm.java.lang.System.currentTimeMillis()
        assert explain_error(failed.value).startswith("Spark's Java ended or was killed, perhaps")
    gateway.shutdown()
