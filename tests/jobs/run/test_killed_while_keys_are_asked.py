"""Kills while the keys are asked, before the first row is written; counted in the log of a real
HTTP service.
"""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from demo.killing import kill_tree
from jobs.process.spark_submit import find_script
from jobs.tables.records import run_records
from tests.support.places import everywhere, place_of

pytestmark = [pytest.mark.spark, pytest.mark.proof]
ROOT = Path(__file__).parents[3]
DAY = "2026-11-01"
IN_FLIGHT, FLUSH_ROWS = 10, 50
# keys, files: one goes through the driver, two through tasks of Spark's
DAYS = [(400, 1), (400, 2), (10_000, 2)]
ROWS_PER_KEY = 4
DECLARATION = """
import os
from dataclasses import replace
from pathlib import Path

from tidegate import AsyncFunctionLookup, Enrichment, HttpLookup, Input, Ledger, Output, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency={in_flight}), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="twice BIGINT", timeout=60.0,
)
plain = Enrichment(
    name="scored", input=Input(path="raw"), lookups=[score], output=Output(path="published"), mode="ordered",
    ledger=Ledger("{place}/ledger", flush_rows={flush_rows}, flush_seconds=0.2),
)


class DiesOnce:
    # ends the worker, as a killed container does, after most of a task's calls
    calls = 0

    async def async_invoke(self, value):
        self.calls += 1
        if self.calls == {dies_at} and not Path("died").exists():
            Path("died").touch()
            os._exit(9)
        return [{{"passed": True}}]


dying = AsyncFunctionLookup(
    name="dying", function=DiesOnce, keys={{"k": "k"}}, returns="passed BOOLEAN", timeout=20.0, max_concurrency=2
)
dies = replace(plain, lookups=[score, dying])
"""


@pytest.fixture
def place(tmp_path, request):
    """Of the ledger."""
    return place_of(request, str(tmp_path))


@pytest.fixture(params=DAYS)
def keys(request, place, tmp_path, monkeypatch, service):
    """How many keys the day has, in files of a task each."""
    keys, files = request.param
    monkeypatch.chdir(tmp_path)
    text = DECLARATION.format(
        url=service.url,
        in_flight=IN_FLIGHT,
        flush_rows=FLUSH_ROWS,
        dies_at=keys * 9 // 20,
        place=place,
    )
    (tmp_path / "scoring.py").write_text(text)
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    for file in range(files):
        rows = range(file, keys * ROWS_PER_KEY, files)
        pq.write_table(
            pa.table({"k": [row % keys for row in rows]}), folder / f"part-{file}.parquet"
        )

    async def answer(request):
        await asyncio.sleep(0.03)
        return web.json_response({"twice": 2 * int(request.path.rpartition("/")[2])})

    service.answer = answer
    return keys


def program(enrichment, *options):
    return {
        "args": [
            *options,
            str(ROOT / "jobs/run/enrich_day.py"),
            "--enrichment",
            f"scoring:{enrichment}",
            "--day",
            DAY,
        ],
        "env": os.environ
        | {"PYTHONPATH": f"{ROOT}:{Path.cwd()}", "PYSPARK_PYTHON": sys.executable},
    }


def held(service, keys):
    asked = Counter(service.log)
    assert len(asked) == keys
    assert asked.total() - keys <= IN_FLIGHT + FLUSH_ROWS
    (record,) = run_records.load("scored", DAY)
    # of the keys that the ledger did not know when the run began
    message = record.facts.asked_by[0]
    asked_first, rows = map(int, re.findall(r"\d+", message.replace(",", "")))
    assert 0 < asked_first <= keys
    assert rows == asked_first * ROWS_PER_KEY
    rows = [row for file in record.facts.files for row in pq.ParquetFile(file).read().to_pylist()]
    assert Counter((row["k"], row["twice"], row["score_status"]) for row in rows) == {
        (key, 2 * key, "ok"): ROWS_PER_KEY for key in range(keys)
    }


@everywhere("place")
def test_a_worker_killed_during_the_prefetch_repeats_few_calls(keys, service):
    submit = [str(find_script()), "--master", "local[2,4]"]
    ended = subprocess.run(
        **program("dies", *submit), capture_output=True, text=True, timeout=580, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert Path("died").exists()
    held(service, keys)


@everywhere("place")
def test_a_driver_killed_during_the_prefetch_repeats_few_calls_in_the_next_run(keys, service):
    first = subprocess.Popen(**program("plain", sys.executable), stderr=subprocess.PIPE, text=True)
    while len(service.log) < keys // 2:
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.005)
    kill_tree(first.pid)
    first.communicate()
    needs_retry = subprocess.run(
        **program("plain", sys.executable), capture_output=True, text=True, timeout=580, check=False
    )
    assert needs_retry.returncode == 0, needs_retry.stderr[-3000:]
    held(service, keys)
