"""A day whose table, leases, records and ledger are on an object store: run, killed, run again, by
the command.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import SparkEngine
from jobs.storage import objects
from jobs.tables.records import run_records
from tests.jobs.commands.test_days import in_this_session
from tidegate.__main__ import main

pytestmark = pytest.mark.spark
DAY = "2013-01-10"
ROOT = Path(__file__).parents[3]
FILES, ROWS, IN_FLIGHT = 10, 200, 8
REQUESTS = Counter(
    {
        # taken, confirmed, released; listed for the report
        ("GET", "/_leases"): 3, ("PUT", "/_leases"): 3,
        ("GET", "/_publishing.lock"): 1, ("PUT", "/_publishing.lock"): 2,
        ("GET", "/_records"): 1, ("PUT", "/_records"): 1,
        ("PUT", "/runs"): 2,  # the files of two tasks
        ("GET", "/_delta_log"): 13, ("PUT", "/_delta_log"): 1,
        ("GET", "__audit/_delta_log"): 11, ("PUT", "__audit/_delta_log"): 1,
        ("PUT", "__audit/date"): 1, ("GET", "__dead_letters/_delta_log"): 2,
        ("PUT", "ledger/request.json"): 1,
        ("PUT", "ledger/run.json"): 1, ("PUT", "ledger/deciding"): 1,
        ("PUT", "ledger/by_row.arrow"): 1, ("GET", "ledger/"): 2, ("GET", "ledger/runs"): 1,
        ("GET", "ledger/compacted"): 1, ("GET", "ledger/parts"): 7, ("PUT", "ledger/parts"): 2,
        ("POST", "many"): 2,  # the ledger's files of the run, deleted
    }
)  # fmt: skip
# written again every few seconds; and a slow run writes more parts of the ledger, which are read
MORE = {
    ("PUT", "/_leases"),
    ("PUT", "ledger/run.json"),
    ("PUT", "ledger/parts"),
    ("GET", "ledger/parts"),
}
# each fifth sums up the logs of table and audit
THIRTEEN = [f"2013-01-{number}" for number in range(10, 23)]
DECLARATION = """
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency={in_flight}), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="temp_c DOUBLE", timeout=60.0,
)
scored = Enrichment(
    name="scored", input=Input(path="raw", row_id=["k"]), lookups=[score], output=Output(path="{table}"),
    ledger=Ledger("{ledger}"),
)
"""


@pytest.fixture
def scored(tmp_path, monkeypatch, service, s3):
    """A project whose table and ledger are in a bucket: starts `tidegate run` of its day."""
    monkeypatch.chdir(tmp_path)
    Path("declared").mkdir()
    Path("declared/__init__.py").touch()
    text = DECLARATION.format(
        url=service.url,
        in_flight=IN_FLIGHT,
        table=f"{s3.bucket}/scored",
        ledger=f"{s3.bucket}/ledger",
    )
    Path("declared/scored.py").write_text(text)
    write_input(DAY)

    def start(*arguments):
        command = [
            sys.executable,
            "-m",
            "tidegate",
            "run",
            "scored",
            "--day",
            DAY,
            "--package",
            "declared",
            *arguments,
        ]
        return subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}, text=True,
            start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    return start


@pytest.fixture
def in_session(scored, s3, spark, monkeypatch, tmp_path):
    """Runs `tidegate run` of the day in the tests' Spark."""
    for name, value in s3.environment().items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("declared", None)
    sys.modules.pop("declared.scored", None)
    return lambda day=DAY: main(["run", "scored", "--day", day, "--package", "declared"])


