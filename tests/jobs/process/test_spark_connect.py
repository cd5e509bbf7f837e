"""A day over Spark Connect: the program is a client of a server, and has no SparkContext."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.process.spark_submit import SparkSubmit
from tests.jobs.commands.test_days import in_this_session
from tests.support.connect_server import connect_server
from tidegate.__main__ import main

pytestmark = pytest.mark.spark
DAY = "2013-01-10"
ROOT = Path(__file__).parents[3]
ROWS, KEYS, IN_FLIGHT = 400, 100, 8
MADE_BY_A_RUN = (
    "answered_at",
    "attempts",
    "latency_ms",
    "paused_ms",
    "run_id",
    "asked_at",
    "source",
)
DECLARATION = """
from datetime import timedelta

from tidegate import Enrichment, EventTime, HttpLookup, Input, Ledger, Output, Service, Tumbling, Window

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency={in_flight}), request="GET /score/{{k}}",
    keys={{"k": "k % {keys}"}}, returns="temp_c DOUBLE", timeout=60.0,
)
scored = Enrichment(
    name="{name}", input=Input(path="raw", row_id=["k"]), lookups=[score], mode="ordered",
    output=Output(path="published/{name}/scored"), ledger=Ledger("ledger/{name}"),
    event_time=EventTime("at", max_out_of_orderness=timedelta(0)),
    windows=[Window("by_minute", of=Tumbling(timedelta(minutes=1)), sql="count(*) AS n, sum(temp_c) AS sum")],
)
"""


@pytest.fixture
def project(tmp_path, monkeypatch, service):
    """Declarations of one enrichment under two names."""
    monkeypatch.chdir(tmp_path)
    for name in ("declared", f"raw/date={DAY}"):
        Path(name).mkdir(parents=True)
    Path("declared/__init__.py").touch()
    for name in ("local", "remote"):
        text = DECLARATION.format(name=name, url=service.url, in_flight=IN_FLIGHT, keys=KEYS)
        Path(f"declared/{name}.py").write_text(text)
    for part in range(2):
        keys = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        times = pa.array(
            [1_357_776_000_000_000 + key * 3_000_000 for key in keys], pa.timestamp("us", "UTC")
        )
        pq.write_table(
            pa.table({"k": pa.array(keys, pa.int64()), "at": times}),
            f"raw/date={DAY}/part-{part}.parquet",
        )
    service.answer = scores
    return tmp_path


@pytest.fixture
def remote(project):
    """Starts `tidegate run` of the day as a client of a server."""
    with connect_server(project / "server.log", ROOT, project) as address:
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT}:{project}",
            "TIDEGATE_SPARK_MASTER": address,
        }
        command = [
            sys.executable,
            "-m",
            "tidegate",
            "run",
            "remote",
            "--day",
            DAY,
            "--package",
            "declared",
        ]
        yield lambda: subprocess.Popen(
            command, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip


async def scores(request):
    return web.json_response({"temp_c": float(len(request.path))})


def ended(process):
    output, _ = process.communicate(timeout=200)
    return process.returncode, output


@pytest.mark.proof
def test_a_day_over_spark_connect_gives_the_same_tables_as_a_local_session(
    project, remote, service, spark, monkeypatch
):
    code, output = ended(remote())
    assert code == 0, output
    assert f"published   {ROWS} rows, {KEYS} calls (" in output
    assert " answers shared), 0 answers from the ledger" in output
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.syspath_prepend(str(project))
    sys.modules.pop("declared", None)
    assert main(["run", "local", "--day", DAY, "--package", "declared"]) == 0
    assert len(service.log) == 2 * KEYS
    for table in ("scored", "by_minute"):
        assert rows_of(f"remote/{table}") == rows_of(f"local/{table}")
    code, output = ended(remote())
    assert f"published   {ROWS} rows, 0 calls, {ROWS} answers from the ledger" in output


IN_A_PROGRAM = """
import sys
from pyspark.sql import SparkSession
from declared.remote import scored
from tidegate import enrich

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
print(enrich(spark.read.parquet("raw"), scored).where("score_status = 'ok' and temp_c > 7").count())
"""


@pytest.mark.proof
def test_a_users_program_enriches_a_frame_of_spark_connect(project, service):
    with connect_server(project / "server.log", ROOT, project) as address:
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{project}"}
        program = [sys.executable, "-c", IN_A_PROGRAM, address]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(ROWS), done.stderr
    assert KEYS <= len(service.log) <= 2 * KEYS  # a task shares its calls


def rows_of(table):
    rows = DeltaTable(f"published/{table}").to_pyarrow_table().to_pylist()
    kept = [
        {name: value for name, value in row.items() if not name.endswith(MADE_BY_A_RUN)}
        for row in rows
    ]
    return sorted(kept, key=str)


@pytest.mark.proof
def test_a_killed_connect_client_stops_its_calls_and_a_new_run_repeats_few(
    remote, service, wait_for
):
    async def slowly(request):
        await asyncio.sleep(0.4)
        return await scores(request)

    service.answer = slowly
    with remote() as first:
        wait_for(lambda: len(service.log) > KEYS // 2, seconds=90)
        os.killpg(first.pid, signal.SIGKILL)
    code, output = ended(remote())
    assert code == 0, output
    asked = Counter(service.log)
    assert len(asked) == KEYS
    # in flight, and the answers of one interval of the ledger
    assert asked.total() - KEYS <= 3 * IN_FLIGHT


@pytest.mark.proof
def test_over_spark_connect_a_service_that_denies_access_is_named(remote, service):
    async def denied(_request):
        return web.Response(status=401)

    service.answer = denied
    code, output = ended(remote())
    assert code == 3
    assert "denies access" in output
