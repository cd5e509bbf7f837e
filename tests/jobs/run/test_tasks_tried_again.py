"""Spark on this machine tries a task again whose worker was killed, and none that would fail again:
real programs.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines import local_master
from jobs.tables.records import run_records
from tests.jobs.process.test_listening_ports import processes_of
from tests.support.places import everywhere, place_of

DAY = "2026-11-01"
KEYS = 400
IN_FLIGHT = 10
LATENCY = 0.03  # s
FLUSH = 0.2  # s
DECLARATION = """
from dataclasses import replace

from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Retry, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency={in_flight}), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="twice BIGINT", timeout=60.0,
)
scored = Enrichment(
    name="scored", input=Input(path="raw", row_id=["k"]), lookups=[score], output=Output(path="out"),
    ledger=Ledger("{place}/ledger", flush_seconds={flush}),
)
strict = replace(scored, lookups=[replace(score, on_error="fail", retry=Retry(retries=0))], ledger=None)
"""


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_tries_tasks_again_unless_it_says_how_often(given, started):
    assert local_master.with_attempts(given) == started


@pytest.fixture
def day(tmp_path, monkeypatch, service, request):
    """Starts the day of an enrichment, its ledger in a folder or a bucket; gives the thread, and
    the exit status in a list once it has ended.
    """
    monkeypatch.chdir(tmp_path)
    text = DECLARATION.format(
        url=service.url, in_flight=IN_FLIGHT, flush=FLUSH, place=place_of(request, "data")
    )
    Path("scoring.py").write_text(text)
    folder = Path(f"raw/date={DAY}")
    folder.mkdir(parents=True)
    for file in range(2):
        pq.write_table(
            pa.table({"k": pa.array(range(file, KEYS, 2), pa.int64())}),
            folder / f"part-{file}.parquet",
        )
    begun = []

    def start(enrichment, mark):
        environment = {
            "TIDEGATE_TEST": mark,
            "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path]),
        }
        codes = []

        def run():
            log = Path("spark.log")
            codes.append(
                SparkSubmit(environment=environment).run(
                    f"scoring:{enrichment}", days=[DAY], run_id="r", log=log
                )
            )

        begun.append(threading.Thread(target=run))
        begun[-1].start()
        return begun[-1], codes

    yield start
    for thread in begun:
        thread.join(300)


def key_of(path):
    return int(path.rpartition("/")[2])


def workers_of(mark):
    """Those that run tasks: children of Spark's Python daemon."""
    for process in processes_of(mark):
        with contextlib.suppress(psutil.Error):
            if (
                local_master.DAEMON in process.cmdline()
                and local_master.DAEMON in process.parent().cmdline()
            ):
                yield process


@pytest.mark.proof
@everywhere("day")
@pytest.mark.spark
def test_a_worker_killed_with_9_costs_no_row_and_no_more_calls_than_were_in_flight_or_not_stored(
    day, service, wait_for
):
    async def answer(request):
        await asyncio.sleep(LATENCY)
        return web.json_response({"twice": 2 * key_of(request.path)})

    service.answer = answer
    mark = f"killed-{os.getpid()}"
    thread, codes = day("scored", mark)
    wait_for(lambda: len(service.log) > KEYS // 2 or codes, 120)
    assert not codes, Path("spark.log").read_text()[-3000:]
    killed = next(workers_of(mark))
    os.kill(killed.pid, signal.SIGKILL)
    thread.join(300)
    assert codes == [0], Path("spark.log").read_text()[-3000:]
    (record,) = run_records.load("scored", DAY)
    rows = [row for file in record.facts.files for row in pq.ParquetFile(file).read().to_pylist()]
    assert Counter((row["k"], row["twice"]) for row in rows) == {
        (key, 2 * key): 1 for key in range(KEYS)
    }
    repeated = len(service.log) - KEYS
    # an interval, and a write of as long on a busy machine
    flushed_late = 2 * FLUSH / LATENCY * IN_FLIGHT
    print(f"{repeated} calls repeated")
    assert 0 < repeated <= IN_FLIGHT + flushed_late


@pytest.mark.proof
@pytest.mark.spark
def test_a_row_that_fails_the_run_is_called_once_and_named(day, service):
    async def refuses_one(request):
        await asyncio.sleep(LATENCY)
        status = 400 if key_of(request.path) == KEYS // 2 else 200
        return web.json_response({"twice": 1}, status=status)

    service.answer = refuses_one
    thread, codes = day("strict", f"fails-{os.getpid()}")
    thread.join(300)
    said = json.loads(run_records.progress_file("scored", DAY).read_text())
    assert (codes, said["kind"]) == ([3], "stopped")
    assert "on_error is 'fail'" in said["reason"]
    assert max(Counter(service.log).values()) == 1
