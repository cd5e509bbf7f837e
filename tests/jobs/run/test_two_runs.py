"""Days that have keys in common, two at once, each a process of its own: counted at a real HTTP
service.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.tables.records import run_records
from tests.support.places import everywhere, place_of

pytestmark = [pytest.mark.spark, pytest.mark.proof]
ROOT = Path(__file__).parents[3]
IN_FLIGHT = 10  # of each run
DECLARATION = """
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency={in_flight}), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="temp_c DOUBLE", timeout=60.0,
)
scored = Enrichment(
    name="scored", input=Input(path="raw"), lookups=[score], output=Output(path="published"),
    ledger=Ledger("{place}/ledger"),
)
"""


@pytest.fixture
def backfill(tmp_path, monkeypatch, service, request):
    """Runs so many days, two at once; each has a part of its keys in common with all others, every
    key in `rows`.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scoring.py").write_text(
        DECLARATION.format(url=service.url, in_flight=IN_FLIGHT, place=place_of(request, "data"))
    )

    async def answer(request):
        await asyncio.sleep(0.02)
        return web.json_response({"temp_c": 1.5})

    service.answer = answer

    def run(day):
        command = [
            sys.executable,
            str(ROOT / "jobs/run/enrich_day.py"),
            "--enrichment",
            "scoring:scored",
            "--day",
            day,
        ]
        paths = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PYSPARK_PYTHON": sys.executable}
        return subprocess.run(
            command,
            env=os.environ | paths,
            capture_output=True,
            text=True,
            timeout=550,
            check=False,
        )

    def days(count, keys, *, common, rows):
        named = [f"2026-11-{number + 1:02d}" for number in range(count)]
        for number, day in enumerate(named):
            first = 1_000_000 * (number + 1)
            own = [*range(common), *range(first, first + keys - common)] * rows
            folder = tmp_path / "raw" / f"date={day}"
            folder.mkdir(parents=True)
            for file in range(2):  # a task each
                pq.write_table(
                    pa.table({"k": pa.array(own[file::2], pa.int64())}),
                    folder / f"part-{file}.parquet",
                )
        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(run, named))
        assert [process.returncode for process in ended] == [0] * count, ended[0].stderr
        return [record for day in named for record in run_records.load("scored", day)]

    return days


def test_ten_days_two_at_a_time_repeat_only_keys_in_flight_at_the_same_moment(backfill, service):
    days, keys = 10, 5000
    common = keys * 6 // 10
    found = backfill(days, keys, common=common, rows=3)
    distinct = common + days * (keys - common)
    asked = Counter(service.log)
    assert len(asked) == distinct
    assert sum(asked.values()) - distinct <= IN_FLIGHT
    assert len(found) == days
    for record in found:
        (figures,) = record.figures.lookups
        assert figures.outcomes["ok"] == record.figures.rows_in == 3 * keys
        # of the keys that the ledger did not know when the day began
        (message,) = record.facts.asked_by
        asked_first, rows = map(int, re.findall(r"\d+", message.replace(",", "")))
        assert keys - common <= asked_first <= keys
        assert rows == 3 * asked_first
    assert sum(record.figures.lookups[0].calls for record in found) == sum(asked.values())


@everywhere("backfill")
@pytest.mark.parametrize("own", [0, 500])
def test_two_days_at_once_with_unique_keys_call_for_common_keys_once(backfill, service, own):
    found = backfill(2, 1000 + own, common=1000, rows=1)
    asked = Counter(service.log)
    assert len(asked) == 1000 + 2 * own
    assert asked.total() - len(asked) <= IN_FLIGHT
    assert [record.figures.lookups[0].outcomes["ok"] for record in found] == [1000 + own] * 2
    assert sum(record.figures.lookups[0].calls for record in found) == asked.total()
