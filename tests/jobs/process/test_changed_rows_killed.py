"""A table whose changed rows only are enriched, by the command: killed, run again, and run without
a change.
"""

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

from tests.support.places import everywhere, place_of

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[3]
ROWS, CHANGED, GONE, IN_FLIGHT = 400, 100, 5, 8
DECLARATION = """
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency={in_flight}), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="temp_c DOUBLE", timeout=60.0,
)
scored = Enrichment(
    name="scored", lookups=[score], output=Output(path="{place}/scored"), ledger=Ledger("{place}/ledger"),
    input=Input(path="raw", partition="part", every=["all"], row_id=["id"], rows="changed"),
)
"""


@pytest.fixture
def project(tmp_path, monkeypatch, service, request):
    """A project whose table and ledger are in a folder or a bucket. Gives its table, and what
    starts `tidegate run`.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("declared", "raw/part=all"):
        Path(name).mkdir(parents=True)
    Path("declared/__init__.py").touch()
    place = place_of(request, "data")
    text = DECLARATION.format(url=service.url, in_flight=IN_FLIGHT, place=place)
    Path("declared/scored.py").write_text(text)

    def start():
        command = [sys.executable, "-m", "tidegate", "run", "scored", "--package", "declared"]
        return subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}, text=True,
            start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    return f"{place}/scored", start


def write(keys):
    pq.write_table(
        pa.table({"id": list(keys), "k": list(keys.values())}), "raw/part=all/part-0.parquet"
    )


def ended(started):
    with started as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


async def slowly(request):
    await asyncio.sleep(0.4)
    return web.json_response({"temp_c": 1.5})


@everywhere("project")
def test_a_killed_run_of_changed_rows_repeats_no_call_and_an_unchanged_table_makes_none(
    project, service, wait_for
):
    table, start = project
    write({number: number for number in range(ROWS)})
    assert f"{ROWS} rows ({ROWS} new, 0 changed, 0 expired, 0 gone, 0 kept), {ROWS} calls" in ended(
        start()
    )
    before = DeltaTable(table)
    rows = {number: number + ROWS * (number < CHANGED) for number in range(ROWS - GONE)}
    write(rows)
    service.answer = slowly
    with start() as first:
        wait_for(lambda: len(service.log) > ROWS + CHANGED // 2, seconds=240)
        os.kill(first.pid, signal.SIGKILL)
    assert DeltaTable(table).version() == before.version()
    kept = ROWS - GONE - CHANGED
    assert (
        f"{CHANGED} rows (0 new, {CHANGED} changed, 0 expired, {GONE} gone, {kept} kept)"
        in ended(start())
    )
    asked = Counter(service.log)
    assert len(asked) == ROWS + CHANGED
    # in flight, and the answers of one interval of the ledger
    assert asked.total() - len(asked) <= 3 * IN_FLIGHT
    published = DeltaTable(table).to_pyarrow_table(columns=["id", "k", "temp_c"]).sort_by("id")
    assert published["k"].to_pylist() == list(rows.values())
    assert published["temp_c"].null_count == 0
    line = (
        f"0 rows (0 new, 0 changed, 0 expired, 0 gone, {ROWS - GONE} kept), 0 calls, 0 answers "
        "from the ledger"
    )
    assert line in ended(start())
    assert Counter(service.log) == asked