def write_input(day):
    Path(f"raw/date={day}").mkdir(parents=True)
    for part in range(FILES):
        keys = range(part * ROWS // FILES, (part + 1) * ROWS // FILES)
        pq.write_table(
            pa.table({"k": pa.array(keys, pa.int64())}), f"raw/date={day}/part-{part}.parquet"
        )


@pytest.mark.proof
def test_a_day_is_published_to_a_bucket_and_leaves_no_temporary_object(in_session, s3):
    before = len(s3.requests())
    assert in_session() == 0
    kinds = Counter((method, place_in(path)) for method, path in s3.requests()[before:])
    assert (kinds - REQUESTS).keys() <= MORE, kinds - REQUESTS
    assert REQUESTS.total() <= 61
    assert rows_of(s3) == list(range(ROWS))
    assert [path for path in Path("data/work").rglob("*") if path.is_file()] == []
    names = {listed.name for listed in objects.listed(f"{s3.bucket}/scored")}
    assert len({name for name in names if name.startswith("runs/")}) == 2  # tasks
    (record,) = run_records.load("scored", DAY)
    assert record.state == "published"
    assert [name for name in names if name.startswith("_records/")] == [
        f"_records/{DAY}/{record.facts.run_id}.json"
    ]
    assert set(record.facts.files) == {
        f"{s3.bucket}/scored/{name}" for name in names if name.startswith("runs/")
    }


@pytest.mark.proof
def test_each_of_thirteen_days_sends_at_most_200_requests_to_the_store(in_session, s3):
    asked = []
    for day in THIRTEEN:
        if day != DAY:
            write_input(day)
        before = len(s3.requests())
        assert in_session(day) == 0
        kinds = Counter((method, place_in(path)) for method, path in s3.requests()[before:])
        written = sum(min(count, REQUESTS[kind]) for kind, count in kinds.items() if kind in MORE)
        asked.append(written + sum(count for kind, count in kinds.items() if kind not in MORE))
    print(asked)
    assert max(asked) <= 200
    assert rows_of(s3) == sorted([*range(ROWS)] * len(THIRTEEN))
    logs = [f"{name}/_delta_log/{9:020}.checkpoint.parquet" for name in ("scored", "scored__audit")]
    assert {*logs} < {listed.name for listed in objects.listed(s3.bucket)}


@pytest.mark.proof
def test_a_day_of_3000_calls_on_executors_sends_at_most_200_requests_to_the_store(
    in_session, s3, monkeypatch
):
    """Its input is on the store too: two tasks, 3,000 keys, then the same day again."""
    monkeypatch.setattr(SparkEngine, "is_elsewhere", True)
    monkeypatch.setattr("jobs.run.day.is_elsewhere", lambda _option: True)
    declared = Path("declared/scored.py")
    text = declared.read_text().replace('path="raw"', f'path="{s3.bucket}/raw"')
    declared.write_text(text.replace(f"max_concurrency={IN_FLIGHT}", "max_concurrency=64"))
    for task in range(2):
        keys = pa.table({"k": pa.array(range(1500 * task, 1500 * task + 1500), pa.int64())})
        pq.write_table(keys, f"part-{task}.parquet")
        objects.upload(
            Path(f"part-{task}.parquet"), f"{s3.bucket}/raw/date={DAY}/part-{task}.parquet"
        )
    for most in (200, 140):
        before = len(s3.requests())
        assert in_session() == 0
        asked = Counter((method, place_in(path)) for method, path in s3.requests()[before:])
        # a part a second, which is read once
        of_a_slow_run = 2 * max(0, asked["PUT", "ledger/parts"] - 25)
        assert asked.total() - of_a_slow_run <= most, asked
    assert rows_of(s3) == list(range(3000))


def test_another_machine_reads_the_records_and_repeats_no_call(in_session, service):
    assert in_session() == 0
    asked = len(service.log)
    shutil.rmtree("data")
    assert in_session() == 0
    assert len(service.log) == asked
    assert [record.state for record in run_records.load("scored", DAY)] == [
        "published",
        "published",
    ]


@pytest.mark.proof
def test_a_killed_day_is_taken_over_without_repeated_calls(scored, service, s3, wait_for):
    service.answer = slowly
    with scored() as first:
        wait_for(lambda: len(service.log) > ROWS // 2, seconds=90)
        os.kill(first.pid, signal.SIGKILL)
    with scored() as second:
        output, _ = second.communicate(timeout=200)
    assert second.returncode == 0, output
    assert rows_of(s3) == list(range(ROWS))
    asked = Counter(service.log)
    assert len(asked) == ROWS
    # in flight, and the answers of one interval of the ledger
    assert asked.total() - ROWS <= 3 * IN_FLIGHT
    with scored() as third:
        output, _ = third.communicate(timeout=200)
    assert f"{DAY}  published   {ROWS} rows, 0 calls" in output
    assert Counter(service.log) == asked


def place_in(path):
    """What a request is about: a part of the ledger, or of a table; "many" for a request that
    deletes several.
    """
    if path.endswith("?delete"):
        return "many"
    name = unquote(path).partition("prefix=")[2] or path.partition("/")[2].partition("/")[2]
    table, *parts = name.rstrip("/").split("/")
    if table == "ledger":
        kind, *rest = parts[2:] or [""]  # below the lookup and its fingerprint
        return f"ledger/{rest[1] if kind == 'runs' and rest[1:] else kind}"
    return f"{table.removeprefix('scored')}/{parts[0].partition('=')[0] if parts else ''}"


async def slowly(request):
    await asyncio.sleep(0.4)
    return web.json_response({"temp_c": 1.5})


def rows_of(s3):
    return sorted(DeltaTable(f"{s3.bucket}/scored").to_pyarrow_table()["k"].to_pylist())
